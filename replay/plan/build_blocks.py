"""Events of many processes, put together block by block and sorted into one table at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Bools, Ints
from p3s.replay.plan.program import EVENT, FIELDS, Code, among

#: Codes that leave a request behind, in a slot of its own.
SLOT_CODES = (
    Code.ISEND,
    Code.ISSEND,
    Code.IRECV,
    Code.COLLECTIVE_START,
    Code.BUFFERED,
    Code.ANSWER,
)
_SENDING = (
    Code.SEND,
    Code.SSEND,
    Code.ISEND,
    Code.ISSEND,
    Code.BUFFERED,
    Code.SENDRECV,
    Code.ANSWER,
    Code.LINK_SEND,
)
_RECEIVING = (Code.RECV, Code.IRECV, Code.SECOND, Code.LINK_RECV)
_DIRECT = (Code.COLLECTIVE, Code.COLLECTIVE_START)
#: What an event has in each field where nothing else is said.
DEFAULTS = dict.fromkeys(FIELDS, 0) | dict.fromkeys(("peer", "slot", "comm", "at_ns", "sample"), -1)
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Table:
    """Events sorted by process; one entry per event but in ``start``, ``slots``, ``out_bytes``.

    ``local``: the loaded step an event comes from (-1: none), ``step``: as in Program. ``main``:
    the event is the call of its step. ``main_at``: per loaded step the position of its call in
    the list of its process (-1: none). ``open_before``: slots used by earlier events of the
    process.
    """

    events: npt.NDArray[np.void]
    process: Ints
    start: Ints
    step: Ints
    local: Ints
    main: Bools
    main_at: Ints
    open_before: Ints
    slots: Ints
    out_bytes: Ints

    @property
    def in_bytes(self) -> Ints:
        """How many bytes each process needs for what it receives."""
        result = np.zeros(len(self.slots), dtype=np.int64)
        receives = among(self.events["code"], *_RECEIVING, *_DIRECT)
        end = self.events["offset"] + self.events["bytes"]
        np.maximum.at(result, self.process[receives], end[receives])
        return result


class Blocks:
    """Collects events; ``finish`` sorts them by process and key."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.parts: list[npt.NDArray[np.void]] = []
        self.process: list[Ints] = []
        self.key: list[Ints] = []
        self.local: list[Ints] = []
        self.main: list[Bools] = []

    def add(
        self, process: Ints, key: Ints, local: Ints, *, main: bool = False, **columns: Any
    ) -> None:
        """Add events of these processes; ``key``: order in a process, ``local``: their step."""
        part = np.zeros(len(process), dtype=EVENT)
        for name in FIELDS:
            part[name] = columns.get(name, DEFAULTS[name])
        self.parts.append(part)
        self.process.append(process)
        self.key.append(key)
        self.local.append(local)
        self.main.append(np.full(len(process), main))

    def finish(self, step: Ints) -> Table:
        """Return all events and an END for every process; ``step`` of each loaded step."""
        everyone = np.arange(self.processes)
        nobody = np.full(self.processes, -1, dtype=np.int64)
        self.add(everyone, np.full(self.processes, _LAST), nobody, code=Code.END)
        process = np.concatenate(self.process)
        order = np.lexsort((np.concatenate(self.key), process))
        process = process[order]
        events = np.concatenate(self.parts)[order]
        local = np.concatenate(self.local)[order]
        main = np.concatenate(self.main)[order]
        start = np.searchsorted(process, np.arange(self.processes + 1))
        code = events["code"]
        needs = among(code, *SLOT_CODES)
        used = np.concatenate(([0], np.cumsum(needs)))
        open_before = used[:-1] - used[start[process]]
        events["slot"] = np.where(needs, open_before, -1)
        out_bytes = np.zeros(self.processes, dtype=np.int64)
        sends = among(code, *_SENDING, *_DIRECT)
        np.maximum.at(out_bytes, process[sends], events["bytes"][sends])
        main_at = np.full(len(step), -1, dtype=np.int64)
        position = np.arange(len(events)) - start[process]
        main_at[local[main]] = position[main]
        whole = np.concatenate((step, [-1]))
        return Table(
            events,
            process,
            start.astype(np.int64),
            whole[local],
            local,
            main,
            main_at,
            open_before,
            used[start[1:]] - used[start[:-1]],
            out_bytes,
        )


def waited(begin: Ints, number: Ints) -> Ints:
    """Return begin[i], begin[i] + 1, ... (number[i] of them) for all i, one after the other."""
    total = np.concatenate(([0], np.cumsum(number)))
    return np.repeat(begin - total[:-1], number) + np.arange(int(total[-1]))
