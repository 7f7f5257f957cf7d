"""The time, calls and bytes of a run by call path and rank: what profiles are written from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from p3s.base import ops
from p3s.base.ops import kind_of
from p3s.capture.callpath import stack
from p3s.formats.exported import ExportResult
from p3s.formats.run import Run, name_call

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_NS_PER_S = 1e9


@dataclass(frozen=True)
class Node:
    """A call path: what is called last, and where. ``parent``: number of the path before, -1 none.

    ``line``: of an MPI call the line that makes it, of a function 0; ``mpi``: whether it is a call
    of MPI.
    """

    parent: int
    name: str
    file: str
    line: int
    mpi: bool


@dataclass(frozen=True)
class Profile:
    """A profile: a row per node, parents first, a column per rank.

    ``time_s``: in the node itself, not in those below; ``visits``: of MPI calls; ``sent`` and
    ``received``: bytes, of collectives what docs/capture-format.md counts, as sent.
    """

    nodes: tuple[Node, ...]
    time_s: Floats
    visits: Floats
    sent: Floats
    received: Floats


def profile_of(run: Run, result: ExportResult) -> Profile:
    """Return the profile of a run; takes down what it does not say."""
    result.notes += [
        "time between calls is told of the function that calls next; functions have no visits"
    ]
    if run.simulated:
        result.notes.append(
            "times of the simulated iterations, times their number in the whole run; the "
            "prediction (p3s predict) also has what a simulation lacks"
        )
    elif run.trace.counted_events:
        result.lacks("MPI calls", "the capture only counted them", run.trace.counted_events)
    profile = _profile(run)
    result.events, result.records = float(profile.visits.sum()), len(profile.nodes)
    return profile


def _profile(run: Run) -> Profile:
    tree = _Tree(run)
    call_node, caller = tree.of_calls()
    number, ranks = len(tree.nodes), run.trace.np
    shape = (number, ranks)
    time_s, visits, sent, received = (np.zeros(shape) for _ in range(4))
    size = np.array([call.bytes for call in run.trace.calls], dtype=np.float64)
    kinds = [kind_of(call.op) for call in run.trace.calls]
    gives = np.array([kind in (ops.SEND, ops.COLLECTIVE) for kind in kinds], dtype=bool)
    takes = np.array([kind == ops.RECV for kind in kinds], dtype=bool)
    whole = np.array([call.op not in ops.HALVES for call in run.trace.calls], dtype=np.float64)
    for rank in run.trace.ranks:
        call, weight = rank.call, run.weight(rank)
        at, caller_node = call_node[call], caller[call]
        inside = rank.elapsed_ns * weight / _NS_PER_S
        before = run.before(rank) * weight / _NS_PER_S
        k = rank.rank
        time_s[:, k] += np.bincount(at, weights=inside, minlength=number)
        time_s[:, k] += np.bincount(caller_node, weights=before, minlength=number)
        visits[:, k] = np.bincount(at, weights=weight * whole[call], minlength=number)
        for column, counts_for in ((sent, gives), (received, takes)):
            moved = size[call] * counts_for[call] * weight
            column[:, k] = np.bincount(at, weights=moved, minlength=number)
    return Profile(tuple(tree.nodes), time_s, visits, sent, received)


@dataclass
class _Tree:
    """The call paths of a run; the first is the program, so that all have one root."""

    run: Run
    nodes: list[Node] = field(default_factory=list)
    known: dict[Node, int] = field(default_factory=dict)

    def of_calls(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the node of each call of the run, and that of the function that makes it."""
        name = self.run.program[0].rpartition("/")[2] if self.run.program else "program"
        root = self._node(Node(-1, name, "", 0, False))
        pairs_of_nodes = []
        for call in self.run.trace.calls:
            frames = stack(self.run.trace.sites[call.site].frames, self.run.places)
            at = root
            for where in reversed(frames):
                at = self._node(Node(at, where.function or where.frame, where.file, 0, False))
            file, line = (frames[0].file, frames[0].line) if frames else ("", 0)
            pairs_of_nodes.append((self._node(Node(at, name_call(call.op), file, line, True)), at))
        pairs = np.array(pairs_of_nodes, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _node(self, node: Node) -> int:
        if node not in self.known:
            self.known[node] = len(self.nodes)
            self.nodes.append(node)
        return self.known[node]
