"""Labels for events where the call site does not say what they are."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p3s.base import ops
from p3s.capture.types import RankTrace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.capture import RunTrace

    Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Label:
    """What tells the events of a label from others; -1 (``nbytes``, ``tag``) where nothing does.

    ``offset`` is (partner - rank) modulo the number of ranks, -1 without a partner and -3 for
    MPI_PROC_NULL; all but ``site`` and ``op`` are -1 where the site is not shared. ``order``: of
    labels by order alone (SequenceNodes.in_order), else -1.
    """

    site: str
    op: str
    tag: int = -1
    nbytes: int = -1
    offset: int = -1
    order: int = -1


@dataclass
class SequenceNodes:
    """Labels of a run's events; ``labels`` grows as ranks are asked for, in that order.

    ``shared``: indices of the sites (RunTrace.sites) at which events are told apart.
    """

    run: RunTrace
    shared: frozenset[int]
    labels: list[Label] = field(default_factory=list)
    _number: dict[Label, int] = field(default_factory=dict, repr=False)

    def of(self, rank: int, trace: RankTrace | None = None) -> Ints:
        """Return the label (index of ``labels``) of each event of a rank."""
        trace = self.run.ranks[rank] if trace is None else trace
        return self._numbered(
            trace, {call: self._label(call, rank) for call in np.unique(trace.call).tolist()}
        )

    def in_order(self, rank: int, trace: RankTrace | None = None) -> Ints:
        """Return labels that ranks and process counts have in common.

        At a shared site an event is the k-th different thing (tag, bytes, relative partner) that
        its operation did there on this rank: it is the same place as long as ranks do the same
        things for the first time in the same order, whatever their sizes and partners are.
        """
        trace = self.run.ranks[rank] if trace is None else trace
        used, first = np.unique(trace.call, return_index=True)
        things: dict[tuple[str, str], dict[Label, int]] = {}
        named = {}
        for call in used[np.argsort(first)].tolist():
            label = self._label(call, rank)
            if self.run.calls[call].site in self.shared:
                seen = things.setdefault((label.site, label.op), {})
                order = seen.setdefault(label, len(seen))
                label = Label(label.site, label.op, order=order)
            named[call] = label
        return self._numbered(trace, named)

    def _numbered(self, trace: RankTrace, named: dict[int, Label]) -> Ints:
        number = np.zeros(len(self.run.calls), dtype=np.int64)
        for call, label in named.items():
            if label not in self._number:
                self._number[label] = len(self.labels)
                self.labels.append(label)
            number[call] = self._number[label]
        return number[trace.call]

    def _label(self, call: int, rank: int) -> Label:
        c = self.run.calls[call]
        site = self.run.sites[c.site].key if c.site >= 0 else ""
        kind = ops.kind_of(c.op)
        if c.site not in self.shared or kind == ops.COMPLETION:
            return Label(site, c.op)
        offset = (c.peer - rank) % self.run.np if c.peer >= 0 else c.peer
        return Label(site, c.op, c.tag, c.bytes, offset)


def sequence_nodes(run: RunTrace, shared: Set[int] | None = None) -> SequenceNodes:
    """Return labels that tell events of one shared site apart by what they do.

    At the sites in ``shared`` an event is its operation, tag, bytes and relative partner;
    elsewhere site and operation. Without ``shared`` these are the sites of :func:`shared_sites`.
    """
    return SequenceNodes(run, frozenset(shared_sites(run) if shared is None else shared))


def shared_sites(run: RunTrace) -> set[int]:
    """Return the sites that stand for several places: one line through which all calls go.

    A place makes one call; the halves of MPI_Sendrecv, and requests of several kinds that one
    MPI_Startall starts, are one.
    """
    seen: dict[int, set[str]] = {}
    for call in run.calls:
        seen.setdefault(call.site, set()).add(ops.place_of(call.op))
    return {site for site, made in seen.items() if site >= 0 and len(made) > 1}
