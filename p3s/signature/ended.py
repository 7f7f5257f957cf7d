"""How a program goes on that was ended once its phases were known: as the full counts do.

The loops that turn equally often on all ranks of all full counts cut a run into steps: iterations,
and what is between inner loops. A step that was not seen repeats those seen that are the same step
at the full counts: that do the same there, or at least call the same. A step that is like none
seen has calls that are the same on all ranks of the full counts, or do what others did before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError
from p3s.base.text import processes
from p3s.capture.counted import threads_again
from p3s.capture.types import Call, RankTrace, Site, no_events, no_pairs, present_ranks
from p3s.signature.parse import Completions, Nest, loop_indices, nodes_of, parse, trips
from p3s.signature.part import CUT
from p3s.signature.structure import Structure, structure
from p3s.signature.tables import PointTable, first_rows, node_of_row


@dataclass(frozen=True)
class LaterCall:
    """A call of a step that was not seen; communicator: the k-th one with all ranks."""

    site: Site
    op: str
    comm: int
    root: int
    nbytes: int
    elem_bytes: int


@dataclass(frozen=True)
class Twin:
    """A call of a step that was not seen, which does what another node did last before."""

    site: Site
    node: int


@dataclass(frozen=True, eq=False)
class Steps:
    """The loops that cut runs into steps, True in ``regular``; ``nest``: without its loops."""

    nest: Nest
    regular: Bools

    def of(self, node: Ints) -> tuple[list[bytes], Ints]:
        """Return the steps of a rank whose events are given as nodes, and where each begins.

        A step is named by the iterations around it and the inner loops before it: in the order of
        the program, the names ascend.
        """
        nest, levels = self.nest, self.nest.levels
        inside = self.regular[nest.around] & (np.arange(levels + 1) <= nest.depth[:, None])
        depth = inside.sum(axis=1) - 1
        name = np.zeros((len(node), 2 * levels + 1), dtype=">u4")
        index = loop_indices(parse(nest, node))
        for level in range(levels + 1):
            at_level = (depth >= level)[node]
            name[at_level, 2 * level] = 1 + self._loop_positions(level, depth)[node[at_level]]
            if level < levels:
                deeper = (depth > level)[node]
                name[deeper, 2 * level + 1] = 1 + index[deeper, level]
        begins = np.ones(len(node), dtype=bool)
        begins[1:] = (name[1:] != name[:-1]).any(axis=1)
        at = np.flatnonzero(begins)
        return [row.tobytes() for row in name[at]], at

    def _loop_positions(self, level: int, depth: Ints) -> Ints:
        """Return of each node where it is among the regular loops of a level: odd numbers are in
        one, even ones between two."""
        nest, out = self.nest, np.zeros(len(depth), dtype=np.int64)
        for loop in np.unique(nest.around[depth >= level, level]).tolist():
            mine = (nest.around[:, level] == loop) & (depth >= level)
            places = np.unique(nest.place[mine & (depth > level), level])
            at = nest.place[mine, level]
            out[mine] = 2 * np.searchsorted(places, at) + np.isin(at, places)
        return out


@dataclass(frozen=True, eq=False)
class Rest:
    """How the runs of a count go on.

    nodes: numbered as in ``steps``; names: all steps of a run, ascending; always: those that all
    ranks have; same, alike: equal numbers for steps that do the same, or call the same, on the
    ranks of the full counts; within: by the number in ``alike``, that of earlier steps which make
    other calls beside those of this one, and the nodes of this one; later: the calls of steps that
    are the same on all ranks; seen: iterations seen of the loop whose end was farthest away.
    """

    nodes: Mapping[tuple[str, str], int]
    steps: Steps
    names: Sequence[bytes]
    always: Bools
    same: Ints
    alike: Ints
    within: Mapping[int, tuple[int, Ints]]
    later: Mapping[int, tuple[LaterCall | Twin, ...]]
    seen: int

    def __call__(self, logical: Completions) -> Completions:
        """Return the run of one rank with all its steps."""
        run, ranks = logical.run, present_ranks(logical.run)
        rt = logical.once(run.ranks[ranks[0]]) if ranks else None
        if rt is None or CUT not in rt.problem or not len(rt.call):
            return logical
        index, later = self._events(logical, rt)
        calls, sites, site = list(run.calls), list(run.sites), list(logical.site)
        comms = [k for k, comm in enumerate(run.comms) if len(comm.members) == run.np]
        for each, event in later:
            if isinstance(each, Twin):
                calls.append(replace(calls[rt.call[event]], site=len(sites)))
            else:
                comm = comms[each.comm] if each.comm >= 0 else -1
                size, count = each.elem_bytes, each.nbytes // each.elem_bytes
                calls.append(
                    Call(each.op, len(sites), comm, -1, each.nbytes, size, -1, each.root, count)
                )
            sites.append(each.site)
            site.append(each.site.key)
        added_calls = np.arange(len(run.calls), len(calls))
        zeros = np.zeros(len(added_calls), dtype=np.int64)
        ends = rt.start_ns + rt.elapsed_ns
        steps = np.append(np.maximum(np.diff(ends, prepend=ends[:1]), 0), zeros)[index]
        elapsed = np.append(rt.elapsed_ns, zeros)[index]
        rt = replace(
            rt,
            complete=True,
            problem="",
            call=np.append(rt.call, added_calls).astype(np.int32)[index],
            start_ns=ends[:1].sum() + np.cumsum(steps) - elapsed,
            elapsed_ns=elapsed,
            work=np.append(rt.work, zeros)[index],
            counters=np.pad(rt.counters, ((0, len(added_calls)), (0, 0)))[index]
            if len(rt.counters)
            else rt.counters,
            thread=None if rt.thread is None else np.pad(rt.thread, (0, len(added_calls)))[index],
            threads=rt.threads and threads_again(rt.threads, index),
            done=no_pairs(),
            cancelled=no_events().astype(bool),
            anybody=no_events(),
        )
        whole = _OneRank(run.np, ranks[0], rt)
        run = replace(run, calls=tuple(calls), sites=tuple(sites), ranks=whole, problems={})
        tests = np.append(logical.tests, zeros.astype(bool))
        return Completions(run, site, tests, logical.sums)

    def _events(
        self, logical: Completions, rt: RankTrace
    ) -> tuple[Ints, list[tuple[LaterCall | Twin, int]]]:
        """Return all events of a rank, as numbers of those that it recorded, and of the calls
        beside, which are numbered after these; with each of them the event that it repeats."""
        of_call = [
            self.nodes.get((logical.site[k], c.op), -1) for k, c in enumerate(logical.run.calls)
        ]
        node = np.array(of_call, dtype=np.int64)[rt.call]
        names, at = self.steps.of(node)
        place = {name: k for k, name in enumerate(self.names)}
        places_of_steps = np.array([place.get(name, -1) for name in names], dtype=np.int64)
        cut = int(places_of_steps[-1])  # under way
        present = np.zeros(len(place), dtype=bool)
        present[places_of_steps] = True
        if places_of_steps.min() < 0 or (self.always & ~present)[:cut].any():
            raise P3SError(
                f"rank {rt.rank}: its iterations are not those of the counts traced in full; trace"
                " again without --stop"
            )
        begin = np.full(cut + 1, at[-1], dtype=np.int64)
        begin[places_of_steps] = at
        begin = np.minimum.accumulate(begin[::-1])[::-1]  # a step that is not there is empty
        parts: list[Ints] = [np.arange(at[-1])]
        later: list[tuple[LaterCall | Twin, int]] = []
        for number, step in zip(
            self.alike[cut:].tolist(), self._standing_for(cut).tolist(), strict=True
        ):
            if step >= 0:
                events = np.arange(begin[step], begin[step + 1])
                if self.alike[step] != number:
                    events = events[np.isin(node[events], self.within[number][1])]
                parts.append(events)
                continue
            calls, before = self.later.get(-1 - step), np.concatenate(parts)
            before = before[before < len(node)]
            number = Counter(each.node for each in calls or () if isinstance(each, Twin))
            made_by = {v: before[node[before] == v][-k:].tolist() for v, k in number.items()}
            if calls is None or any(len(made_by[v]) < k for v, k in number.items()):
                raise P3SError(
                    "after the iterations, calls follow that are not the same on all ranks and at"
                    " all counts traced in full; trace it without --stop"
                )
            first = len(node) + len(later)
            parts.append(np.arange(first, first + len(calls)))
            later += [
                (each, made_by[each.node].pop(0) if isinstance(each, Twin) else -1)
                for each in calls
            ]
        return np.concatenate(parts), later

    def _standing_for(self, cut: int) -> Ints:
        """Return the step that each one from ``cut`` on repeats: in turn those of the second half
        of what was seen. Where there is none, -1 less its number in ``alike``."""
        out = -1 - self.alike[cut:]
        for number in (self.alike, self.same):
            traced = np.argsort(number[:cut], kind="stable")
            missing = np.argsort(number[cut:], kind="stable")
            of_seen, of_wanted = number[:cut][traced], number[cut:][missing]
            for each in np.unique(of_wanted).tolist():
                mine = traced[np.searchsorted(of_seen, each) : np.searchsorted(of_seen, each + 1)]
                a, b = np.searchsorted(of_wanted, [each, each + 1])
                if len(mine):
                    out[missing[a:b]] = np.resize(mine[len(mine) // 2 :], b - a)
        for at in np.flatnonzero(out < 0).tolist():
            larger, _ = self.within.get(-1 - int(out[at]), (-1, None))
            traced = np.flatnonzero(self.alike[:cut] == larger)
            out[at] = traced[-1] if len(traced) else out[at]
        return out


class _OneRank(Sequence[RankTrace]):
    """The ranks of a run of which one is there."""

    def __init__(self, size: int, rank: int, rt: RankTrace) -> None:
        self._size, self._rt, self.present = size, rt, [rank]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, number: int) -> RankTrace:  # type: ignore[override]
        return self._rt


def rest_of(ended_run: PointTable, full: Sequence[PointTable]) -> Rest:
    """Return how a run goes on from the counts traced in full.

    Raises P3SError where these do not tell.
    """
    if not full:
        raise P3SError("a program that was ended needs a count that went to its end")
    theirs = structure([*full, ended_run])  # loops that turn once at the full counts are seen here
    number = {node: k for k, node in enumerate(theirs.nodes)}
    number_of = np.array([number[node] for node in ended_run.nodes], dtype=np.int64)
    samples = [number_of[sample] for sample in ended_run.samples.values()]
    kinds = list(zip(*(kind for t in full for kind in _kinds(t, number)), strict=True))
    nodes, does, sends = kinds
    steps = Steps(replace(theirs.nest, loops=[]), _regular(theirs, nodes, samples))
    cuts = [steps.of(node) for node in nodes]
    names = sorted({name for mine, _ in cuts for name in mine})
    place = {name: k for k, name in enumerate(names)}
    parts: list[Ints] = []  # by kind of rank: where each step begins and ends
    for mine, at in cuts:
        part = np.zeros((len(names), 2), dtype=np.int64)
        ends = np.append(at[1:], len(nodes[len(parts)]))
        part[[place[name] for name in mine]] = np.column_stack([at, ends])
        parts.append(part)
    alike, same = _classes(parts, nodes), _classes(parts, does)
    of_step = np.unique(alike, axis=1, return_inverse=True)[1].reshape(-1)
    return Rest(
        number,
        steps,
        names,
        np.asarray((alike > 0).all(axis=0)),
        np.unique(same, axis=1, return_inverse=True)[1].reshape(-1),
        of_step,
        _within(of_step, parts, nodes),
        _later(
            theirs,
            _calls_alike(full, number),
            set(number_of.tolist()),
            of_step,
            parts,
            nodes,
            sends,
        ),
        _iterations_seen(theirs, ended_run.np, steps, samples),
    )


def _classes(parts: Sequence[Ints], events: Sequence[Ints]) -> Ints:
    """Return of each kind of rank (rows) what each step is: a number, 0 where it is not there."""
    out = np.zeros((len(parts), len(parts[0])), dtype=np.int64)
    for row, part, event in zip(out, parts, events, strict=True):
        label: dict[bytes, int] = {b"": 0}
        row[:] = [label.setdefault(event[a:b].tobytes(), len(label)) for a, b in part.tolist()]
    return out


def _within(
    of_step: Ints, parts: Sequence[Ints], nodes: Sequence[Ints]
) -> dict[int, tuple[int, Ints]]:
    """Return of the steps that are a part of earlier ones on all ranks, by the numbers of both,
    these and the nodes whose calls are left."""
    numbers, first = np.unique(of_step, return_index=True)
    calls = [
        [node[slice(*part[step])] for part, node in zip(parts, nodes, strict=True)]
        for step in first.tolist()
    ]
    nodes_of_step = [np.unique(np.concatenate(each)) for each in calls]
    out: dict[int, tuple[int, Ints]] = {}
    for few, mine in enumerate(nodes_of_step):
        for larger in np.flatnonzero(first < first[few]).tolist():
            if len(mine) and all(
                np.array_equal(a, b[np.isin(b, mine)])
                for a, b in zip(calls[few], calls[larger], strict=True)
            ):
                out[int(numbers[few])] = int(numbers[larger]), mine
                break
    return out


def _regular(theirs: Structure, kinds: Sequence[Ints], ended: Sequence[Ints]) -> Bools:
    """Tell which loops turn equally often, in each of their entries, on all ranks that enter them;
    no walks, and only inside such loops. ended: the events of ranks that were ended, as nodes."""
    nest = theirs.nest
    entered, begun = ([trips(parse(nest, node)) for node in each] for each in (kinds, ended))
    out = np.zeros(len(nest.loops), dtype=bool)
    out[0] = True
    for loop in range(1, len(out)):
        iterations = {each[loop].tobytes() for each in entered if loop in each}
        if loop in theirs.walks or not out[theirs.parents[loop]] or len(iterations) != 1:
            continue
        whole = next(each[loop] for each in entered if loop in each)
        out[loop] = all(
            _begins(whole, each[loop], bool((nest.around[node[-1]] == loop).any()))
            for node, each in zip(ended, begun, strict=True)
            if loop in each
        )
    return out


def _begins(whole: Ints, part: Ints, under_way: bool) -> bool:
    """Tell whether the iterations of some entries are the first; the last may be under way."""
    upto = len(part)
    return (
        upto <= len(whole)
        and np.array_equal(part[: upto - under_way], whole[: upto - under_way])
        and bool(part[-1] <= whole[upto - 1])
    )


def _iterations_seen(theirs: Structure, np_: int, steps: Steps, samples: Sequence[Ints]) -> int:
    """Return how many iterations ranks saw of the loop that they were farthest from the end of."""
    begun: dict[int, int] = {}
    for node in samples:
        parsed = parse(steps.nest, node)
        for level in range(1, int(steps.nest.depth[node[-1]]) + 1):
            loop = int(steps.nest.around[node[-1], level])
            mine = steps.nest.around[node, level] == loop
            number = int((parsed.begins(level) & mine).sum())
            if steps.regular[loop] and number > 1:
                begun[loop] = max(begun.get(loop, 0), number)
    if not begun:
        raise P3SError(
            "the program was ended in no loop that turns equally often at all counts and ranks"
            " traced in full; trace it without --stop"
        )
    of_full = [[k for m, k in each.turns.items() if m[0] != np_] for each in theirs.nest.loops]
    farthest = min(begun, key=lambda loop: (begun[loop] / max(of_full[loop]), loop))
    return begun[farthest] - 1


def _later(
    theirs: Structure,
    calls: Mapping[int, LaterCall],
    seen_nodes: Set[int],
    of_step: Ints,
    parts: Sequence[Ints],
    nodes: Sequence[Ints],
    does: Sequence[Ints],
) -> dict[int, tuple[LaterCall | Twin, ...]]:
    """Return the calls of the steps that are the same on all ranks, by the numbers of these.

    calls: of nodes; seen_nodes: were seen; does: of events, what they do wherever they are.
    """
    out: dict[int, tuple[LaterCall | Twin, ...]] = {}
    for number, step in zip(*np.unique(of_step, return_index=True), strict=True):
        sequences = {
            tuple(node[slice(*part[step])].tolist())
            for part, node in zip(parts, nodes, strict=True)
        }
        if len(sequences) > 1:
            continue
        one = sequences.pop()
        mine = [part[step] for part in parts]
        twins = {
            v: _twin(v, theirs, seen_nodes, mine, nodes, does) for v in set(one) - calls.keys()
        }
        of_node: dict[int, LaterCall | Twin] = dict(calls)
        of_node |= {v: Twin(_site(v, theirs), w) for v, w in twins.items() if w is not None}
        if of_node.keys() >= set(one):
            out[int(number)] = tuple(of_node[v] for v in one)
    return out


def _twin(
    v: int,
    theirs: Structure,
    seen_nodes: Set[int],
    step: Sequence[Ints],
    nodes: Sequence[Ints],
    does: Sequence[Ints],
) -> int | None:
    """Return the node, seen, whose last events before a step do what those of v do in the step."""
    op = theirs.nodes[v][1]
    for w in sorted(seen_nodes, key=lambda w: (w != v, w)):
        if theirs.nodes[w][1] == op and all(
            np.array_equal(
                mine := does_[a:b][node[a:b] == v], does_[:a][node[:a] == w][-len(mine) :]
            )
            for (a, b), node, does_ in zip(step, nodes, does, strict=True)
        ):
            return w
    return None


def _site(node: int, theirs: Structure) -> Site:
    key = theirs.nodes[node][0]
    return Site(key, next((tuple(t.sites[key]) for t in theirs.tables if key in t.sites), ()))


def _calls_alike(
    full: Sequence[PointTable], number: Mapping[tuple[str, str], int]
) -> dict[int, LaterCall]:
    """Return the nodes whose calls are the same on all ranks of all counts traced in full."""
    calls_of: dict[int, set[LaterCall | None]] = {}
    for t in full:
        alike = [k for k, place in enumerate(t.places) if len(place.members) == t.np]
        for group, nbytes, size in set(
            zip(t.group.tolist(), t.nbytes.tolist(), t.elem_bytes.tolist(), strict=True)
        ):
            g = t.groups[group]
            call = None
            if g.peer < 0 and (g.comm < 0 or g.comm in alike):
                comm = alike.index(g.comm) if g.comm in alike else g.comm
                where = Site(g.site, tuple(t.sites.get(g.site, ())))
                call = LaterCall(where, g.op, comm, g.root, nbytes, size)
            calls_of.setdefault(number[(g.site, g.op)], set()).add(call)
    return {
        node: call
        for node, calls in calls_of.items()
        if len(calls) == 1 and (call := next(iter(calls))) is not None
    }


def _kinds(
    t: PointTable, number: Mapping[tuple[str, str], int]
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield of one rank of each kind its events as nodes, as what they do there, and as what they
    do wherever they are."""
    union = np.array([number.get(node, -1) for node in t.nodes], dtype=np.int64)
    of_row, first = node_of_row(t), first_rows(t)
    events = np.bincount(t.edges[:, 0], t.edges[:, 3] * (t.edges[:, 2] >= 0), minlength=t.np)
    ops = {op: -1 - k for k, op in enumerate(dict.fromkeys(op for _, op in t.nodes))}
    empty = np.array([ops[op] for _, op in t.nodes], dtype=np.int64)
    label: dict[tuple[object, ...], int] = {}
    columns = zip(t.group.tolist(), t.nbytes.tolist(), t.elem_bytes.tolist(), strict=True)
    does = np.array(
        [label.setdefault((*t.groups[k][1:], *size), len(label)) for k, *size in columns],
        dtype=np.int64,
    )
    for rank, sample in t.samples.items():
        if len(sample) < events[rank] or rank not in t.sequences:
            raise P3SError(f"{processes(t.np)}: a run of so many calls tells not how others go on")
        codes, at = t.sequences[rank].astype(np.int64), first.get(rank, 0)
        node = nodes_of(codes, at, of_row)
        yield union[node], codes, np.where(codes < 0, empty[node], does[codes + at])
