"""Collectives that go over nodes first: MPICH's compositions and Open MPI 5's "han".

MPICH: compositions of 5.0.1, src/mpid/ch4/src/ch4_coll_impl.h, chosen by
maint/tuning/coll/ch4/generic.json (the same in 4.1.2 and 4.2.3; 4.0.2 differs only where both
lead to the same), and src/mpi/coll/{barrier,scan}/*_intra_smp.c where those are off. What MPICH
does through shared memory inside a node is told as the messages that it would send otherwise.

Open MPI 5: component "han" (priority 35, on for communicators on several nodes with more than
one member on some node), read from 5.0.9, ompi/mca/coll/han/. It works on segments of 64 KiB with
"libnbc" among nodes and "tuned" inside; the stages of neighbouring segments overlap there, here
they follow each other in the order in which it starts them. Without as many members on every
node it leaves all but Allreduce and Barrier to "tuned".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints, starts
from p3s.program.collectives.job import whole
from p3s.program.collectives.writer import Writer

#: Open MPI's han cuts a vector into segments of this many bytes (coll_han_*_segsize).
SEGMENT = 65536
#: Segments times nodes; segments grow beyond that.
MOST_PARTS = 4096

#: write(view, call, at, root, blocking): a collective of a part of the members.
Part = Callable[[Writer, str, Ints, int, bool], None]


@dataclass(frozen=True)
class Layout:
    """Members by node, nodes in the order of their first members."""

    groups: tuple[Ints, ...]
    node: Ints
    place: Ints

    @staticmethod
    def of(nodes: Ints) -> Layout:
        """Return the layout of members on these nodes."""
        _, first, number = np.unique(nodes, return_index=True, return_inverse=True)
        rank_of = np.empty(len(first), dtype=np.int64)
        rank_of[np.argsort(first)] = np.arange(len(first))
        node = rank_of[number]
        groups = tuple(np.flatnonzero(node == i) for i in range(len(first)))
        place = np.empty(len(nodes), dtype=np.int64)
        for group in groups:
            place[group] = np.arange(len(group))
        return Layout(groups, node, place)

    @property
    def shared(self) -> bool:
        """Whether any node has several members."""
        return len(self.groups) < len(self.node)

    @property
    def even(self) -> bool:
        """Whether all nodes have as many members."""
        return len({len(group) for group in self.groups}) == 1

    @property
    def consecutive(self) -> bool:
        """Whether the members of every node follow each other."""
        return bool((np.diff(self.node) >= 0).all())

    def across(self, place: int) -> Ints:
        """Return the member of every node that has this place on it."""
        return np.array([group[place] for group in self.groups])


@dataclass(frozen=True)
class Levels:
    """Writes collectives inside nodes and among nodes."""

    w: Writer
    layout: Layout
    part: Part
    blocking: bool = True

    def inside(
        self,
        call: str,
        nbytes: int,
        root: int = 0,
        *,
        first: int = 0,
        of: tuple[int, ...] | None = None,
    ) -> None:
        """Write a call in every node (or those of ``of``) that has several members."""
        for number, group in enumerate(self.layout.groups):
            if len(group) > 1 and (of is None or number in of):
                view = self.w.among(group, [(first, nbytes)])
                self.part(view, call, whole(len(group), nbytes), root, self.blocking)

    def among(
        self,
        call: str,
        nbytes: int,
        root: int = 0,
        *,
        place: int = 0,
        first: int = 0,
        blocking: bool = True,
    ) -> None:
        """Write a call of the members with the same place on all nodes."""
        members = self.layout.across(place)
        if len(members) > 1:
            view = self.w.among(members, [(first, nbytes)])
            self.part(view, call, whole(len(members), nbytes), root, blocking and self.blocking)


def mpich(levels: Levels, call: str, at: Ints, root: int) -> bool:
    """Write a call by MPICH's composition; False: it is made without regard to nodes."""
    layout, p, n = levels.layout, len(at) - 1, int(at[-1])
    if not layout.shared:
        return False
    if call == "barrier" and levels.blocking:
        levels.inside("barrier", 0)
        levels.among("barrier", 0)
        levels.inside("bcast", 1)
        return True
    if call == "scan" and layout.consecutive:
        _scan(levels, n)
        return True
    if call == "allreduce" and levels.blocking and len(layout.groups) > 1:
        levels.inside("reduce", n)
        levels.among("allreduce", n)
        levels.inside("bcast", n)
        return True
    if call not in ("bcast", "reduce"):
        return False
    home, place = int(layout.node[root]), int(layout.place[root])
    others = tuple(i for i in range(len(layout.groups)) if i != home)
    if call == "reduce" and levels.blocking and n > 2048:
        levels.inside("reduce", n)
        levels.among("reduce", n)
        if root:
            levels.w.move(0, root, 0, n)
    elif call == "reduce":  # the root's node is last
        levels.inside("reduce", n, of=others)
        levels.among("reduce", n, home)
        levels.inside("reduce", n, place, of=(home,))
    elif not levels.blocking or p < 8 or n < 12288:  # the root's node is first
        if place:
            levels.w.move(root, int(layout.groups[home][0]), 0, n)
        levels.among("bcast", n, home)
        levels.inside("bcast", n)
    elif n >= (524288 if p & (p - 1) == 0 else 12288):
        return False
    else:
        if place:
            levels.inside("bcast", n, place, of=(home,))
        levels.among("bcast", n, home)
        levels.inside("bcast", n, of=others if place else None)
    return True


def _scan(levels: Levels, n: int) -> None:
    """Scan inside nodes, scan of the nodes' sums, and what comes from the nodes before."""
    w, groups = levels.w, levels.layout.groups
    levels.inside("scan", n)
    for group in groups:
        if len(group) > 1:
            w.move(group[-1], group[0], 0, n)
    levels.among("scan", n)
    leaders = levels.layout.across(0)
    w.send(leaders[:-1], leaders[1:], 0, n)
    w.recv(leaders[1:], leaders[:-1], n)
    if levels.blocking:
        levels.inside("bcast", 4)  # whether anything comes
    levels.inside("bcast", n, of=tuple(range(1, len(groups))))


#: Stages of a segment, in the order in which they start in a turn: so many turns behind, among the
#: nodes or inside of them, which call.
_STAGES = {
    "allreduce": (
        (2, True, "bcast"),
        (1, True, "reduce"),
        (0, False, "reduce"),
        (3, False, "bcast"),
    ),
    "bcast": ((0, True, "bcast"), (1, False, "bcast")),
    "reduce": ((1, True, "reduce"), (0, False, "reduce")),
}


def han(levels: Levels, call: str, at: Ints, root: int, element: int) -> bool:
    """Write a call as Open MPI 5's han does; False: it is left to "tuned"."""
    layout = levels.layout
    if not layout.shared or len(layout.groups) == 1:
        return False
    n = int(at[-1])
    home, place = int(layout.node[root]), int(layout.place[root])
    cuts = _segments(n, element, max(MOST_PARTS // len(layout.groups), 8))
    if call == "barrier":
        levels.inside("barrier", 0)
        levels.among("barrier", 0)
        levels.inside("barrier", 0)
        return True
    if call in _STAGES and (layout.even or call == "allreduce"):
        for turn in range(len(cuts) + max(behind for behind, _, _ in _STAGES[call])):
            for behind, up, stage in _STAGES[call]:
                if not 0 <= turn - behind < len(cuts):
                    continue
                first, size = cuts[turn - behind]
                if up:
                    levels.among(stage, size, home, place=place, first=first, blocking=False)
                else:
                    levels.inside(stage, size, place, first=first)
        return True
    if not layout.even:
        return False
    if call in ("gather", "scatter", "allgather"):
        _blocks(levels, call, at, home, place)
        return True
    return False


def _segments(n: int, element: int, most: int) -> list[tuple[int, int]]:
    step = max(SEGMENT // element, -(-n // (most * element)), 1) * element
    return [(lo, min(step, n - lo)) for lo in range(0, n, step)]


def _blocks(levels: Levels, call: str, at: Ints, home: int, place: int) -> None:
    """Blocks of a node travel together between nodes; gather with "tuned", scatter by libnbc."""
    layout, sizes = levels.layout, np.diff(at)

    def table(members: Ints) -> list[tuple[int, int]]:
        return [(int(at[m]), int(sizes[m])) for m in members]

    everything = [piece for group in layout.groups for piece in table(group)]
    cut = starts([sizes[group].sum() for group in layout.groups])
    across = layout.across(place if call != "allgather" else 0)

    def inner(name: str, root: int) -> None:
        for group in layout.groups:
            if len(group) > 1:
                inside = starts(sizes[group])
                levels.part(levels.w.among(group, table(group)), name, inside, root, True)

    if call == "scatter":
        levels.part(levels.w.among(across, everything), "scatter", cut, home, False)
        inner("scatter", place)
        return
    inner("gather", place if call == "gather" else 0)
    levels.part(
        levels.w.among(across, everything),
        call,
        cut,
        home if call == "gather" else 0,
        call == "gather",
    )
    if call == "allgather":
        levels.inside("bcast", int(at[-1]))
