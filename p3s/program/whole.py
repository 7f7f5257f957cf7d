"""The whole run of a scaled trace, one rank after the other: memory holds one rank's events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import SENDRECV_RECV
from p3s.program.calls import PLAIN, Block, RankProgram, Rows, Tags, assemble, pairs_of
from p3s.program.collectives.rules import Library
from p3s.program.order.assemble import links
from p3s.program.order.columns import Rows as TraceRows
from p3s.program.order.completions import Sample, preferences
from p3s.program.order.cut import Part
from p3s.program.order.pairs import row_channels
from p3s.program.order.reasons import REASON_TEXT, Reason, reasons_of
from p3s.program.order.sequence import Kind, calls_of, kinds_in_order, sample_of
from p3s.program.scaled import RECV, SEND, Bools, Ints, ScaledTrace, read_order, read_scaled
from p3s.program.whole_collectives import Collectives
from p3s.simulate.steps import Op

#: Kinds of ranks are kept when all their events together are no more than this.
_KEPT_EVENTS = 4_000_000
_INIT = ("MPI_Init", "MPI_Init_thread")

#: Says whether a collective can stay a call: its MPI name, and whether all ranks are in it.
Keep = Callable[[str, bool], bool]


class WholeRun:
    """All events of all ranks of a scaled trace.

    library: whose algorithms collectives follow that become messages; keep: those that do not.
    trace: what the directory holds, read before. node_of: node of every rank, default: one each.
    ``left_out``: (MPI call, why) -> events of the run that are not in the programs; computation
    before them stays. Raises P3SError where the order of events is not known.
    """

    def __init__(
        self,
        scaled_dir: Path,
        library: Library,
        keep: Keep,
        trace: ScaledTrace | None = None,
        node_of: Ints | None = None,
    ) -> None:
        self.trace = trace or read_scaled(scaled_dir)
        order = read_order(scaled_dir) if (Path(scaled_dir) / "order.json").exists() else None
        if order is None or order.loops is None:
            raise P3SError(
                f"{scaled_dir}: the order of events is not known, so there is no whole "
                "run to write; write a few iterations of each loop: --turns 1"
            )
        if len(np.unique(self.trace.rank)) != self.trace.n:
            raise P3SError(
                f"{scaled_dir}: does not hold all {self.trace.n} ranks; run p3s scale "
                f"-n {self.trace.n}"
            )
        self.order = order
        self.n = self.trace.n
        self.calls = calls_of(self.trace)
        self.reason = reasons_of(self.trace)
        self.work = np.where(self.trace.is_op(*_INIT), 0.0, self.trace.before)
        self._match()
        self._kinds: list[Kind] | None = []
        node_of = np.arange(self.n, dtype=np.int64) if node_of is None else node_of
        self.collectives = Collectives(
            self.trace, self.reason, library, keep, len(self.tags), node_of
        )
        self._first_pass()
        self.left_out = self._count_left_out()

    @property
    def events(self) -> int:
        """Events of the run, over all ranks."""
        return int(self.trace.repeat.sum())

    def _match(self) -> None:
        """Number the channels; find those into which one side sends more than the other takes."""
        trace = self.trace
        runs = (self.reason == Reason.EXECUTED) & (trace.repeat > 0)
        sends, receives = (runs & trace.is_kind(kind) for kind in (SEND, RECV))
        self.out, self.into, tag = row_channels(trace, sends, receives)
        number = int(max(self.out.max(initial=-1), self.into.max(initial=-1))) + 1
        amount = trace.repeat.astype(np.float64)
        sent, taken = (
            np.bincount(ch[ch >= 0], weights=amount[ch >= 0], minlength=number)
            for ch in (self.out, self.into)
        )
        self.most = np.minimum(sent, taken).astype(np.int64)
        # Of the rows of the side that has more, some events have no partner.
        self.short = np.zeros(trace.rows, dtype=bool)
        for channel, all_ in ((self.out, sent), (self.into, taken)):
            has = np.flatnonzero(channel >= 0)
            self.short[has] |= all_[channel[has]] > self.most[channel[has]]
        message = sends | receives
        self.tags = Tags(trace.comm[message], tag[message])
        self.tag = np.full(trace.rows, -1, dtype=np.int64)
        self.tag[message] = self.tags.of(trace.comm[message], tag[message])
        self.tag_of_rows = tag

    def kinds(self) -> Iterator[Kind]:
        """Yield kinds of ranks, with completions as the first pass has found them."""
        if self._kinds is not None:
            yield from self._kinds
            return
        for kind in kinds_in_order(self.trace, self.order, self.calls):
            yield self._preferred(kind)

    def _preferred(self, kind: Kind) -> Kind:
        mine = slice(int(kind.first[0]), int(kind.first[0]) + kind.rows)
        return replace(kind, some=kind.some or bool(self.calls.prefer[mine].any()))

    def _first_pass(self) -> None:
        trace, calls = self.trace, self.calls
        samples: list[Sample] = []
        total = 0
        for kind in kinds_in_order(trace, self.order, calls):
            total += len(kind.row)
            if self._kinds is not None:
                self._kinds = [*self._kinds, kind] if total <= _KEPT_EVENTS else None
            self.collectives.learn(kind)
            samples.append(sample_of(trace, kind, calls))
        found = preferences(samples)
        prefer = np.zeros(trace.rows, dtype=np.int64)
        for slot, what in found.items():
            prefer[(trace.slot == slot) & (calls.wants > 0)] = what
        self.calls = replace(calls, prefer=prefer)
        if self._kinds is not None:
            self._kinds = [self._preferred(kind) for kind in self._kinds]

    def _count_left_out(self) -> dict[tuple[str, str], float]:
        trace = self.trace
        found: dict[tuple[str, str], float] = {}

        def add(rows: Ints, why: str, events: Any) -> None:
            for op in np.unique(trace.op[rows]).tolist():
                mine = trace.op[rows] == op
                key = (trace.ops[op], why)
                found[key] = found.get(key, 0.0) + float(np.asarray(events)[mine].sum())

        for code in np.unique(self.reason).tolist():
            reason = Reason(code)
            rows = np.flatnonzero((self.reason == code) & (trace.repeat > 0))
            if reason not in (Reason.EXECUTED, Reason.SET_UP):
                add(rows, REASON_TEXT[reason], trace.repeat[rows])
        for channel in (self.out, self.into):
            rows = np.flatnonzero(self.short & (channel >= 0))
            if not len(rows):
                continue
            totals = np.bincount(
                channel[rows],
                weights=trace.repeat[rows].astype(np.float64),
                minlength=len(self.most),
            )
            share = 1.0 - self.most[channel[rows]] / totals[channel[rows]]
            add(rows, REASON_TEXT[Reason.NO_PARTNER], trace.repeat[rows] * share)
        for call, events in self.collectives.left_out().items():
            found[call, "not all members of the communicator make the call"] = events
        return found

    # ---- programs ----------------------------------------------------------------------
    def programs(self) -> Iterator[RankProgram]:
        """Yield the program of every rank, in no particular order of the ranks."""
        trace = self.trace
        nothing = np.zeros(trace.rows, dtype=bool)
        rows = TraceRows(
            trace, self.calls, self.reason, self.out, self.into, self.tag_of_rows, nothing
        )
        names = (*trace.ops, "MPI_Waitall")
        for kind in self.kinds():
            zero = np.zeros(len(kind.row), dtype=np.int64)
            part = Part(0, np.arange(len(kind.row)), zero, zero, np.zeros((0, 0), dtype=np.int64))
            link = links(kind, part, rows)
            starts = np.concatenate(([0], np.cumsum(link.many)))
            pairs = pairs_of(starts, link.done, link.op, link.number)
            halves = self._halves(kind)
            for rank, first in zip(kind.ranks.tolist(), kind.first.tolist(), strict=True):
                yield self._program(rank, first, kind, pairs, halves, names)

    def _halves(self, kind: Kind) -> Bools:
        """Return which events are the receive half of the MPI_Sendrecv right before them."""
        trace = self.trace
        name = trace.op[int(kind.first[0]) + kind.row]
        second = np.isin(name, [k for k, op in enumerate(trace.ops) if op == SENDRECV_RECV])
        first = self.calls.op[int(kind.first[0]) + kind.row] == int(Op.SENDRECV)
        second[1:] &= first[:-1]
        second[:1] = False
        return np.asarray(second)

    def _program(
        self,
        rank: int,
        first: int,
        kind: Kind,
        pairs: tuple[Ints, Ints],
        halves: Bools,
        names: tuple[str, ...],
    ) -> RankProgram:
        trace = self.trace
        mine = slice(first, first + kind.rows)
        event_row = kind.row
        runs = self.reason[mine] == Reason.EXECUTED
        both = self.calls.op[mine] == int(Op.SENDRECV)
        here = PLAIN[self.calls.op[mine]]
        here = np.where(both, int(Op.ISEND), here)
        here = np.where(runs, here, int(Op.REST))
        columns: dict[str, Any] = {
            "peer": trace.peer[mine],
            "tag": self.tag[mine],
            "bytes": trace.bytes[mine],
            "comm": trace.comm[mine],
            "call": trace.op[mine],
            "work_ns": self.work[mine],
        }
        rows = Rows(names, [])
        rows.add(kind.rows, op=here, **columns)
        # The same without the call: what of a row is left out is only its computation.
        rows.add(kind.rows, op=int(Op.REST), work_ns=columns["work_ns"])
        at = np.where(self._lost(mine, event_row), event_row + kind.rows, event_row)
        live = np.concatenate((here, np.full(kind.rows, int(Op.REST))))[at]
        replaced = np.zeros(len(at), dtype=bool)
        blocks: list[Block] = []
        self.collectives.expand(rank, kind, first, at, live, pairs, rows, replaced, blocks)
        # A send half alone is a plain send; a receive half is followed by the wait for the send.
        half = halves & (live == int(Op.RECV))
        alone = both[event_row] & (live == int(Op.ISEND)) & ~np.append(halves[1:], False)
        for row in np.unique(event_row[alone]).tolist():
            plain = rows.add(1, op=int(Op.SEND), **{k: v[row] for k, v in columns.items()})
            at[alone & (event_row == row)] = plain[0]
        if half.any():
            wait = rows.add(1, op=int(Op.WAIT), call=len(names) - 1)
            blocks += [
                Block(np.flatnonzero(half & (at == row)), np.array([row, int(wait[0])]), prior=1)
                for row in np.unique(at[half]).tolist()
            ]
            replaced |= half
        return assemble(rank, rows.table(), at, replaced, blocks, pairs)

    def _lost(self, mine: slice, event_row: Ints) -> Bools:
        """Return which events have no partner: those beyond what the other side does."""
        lost = np.zeros(len(event_row), dtype=bool)
        short = self.short[mine]
        if not short.any():
            return lost
        for channel in (self.out[mine], self.into[mine]):
            for one in np.unique(channel[short & (channel >= 0)]).tolist():
                at = np.flatnonzero(channel[event_row] == one)
                lost[at[int(self.most[one]) :]] = True
        return lost
