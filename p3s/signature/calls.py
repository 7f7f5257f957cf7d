"""The calls of a run under the numbers of its tables: groups, nodes, rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from p3s.base.ops import RECV, SEND, kind_of

if TYPE_CHECKING:
    from p3s.capture import RunTrace

PROC_NULL = -3


@dataclass(frozen=True)
class Group:
    """A distinct (site, operation, communicator, partner, tag, root) of one process count."""

    site: str
    op: str
    comm: int
    peer: int
    tag: int
    root: int

    @property
    def kind(self) -> str:
        """The kind of the operation (p3s.base.ops)."""
        return kind_of(self.op)


class Calls:
    """Numbers of a run's calls: of group, node and row (calls the table does not tell apart)."""

    def __init__(self, run: RunTrace, site: list[str]) -> None:
        calls = run.calls
        groups: dict[tuple[str, str, int, int, int, int], int] = {}
        group = np.empty(len(calls), dtype=np.int64)
        self.null = np.zeros(len(calls), dtype=bool)
        for i, c in enumerate(calls):
            self.null[i] = c.peer == PROC_NULL and kind_of(c.op) in (SEND, RECV)
            key = (site[i], c.op, c.comm, c.peer, c.tag, c.root)
            group[i] = -1 if self.null[i] else groups.setdefault(key, len(groups))
        self.inside = np.array([getattr(c, "team", 0) > 1 for c in calls], dtype=bool)
        self.starts = np.array([c.op.startswith("MPI_Init") for c in calls], dtype=bool)
        nodes: dict[tuple[str, str], int] = {}
        self.node = np.array(
            [nodes.setdefault((site[i], c.op), len(nodes)) for i, c in enumerate(calls)],
            dtype=np.int32,
        )
        distinct: dict[tuple[int, int, int], int] = {}
        self.row = np.array(
            [
                distinct.setdefault((int(group[i]), c.bytes, max(c.elem_bytes, 1)), len(distinct))
                for i, c in enumerate(calls)
            ],
            dtype=np.int64,
        )
        self.rows = np.array(list(distinct), dtype=np.int64).reshape(-1, 3)
        self.groups = [Group(*k) for k in groups]
        self.nodes = list(nodes)
