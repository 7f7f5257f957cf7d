"""Events of many processes, put together block by block and sorted into one table at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Bools, Ints
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.program import EVENT, FIELDS, SLOT_CODES, Code, among

#: What an event has in each field where nothing else is said.
DEFAULTS = dict.fromkeys(FIELDS, 0) | dict.fromkeys(("peer", "slot", "comm", "at_ns", "sample"), -1)
_LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Table:
    """Events sorted by process; one entry per event but in ``start``, ``slots``.

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
        )


def waited(begin: Ints, number: Ints) -> Ints:
    """Return begin[i], begin[i] + 1, ... (number[i] of them) for all i, one after the other."""
    total = np.concatenate(([0], np.cumsum(number)))
    return np.repeat(begin - total[:-1], number) + np.arange(int(total[-1]))


_ALIGNMENT = 64
#: Messages of a process share room beyond this size; nobody looks at what is received.
_BUFFER_BYTES = 256 << 20


def offsets(process: Ints, channel: Ints, nbytes: Ints) -> Ints:
    """Return where each message is received: every channel of a process has a buffer of its own.

    It is as large as the largest message on the channel, as a program's buffers for a partner are.
    """
    size = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    code = codes_of((process, channel))
    owner, room = (np.zeros(int(code.max(initial=-1)) + 1, dtype=np.int64) for _ in range(2))
    owner[code] = process
    np.maximum.at(room, code, size)
    total = np.cumsum(room) - room
    offset = (total - total[np.searchsorted(owner, owner)])[code] if len(code) else code
    left = np.maximum(_BUFFER_BYTES - size, 0) + _ALIGNMENT
    return np.where(offset + size > _BUFFER_BYTES, offset % left, offset)
