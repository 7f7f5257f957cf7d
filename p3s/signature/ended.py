"""How a program goes on that was ended once its phases were known: as the full counts do.

Its last loop has as many iterations as at the counts that were traced in full; those that were not
seen repeat the ones that were. Calls after that loop are those of the full counts, which must be
the same on all ranks of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.text import processes
from p3s.capture.counted import threads_again
from p3s.capture.types import Call, RankTrace, Site, no_events, no_pairs, present_ranks
from p3s.signature.fold import Loop
from p3s.signature.parse import Completions, Nest, parse
from p3s.signature.part import CUT
from p3s.signature.structure import Node, Structure, structure
from p3s.signature.tables import PointTable

#: Counts traced to their end that tell how many iterations others have.
MIN_TO_FIT = 2


@dataclass(frozen=True)
class LaterCall:
    """A call after the loop; communicator: the k-th one with all ranks."""

    site: Site
    op: str
    comm: int
    root: int
    nbytes: int
    elem_bytes: int


@dataclass(frozen=True)
class Rest:
    """The last loop of a program that was ended: its number in the nest, iterations in all, and
    the calls after it."""

    nodes: tuple[Node, ...]
    nest: Nest
    loop: int
    turns: int
    seen: int
    later: tuple[LaterCall, ...]

    def __call__(self, logical: Completions) -> Completions:
        """Return the run of one rank with all iterations and the calls after them."""
        run, ranks = logical.run, present_ranks(logical.run)
        rt = logical.once(run.ranks[ranks[0]]) if ranks else None
        if rt is None or (rt.problem and CUT not in rt.problem):
            return logical
        index = self._events(logical, rt)
        ends = rt.start_ns + rt.elapsed_ns
        steps = np.maximum(np.diff(ends, prepend=ends[:1]), 0)[index]
        end = ends[index[:1]] + np.cumsum(steps) - steps[:1]
        calls, sites, site = list(run.calls), list(run.sites), list(logical.site)
        comms = [k for k, comm in enumerate(run.comms) if len(comm.members) == run.np]
        for each in self.later:
            comm = comms[each.comm] if each.comm >= 0 else -1
            size, count = each.elem_bytes, each.nbytes // each.elem_bytes
            calls.append(
                Call(each.op, len(sites), comm, -1, each.nbytes, size, -1, each.root, count)
            )
            sites.append(each.site)
            site.append(each.site.key)
        new_calls = np.arange(len(run.calls), len(calls))
        nothing = np.zeros(len(new_calls), dtype=np.int64)
        rt = replace(
            rt,
            complete=True,
            problem="",
            call=np.append(rt.call[index], new_calls).astype(np.int32),
            start_ns=np.append(end - rt.elapsed_ns[index], nothing + end[-1:].sum()),
            elapsed_ns=np.append(rt.elapsed_ns[index], nothing),
            work=np.append(rt.work[index], nothing),
            counters=np.concatenate(
                [rt.counters[index], np.zeros((len(nothing), rt.counters.shape[1]), dtype=np.int64)]
            )
            if len(rt.counters)
            else rt.counters,
            thread=None if rt.thread is None else np.append(rt.thread[index], nothing),
            threads=rt.threads and threads_again(rt.threads, index),
            done=no_pairs(),
            cancelled=no_events().astype(bool),
            anybody=no_events(),
        )
        whole = _OneRank(run.np, ranks[0], rt)
        run = replace(run, calls=tuple(calls), sites=tuple(sites), ranks=whole, problems={})
        tests = np.append(logical.tests, np.zeros(len(new_calls), dtype=bool))
        return Completions(run, site, tests, logical.sums)

    def begins(self, node: Ints) -> Ints:
        """Return the events, given as nodes, that begin an iteration of the loop."""
        mine = self.nest.around[node, 1] == self.loop
        found: Ints = np.flatnonzero(parse(self.nest, node).begins(1) & mine)
        return found

    def _events(self, logical: Completions, rt: RankTrace) -> Ints:
        """Return the events of a rank up to the end of the loop, as numbers of those it recorded.

        Raises P3SError where its iterations do not repeat.
        """
        number = {node: k for k, node in enumerate(self.nodes)}
        of_call = [number.get((logical.site[k], c.op), -1) for k, c in enumerate(logical.run.calls)]
        node = np.array(of_call, dtype=np.int64)[rt.call]
        at = self.begins(node)
        if not len(at):
            return np.arange(len(node))
        each = [rt.call[a:b].tobytes() for a, b in zip(at[:-1], at[1:], strict=True)]
        seen = len(each)
        half = seen // 2
        period = next(
            (q for q in range(1, half + 1) if each[half + q :] == each[half : seen - q]), 0
        )
        if not period:
            raise P3SError(
                f"rank {rt.rank}: the iterations seen do not repeat; trace again without --stop"
            )
        usable = (seen - half) // period * period
        turns = [*range(seen), *(half + (k - half) % usable for k in range(seen, self.turns))]
        parts = [np.arange(at[k], at[k + 1]) for k in turns[: self.turns]]
        return np.concatenate([np.arange(at[0]), *parts])


class _OneRank(Sequence[RankTrace]):
    """The ranks of a run of which one is there."""

    def __init__(self, size: int, rank: int, rt: RankTrace) -> None:
        self._size, self._rt, self.present = size, rt, [rank]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, number: int) -> RankTrace:  # type: ignore[override]
        return self._rt


def rest_of(seen: PointTable, full: Sequence[PointTable]) -> Rest:
    """Return how a run goes on from the counts traced in full.

    Raises P3SError where these do not tell.
    """
    if len(full) < MIN_TO_FIT:
        raise P3SError(f"a program that was ended needs {MIN_TO_FIT} counts that went to their end")
    theirs = structure(full)
    number = {node: k for k, node in enumerate(theirs.nodes)}
    if unknown := next((op for site, op in seen.nodes if (site, op) not in number), ""):
        raise P3SError(f"no count traced in full makes one of its calls of {unknown}")
    there = {number[node] for node in seen.nodes}
    children = theirs.tree.children
    loops = [k for k, c in enumerate(children) if isinstance(c, Loop) and c.nodes() & there]
    if not loops:
        raise P3SError("the program was ended before it came to a loop; trace it without --stop")
    at = loops[-1]
    loop = next(k for k, each in enumerate(theirs.nest.loops) if each is children[at])
    to_theirs = np.array([number[node] for node in seen.nodes], dtype=np.int64)
    rest = Rest(
        tuple(theirs.nodes),
        replace(theirs.nest, loops=[]),
        loop,
        _turns(theirs.nest.loops[loop], seen.np),
        0,
        tuple(_later(theirs, child, full) for child in children[at + 1 :]),
    )
    begun = (len(rest.begins(to_theirs[sample])) for sample in seen.samples.values())
    return replace(rest, seen=max(begun) - 1)


def _turns(loop: Loop, n: int) -> int:
    """Return the iterations of a loop at another count: those of all ranks of the full counts."""
    found = {count: turns for (count, _), turns in loop.turns.items()}
    if len(set(loop.turns.values())) > 1:
        raise P3SError(
            f"how many iterations there are at {processes(n)} is unknown, since those of the counts"
            f" and ranks traced in full differ ({found}); trace it without --stop"
        )
    return next(iter(found.values()))


def _later(theirs: Structure, child: int | Loop, full: Sequence[PointTable]) -> LaterCall:
    """Return a call after the loop, the same on all ranks of all counts traced in full."""
    found: set[LaterCall] = set()
    if not isinstance(child, Loop):
        site, op = theirs.nodes[child]
        for t in full:
            groups = [k for k, g in enumerate(t.groups) if (g.site, g.op) == (site, op)]
            rows = np.flatnonzero(np.isin(t.group, groups))
            once = len(rows) == t.np and (t.count[rows] == 1).all()
            alike = [k for k, place in enumerate(t.places) if len(place.members) == t.np]
            for k in rows.tolist() if once else ():
                g = t.groups[t.group[k]]
                comm = alike.index(g.comm) if g.comm in alike else g.comm
                if g.peer < 0 and (g.comm < 0 or g.comm in alike):
                    where = Site(site, tuple(t.sites.get(site, ())))
                    found.add(
                        LaterCall(where, op, comm, g.root, int(t.nbytes[k]), int(t.elem_bytes[k]))
                    )
            if not once:
                found.clear()
                break
    if len(found) != 1:
        name = "a loop" if isinstance(child, Loop) else theirs.nodes[child][1]
        raise P3SError(
            f"after the iterations, {name} follows, which is not the same on all ranks and at all"
            " counts traced in full; trace it without --stop"
        )
    return found.pop()
