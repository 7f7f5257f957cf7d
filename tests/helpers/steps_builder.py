"""Make Steps by hand, call by call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.base.ops import ISENDRECV_RECV
from p3s.program.order.calls import AT_ONCE, MANY, op_of, requests_of
from p3s.program.order.completions import Outstanding
from p3s.program.order.pairs import pair
from p3s.simulate.steps import RECEIVES, REQUESTS, WAITS, Op, Steps

#: Columns of Steps that a call fills, with their values where nothing is said.
_DEFAULTS = {
    "op": 0,
    "peer": -1,
    "tag": -1,
    "comm": 0,
    "bytes": 0,
    "peer2": -1,
    "tag2": -1,
    "bytes2": 0,
    "call": 0,
    "work_ns": 0.0,
    "number": 0,
    "row": -1,
    "weight": 1.0,
    "turn": 0,
}


class Builder:
    """Collects the calls of some ranks and makes Steps of them.

    members: world ranks of each communicator; 0 is all n unless it is said otherwise. ranks:
    those that the steps are of (default: all n; one may have no steps).

        b = Builder(2)
        for rank in range(2):
            b.add(rank, "MPI_Irecv", 1 - rank, 1024)
            b.add(rank, "MPI_Send", 1 - rank, 1024, work_ns=1e6)
            b.add(rank, "MPI_Wait")
            b.add(rank, "MPI_Allreduce", nbytes=8)
        steps = b.build()
    """

    def __init__(
        self,
        n: int,
        members: Mapping[int, Sequence[int]] | None = None,
        ranks: Sequence[int] | None = None,
    ) -> None:
        self.n = n
        self.members = {0: np.arange(n, dtype=np.int64)}
        self.members.update(
            {comm: np.asarray(them, dtype=np.int64) for comm, them in (members or {}).items()}
        )
        self.ranks = sorted(set(range(n) if ranks is None else ranks))
        self._rows: dict[int, list[dict[str, float]]] = {rank: [] for rank in self.ranks}
        self._done: dict[int, list[list[int]]] = {rank: [] for rank in self.ranks}
        self._open = {rank: Outstanding() for rank in self.ranks}
        self._halves: dict[int, int] = {}
        self._calls: dict[str, int] = {}

    def add(
        self,
        rank: int,
        call: str,
        peer: int = -1,
        nbytes: int = 0,
        *,
        tag: int | None = None,
        comm: int = 0,
        work_ns: float = 0.0,
        peer2: int = -1,
        tag2: int | None = None,
        bytes2: int | None = None,
        number: int | None = None,
        done: Sequence[int] | None = None,
        row: int = -1,
        weight: float = 1.0,
        turn: int = 0,
    ) -> int:
        """Append a call and return its number on its rank (for ``done``).

        peer: destination, source, or root of a collective. The receive half of MPI_Sendrecv:
        peer2, tag2 (as tag), bytes2 (as nbytes). tag: 0 for messages. number: how many requests
        a completion completes; default 1, of MPI_Waitall all, of MPI_Waitsome 1. done: which ones;
        default the oldest that are outstanding. "REST" is computation without a call.
        """
        if rank not in self._rows:
            raise P3SError(f"steps: rank {rank} is none of those the builder was made for")
        op = Op.REST if call == "REST" else op_of(call)
        if op is None:
            raise P3SError(f"steps: {call} is no call that replay executes")
        rows, open_ = self._rows[rank], self._open[rank]
        here = len(rows)
        message = op in RECEIVES or op.name.endswith("SEND")
        tag = (0 if message else -1) if tag is None else tag
        row_: dict[str, float] = {
            **_DEFAULTS,
            "peer": peer,
            "tag": tag,
            "comm": comm,
            "bytes": nbytes,
            "call": self._calls.setdefault(call, len(self._calls)),
            "work_ns": work_ns,
            "row": row,
            "weight": weight,
            "turn": turn,
        }
        if op == Op.SENDRECV:
            row_ |= {
                "peer2": peer if peer2 < 0 else peer2,
                "tag2": tag if tag2 is None else tag2,
                "bytes2": nbytes if bytes2 is None else bytes2,
            }
        found: list[int] = []
        if op in WAITS:
            op, many, found = self._complete(rank, op, call, number, done)
            row_["number"] = many
        row_["op"] = int(op)
        if call.startswith("MPI_Isendrecv") and call != ISENDRECV_RECV:
            self._halves[rank] = here
        elif requests_of(call):
            both = (
                [self._halves.pop(rank)] if call == ISENDRECV_RECV and rank in self._halves else []
            )
            open_.post(here, [] if call in AT_ONCE else [*both, here], op in RECEIVES)
        rows.append(row_)
        self._done[rank].append(found)
        return here

    def _complete(
        self, rank: int, op: Op, call: str, number: int | None, done: Sequence[int] | None
    ) -> tuple[Op, int, list[int]]:
        open_ = self._open[rank]
        if done is None:
            most = open_.number() if call in ("MPI_Waitall", "MPI_Testall") else 1
            return open_.complete(op, most if number is None else number)
        for step in done:
            if (
                not 0 <= step < len(self._rows[rank])
                or self._rows[rank][step]["op"] not in REQUESTS
            ):
                raise P3SError(
                    f"steps: rank {rank}: {call} completes step {step}, which leaves "
                    "no request behind"
                )
        if op == Op.WAIT:
            for step in done:
                open_.free.pop(step, None)
                open_.receives.discard(step)
            return op, len(done), list(done)
        some = 1 if number is None or call not in MANY else number
        return op, some, list(done)

    def build(self) -> Steps:
        """Return the steps, sends and receives paired."""
        rows = [row for rank in self.ranks for row in self._rows[rank]]
        lengths = [len(self._rows[rank]) for rank in self.ranks]
        start = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        done = [
            step + int(start[i])
            for i, rank in enumerate(self.ranks)
            for them in self._done[rank]
            for step in them
        ]
        counts = [len(them) for rank in self.ranks for them in self._done[rank]]
        columns: dict[str, Any] = {
            name: np.asarray(
                [row[name] for row in rows],
                dtype=np.float64 if isinstance(value, float) else np.int64,
            )
            for name, value in _DEFAULTS.items()
        }
        none = np.full(len(rows), -1, dtype=np.int64)
        steps = Steps(
            n=self.n,
            ranks=np.asarray(self.ranks, dtype=np.int64),
            start=start,
            **columns,
            done_start=_sums(counts),
            done=np.asarray(done, dtype=np.int64),
            to=none,
            source=none,
            calls=tuple(self._calls),
            members=self.members,
        )
        to, source = pair(steps)
        return replace(steps, to=to, source=source)


def _sums(counts: Sequence[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def steps_of_lists(
    n: int,
    lists: Mapping[int, Sequence[tuple[Any, ...]]],
    *,
    members: Mapping[int, Sequence[int]] | None = None,
) -> Steps:
    """Return the steps of ranks from lists of (call, peer, bytes[, tag[, work_ns]])."""
    builder = Builder(n, members)
    for rank, calls in lists.items():
        for call, peer, nbytes, *rest in calls:
            tag = rest[0] if rest else None
            builder.add(
                rank, call, peer, nbytes, tag=tag, work_ns=rest[1] if len(rest) > 1 else 0.0
            )
    return builder.build()
