"""From what every process recorded to the measurements of a program, by one clock.

Nodes whose processes run on one kernel share its clock; offset and error are 0 then. Otherwise the
first process of every node exchanges small messages with process 0: its clock minus the peer's
is taken from the shortest round trip, whose half is the error. This is done before and after
passes are made; in between the offset is taken as linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.replay.engine.inner import InnerLoop, Part, Timings
from p3s.replay.engine.results import ProgramResult, median_interval, pass_medians
from p3s.replay.plan.program import Code, Program

ROUNDS = 40


@dataclass(frozen=True)
class Offsets:
    """Clock of every process minus that of process 0, its error, and when it was so (its clock)."""

    offset_ns: Ints
    error_ns: Ints
    when_ns: Ints

    @staticmethod
    def none(size: int) -> Offsets:
        """Return the offsets of processes that share one clock."""
        zero = np.zeros(size, dtype=np.int64)
        return Offsets(zero, zero, zero)


def compare(comm: Any, loop: InnerLoop, kernels: Sequence[str], rounds: int = ROUNDS) -> Offsets:
    """Measure the offsets; all processes of ``comm`` call this together.

    ``kernels``: kernel() of every process.
    """
    first = {name: rank for rank, name in reversed(list(enumerate(kernels)))}
    if len(first) == 1:
        return Offsets.none(comm.size)
    handle = comm.py2f()
    mine = np.zeros(3, dtype=np.int64)
    for name, rank in sorted(first.items(), key=lambda item: item[1]):
        if name == kernels[0]:
            continue
        if comm.rank == rank:
            mine[:] = loop.compare_clocks(handle, 0, True, rounds)
        elif comm.rank == 0:
            loop.compare_clocks(handle, rank, False, rounds)
    everybody = np.zeros((comm.size, 3), dtype=np.int64)
    comm.Allgather(mine, everybody)
    leaders = everybody[[first[name] for name in kernels]]
    return Offsets(*(np.ascontiguousarray(leaders[:, column]) for column in range(3)))


def to_first(times_ns: Floats, before: Offsets, after: Offsets, process: int) -> Floats:
    """Return times of a process's clock in that of process 0, by the offset linear in time."""
    begin, end = int(before.when_ns[process]), int(after.when_ns[process])
    first, last = float(before.offset_ns[process]), float(after.offset_ns[process])
    if end <= begin:
        return times_ns - first
    return times_ns - (first + (last - first) * (times_ns - begin) / (end - begin))


def error_of(before: Offsets, after: Offsets) -> float:
    """Return how far clocks of two processes may be off after to_first, in ns: both errors."""
    return 2.0 * float(max(before.error_ns.max(), after.error_ns.max()))


#: A completion that took longer has waited; one that need not wait takes about 0.1 us.
WAITED_NS = 2000.0
#: A completion that takes less than this share of the transfer was not held up by it.
HELD = 0.1
#: Errors of emulated computation that are kept of a program.
MOST_ERRORS = 100_000
#: What batches of passes are joined in; when events begin is of each pass until then.
COLLECTED = ("pass_ns", "event_ns", "begin_ns", "transfer_ns", "link_ns", "work_error_ns")


def record_columns(program: Program) -> Ints:
    """Return per event in which column of its process begin and end are kept, -1: not at all.

    These are the sampled events, those that messages of the pairing begin and end with, and the
    floods of link programs.
    """
    code = program.events["code"]
    is_recorded = (program.events["sample"] >= 0) | np.isin(code, (Code.LINK_SEND, Code.LINK_RECV))
    pairing = program.pairing
    if pairing is not None:
        for process, places in (
            (pairing.sender, (pairing.sent, pairing.sent_end)),
            (pairing.receiver, (pairing.posted, pairing.received)),
        ):
            for place in places:
                recorded = place >= 0
                is_recorded[program.start[process[recorded]] + place[recorded]] = True
    column = np.full(len(is_recorded), -1, dtype=np.int64)
    number = np.concatenate(([0], np.cumsum(is_recorded)))
    process = np.repeat(np.arange(len(program.start) - 1), np.diff(program.start))
    column[is_recorded] = (number[:-1] - number[program.start[process]])[is_recorded]
    return column


def part_of(program: Program, process: int, record: Ints) -> Part:
    """Return what one process does; ``record`` as recorded() gives it."""
    lists = program.lists[program.list_start[process] : program.list_start[process + 1]]
    mine = slice(int(program.start[process]), int(program.start[process + 1]))
    return Part(
        np.ascontiguousarray(program.events[mine]),
        np.ascontiguousarray(lists, dtype=np.int64),
        np.ascontiguousarray(record[mine]),
        int(program.slots[process]),
    )


class Collector:
    """Gathers the passes of one program on process 0, batch after batch."""

    def __init__(self, program: Program, record: Ints) -> None:
        self.program = program
        self.processes = len(program.start) - 1
        self._sampled = np.flatnonzero(program.events["sample"] >= 0).astype(np.int64)
        self._owner = (
            np.searchsorted(program.start, np.arange(len(program.events)), "right") - 1
        ).astype(np.int64)
        records = [
            int(record[a:b].max(initial=-1)) + 1
            for a, b in zip(program.start[:-1], program.start[1:], strict=True)
        ]
        #: Column of every recorded event when those of all processes are put side by side.
        self._column = record + np.concatenate(([0], np.cumsum(records)))[self._owner]
        self._sampled_at = self._column[self._sampled]
        self._batches: list[ProgramResult] = []
        self.passes = 0
        self.dropped = 0

    @property
    def values(self) -> int:
        """Return how many numbers are held."""
        pairing = self.program.pairing
        messages = 0 if pairing is None else len(pairing.cls)
        return self.passes * (2 * len(self._sampled) + messages + self.processes)

    def add(self, timings: Sequence[Timings], before: Offsets, after: Offsets) -> None:
        """Add a batch, one entry per process; ``before`` is what its clock was set by.

        Passes are thrown away in which a process learned of the start after it had passed.
        """
        late = np.max([one.late_ns for one in timings], axis=0)
        good = late <= 0
        self.dropped += int((~good).sum())
        # The same instant for all: they agreed on it in the clock of process 0.
        start = (timings[0].start_ns - before.offset_ns[0])[good].astype(np.float64)
        recorded_ns, ends, links = [], [], []
        for process, one in enumerate(timings):

            def after_start(values: Ints, process: int = process) -> Floats:
                moved = to_first(values[good].astype(np.float64), before, after, process)
                shape = (-1,) + (1,) * (values.ndim - 1)
                return np.asarray(moved - start.reshape(shape))

            recorded_ns.append(after_start(one.times_ns))
            ends.append(after_start(one.end_ns))
            links.append(after_start(one.links_ns))
        self.passes += int(good.sum())
        sampled_ns = np.concatenate([one.times_ns[good] for one in timings], axis=1)[
            :, self._sampled_at
        ]
        times = np.concatenate(recorded_ns, axis=1)
        self._batches.append(
            ProgramResult(
                int(good.sum()),
                np.stack(ends, axis=1),
                self._sampled,
                (sampled_ns[:, :, 1] - sampled_ns[:, :, 0]).astype(np.float64),
                times[:, self._sampled_at, 0],
                self._transfers(times),
                self._arrivals(times, links),
                error_of(before, after) if good.any() else 0.0,
                np.concatenate([one.errors_ns for one in timings]).astype(np.float64),
            )
        )

    def _transfers(self, times: Floats) -> Floats:
        """Return completion minus the later start of every message.

        NaN where nobody can be seen to have waited for the message alone: the receiving call came
        after the transfer had begun and did not wait either, or the receive was posted after the
        sender had gone on (the message lay there).
        """
        pairing = self.program.pairing
        if pairing is None or not len(pairing.cls):
            return np.zeros((len(times), 0))
        start = self.program.start

        def at(process: Ints, place: Ints) -> Floats:
            return times[:, self._column[start[process] + place]]

        sent, posted = at(pairing.sender, pairing.sent), at(pairing.receiver, pairing.posted)
        receives = at(pairing.receiver, pairing.received)
        send_ends = at(
            pairing.sender, np.where(pairing.sent_end >= 0, pairing.sent_end, pairing.sent)
        )
        later = np.maximum(sent[:, :, 0], posted[:, :, 0])
        transfer, took = receives[:, :, 1] - later, receives[:, :, 1] - receives[:, :, 0]
        waited = ((receives[:, :, 0] <= later) | (took > WAITED_NS)) & (took >= HELD * transfer)
        waited &= (
            (posted[:, :, 0] <= sent[:, :, 0])
            | (send_ends[:, :, 1] >= posted[:, :, 0])
            | (pairing.sent_end < 0)
        )
        return np.where(waited, transfer, np.nan)

    def _arrivals(self, times: Floats, links: Sequence[Floats]) -> Floats:
        """Return when each message of a link program had arrived after the first was sent."""
        arrived = np.concatenate(links, axis=1)
        places = np.flatnonzero(self.program.events["code"] == Code.LINK_SEND)
        if not len(places) or not arrived.shape[1]:
            return np.zeros((len(arrived), 0))
        return np.asarray(arrived - times[:, self._column[places], 0].min(axis=1)[:, None])

    # ---- how well it is known ----------------------------------------------------------
    def series(self) -> list[Floats]:
        """Return one value per pass of everything that is to be known well.

        Of a class of messages the median transfer, of a class of calls the mean time; of whole
        iterations (timed) the longest pass and the mean communication.
        """
        measured: list[Floats] = []
        results = self.result()
        if self.program.timed:
            measured.append(results.pass_ns.max(axis=1))
            if len(results.event):
                measured.append(results.event_ns.sum(axis=1))
            return measured
        sample = self.program.events["sample"][self._sampled]
        measured += [
            results.event_ns[:, sample == k].mean(axis=1) for k in np.unique(sample).tolist()
        ]
        pairing = self.program.pairing
        if pairing is not None:
            kinds = [results.transfer_ns[:, pairing.cls == c] for c in np.unique(pairing.cls)]
            measured += [values for values in map(pass_medians, kinds) if len(values)]
        if results.link_ns.shape[1]:
            measured.append(results.link_ns.max(axis=1))
        return measured

    def is_known(self, half_width: float) -> bool:
        """Return whether every interval is within this share of its median on each side."""
        return self.passes > 0 and all(
            median_interval(one).half_width <= half_width for one in self.series()
        )

    def result(self) -> ProgramResult:
        """Return the measurements."""
        if self.passes == 0:
            return ProgramResult(0, np.zeros((0, self.processes)))
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(batch, name) for batch in self._batches])
            for name in COLLECTED
        }
        columns["begin_ns"] = np.median(columns["begin_ns"], axis=0)
        errors = columns["work_error_ns"]
        columns["work_error_ns"] = errors[:: len(errors) // MOST_ERRORS + 1]
        clock_ns = max(batch.clock_error_ns for batch in self._batches)
        return ProgramResult(self.passes, event=self._sampled, clock_error_ns=clock_ns, **columns)
