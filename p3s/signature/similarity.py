"""Functional similarity: which calls of two builds of a program are the same (thesis, 5.3.1).

Call sites are addresses. Where each process count runs a build of its own (other compiler options,
the count compiled in), no address is in two builds. Calls then correspond if they are of one
operation, agree in tags and element sizes, and come in the same order in the program's loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Bools, Ints
from p3s.signature.fold import Loop
from p3s.signature.phase_file import Matched
from p3s.signature.structure import Member, Node, Structure, structure
from p3s.signature.tables import PointTable

#: A call of the first sequence and one of the second.
Pair = tuple[int, int]
#: Builds are of one program from this share of the calls of the smaller one on (thesis, A.4.3:
#: phases are the same if 80 % of their events are).
SIMILAR = 0.8
#: Places of which no more than this share is known are those of another build or program.
FOREIGN = 0.5


def match(tables: Sequence[PointTable], run: PointTable) -> tuple[dict[str, str], Matched] | None:
    """Return site of a run -> site of other counts that is the same call, and how many are alike.

    None where the run is of the same build as these, or less than 80 % of the calls correspond
    (of the one that has fewer; of the other half).
    """
    run_calls = _list_calls(structure([run]))
    nodes_elsewhere = {node for t in tables for node in t.nodes}
    if sum(node in nodes_elsewhere for node in run_calls) > FOREIGN * len(run_calls):
        return None
    nearest = min(tables, key=lambda t: (abs(np.log(t.np / run.np)), t.np))
    alignments = [align_sites(candidates, run) for candidates in (tables, [nearest])]
    sites, how = max(alignments, key=lambda each: each[1].alike)
    less, more = sorted((len(run_calls), len(nearest.nodes)))
    enough = how.alike >= SIMILAR * less and how.alike > FOREIGN * more
    return (sites, how) if enough else None


def align_sites(tables: Sequence[PointTable], run: PointTable) -> tuple[dict[str, str], Matched]:
    """Return site of a run -> site of tables of one build that is the same call, and how many."""
    one, other = structure(tables), structure([run])
    mine, theirs = _list_calls(one), _list_calls(other)
    score = _scores(_functions(one, mine), _functions(other, theirs))
    pairs = uncross_pairs(score, align(score))
    twins: dict[str, set[str]] = {}
    for i, j in pairs:
        twins.setdefault(theirs[j][0], set()).add(mine[i][0])
    sites = {site: next(iter(each)) for site, each in twins.items() if len(each) == 1}
    alike = sum(theirs[j][0] in sites for _, j in pairs)
    return sites, Matched(alike, len(theirs))


def _list_calls(s: Structure) -> list[Node]:
    """Return the calls of a program in the order of its loops."""

    def inside(loop: Loop) -> Iterator[int]:
        for child in loop.children:
            yield from inside(child) if isinstance(child, Loop) else (child,)

    return [s.nodes[v] for v in inside(s.tree)]


@dataclass(frozen=True)
class _Function:
    """What a call does, whatever its address.

    ways: whether its partners are smaller ranks (-1) or larger ones (1); tags, sizes: of its
    messages and their elements; depth: of the phases around it; most: how often
    a rank comes to it at most, at every count, all messages of a loop over partners being one.
    """

    op: str
    ways: frozenset[int]
    tags: frozenset[int]
    sizes: frozenset[int]
    depth: frozenset[int]
    most: frozenset[int]

    def likeness(self, other: _Function) -> int:
        """Return 0 for another operation or direction, else 1 and how many other facts agree."""
        if self.op != other.op or self._opposes(other):
            return 0
        facts = ("tags", "sizes", "depth", "most")
        return 1 + sum(bool(getattr(self, each) & getattr(other, each)) for each in facts)

    def _opposes(self, other: _Function) -> bool:
        return bool(self.ways and other.ways and not self.ways & other.ways)


def _functions(s: Structure, nodes: Sequence[Node]) -> list[_Function]:
    """Return what the calls of a structure do."""
    tags: dict[Node, set[int]] = {node: set() for node in nodes}
    sizes: dict[Node, set[int]] = {node: set() for node in nodes}
    ways: dict[Node, set[int]] = {node: set() for node in nodes}
    for t in s.tables:
        peer = np.array([group.peer for group in t.groups], dtype=np.int64)[t.group]
        way = np.where(peer >= 0, np.sign(peer - t.rank), 0)
        for k, nbytes, sign in np.unique(np.stack([t.group, t.elem_bytes, way]), axis=1).T.tolist():
            group = t.groups[k]
            node = (group.site, group.op)
            tags[node].add(group.tag)
            sizes[node].add(nbytes)
            ways[node].update({sign} - {0})
    events_of = _events(s)
    number = {node: k for k, node in enumerate(s.nodes)}
    functions = []
    for node in nodes:
        v = number[node]
        loops = s.nest.around[v, : s.nest.depth[v] + 1].tolist()
        walks = [s.nest.loops[k].entries for k in loops if k in s.walks]
        most: dict[int, int] = {}
        for (n, _), times in (walks[0] if walks else events_of[v]).items():
            most[n] = max(times, most.get(n, 0))
        facts = (ways[node], tags[node], sizes[node], {len(loops) - len(walks)}, most.values())
        functions.append(_Function(node[1], *map(frozenset, facts)))
    return functions


def _events(s: Structure) -> dict[int, dict[Member, int]]:
    """Return node -> how often each rank makes its call."""
    number = {node: k for k, node in enumerate(s.nodes)}
    events_of: dict[int, dict[Member, int]] = {v: {} for v in number.values()}
    for t in s.tables:
        for rank, _, v, events, _ in t.edges.tolist():
            if v >= 0:
                of = events_of[number[t.nodes[v]]]
                of[t.np, rank] = of.get((t.np, rank), 0) + events
    return events_of


def _scores(mine: Sequence[_Function], theirs: Sequence[_Function]) -> Ints:
    """Return how alike calls are, shape (mine, theirs)."""
    rows = [[one.likeness(other) for other in theirs] for one in mine]
    return np.array(rows, dtype=np.int64).reshape(len(mine), len(theirs))


def align(score: Ints) -> list[Pair]:
    """Return the pairs that every best alignment of two sequences has.

    score: shape (first, second), of pairs; 0 for those that cannot be. Pairs keep the order of
    both sequences, their sum is the largest.
    """
    before = _sums(score)
    behind = _sums(score[::-1, ::-1])[::-1, ::-1]
    best = before[-1, -1]
    through = before[:-1, :-1] + score + behind[1:, 1:]
    possible = (score > 0) & (through == best)
    # A call that may as well stay alone is in no pair that is certain.
    certain = possible & (possible.sum(0) == 1) & (possible.sum(1) == 1)[:, None]
    certain &= _is_needed(before, behind, best)
    rows, columns = np.nonzero(certain)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def uncross_pairs(score: Ints, pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs in order, and among what is left those that are the best of both.

    No rank of a run may make two calls one after the other: then nothing tells their order. What
    stands the other way round and could change partners is in no pair.
    """
    rest = score.copy()
    for i, j in pairs:
        rest[i], rest[:, j] = 0, 0
    best = (rest > 0) & (rest == rest.max(0, initial=0)) & (rest == rest.max(1, initial=0)[:, None])
    best &= (best.sum(0) == 1) & (best.sum(1) == 1)[:, None]
    candidates = [*pairs, *zip(*(side.tolist() for side in np.nonzero(best)), strict=True)]
    return [
        (i, j)
        for i, j in candidates
        if not any((i - k) * (j - m) < 0 and score[i, m] >= score[i, j] for k, m in candidates)
    ]


def _is_needed(before: Ints, behind: Ints, best: int) -> Bools:
    """Tell which of the first sequence no best alignment leaves out, shape (first, 1)."""
    without = (before[:-1] + behind[1:]).max(axis=1)
    return np.asarray(without < best)[:, None]


def _sums(score: Ints) -> Ints:
    """Return the largest sum of pairs among the first i and the first j of both."""
    out = np.zeros((score.shape[0] + 1, score.shape[1] + 1), dtype=np.int64)
    for i, row in enumerate(score):
        paired = np.maximum(out[i, 1:], out[i, :-1] + row)
        out[i + 1, 1:] = np.maximum.accumulate(paired)
    return out
