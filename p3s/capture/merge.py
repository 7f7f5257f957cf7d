"""Tables that all ranks of a run share: calls, sites, communicators, windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from p3s.capture.capture import Capture
from p3s.capture.files import FileName
from p3s.capture.records import NO_WINDOW, RawSite
from p3s.capture.types import Call, Comm, Neighbours, Site, Window

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Int64s = NDArray[np.int64]

#: Columns of the matrix in which calls of all ranks are compared.
_OP, _SITE, _COMM, _PEER, _BYTES, _ELEM, _TAG, _ROOT, _COUNT, _DEPTH, _WINDOW, _TEAM = range(12)
_BLOCK, _MEMORY, _NUMBERS = 12, 13, 14
_COLUMNS = 15
_WINDOW_KINDS = {1: "window", 2: "file", 3: "posix file"}


@dataclass
class Tables:
    """What is shared by all ranks, filled rank by rank.

    A rank's calls are numbered by ``local_calls``; those numbers become numbers of ``calls`` when
    all ranks are there, since only calls that have events are kept.
    """

    size: int
    ops: dict[str, int] = field(default_factory=dict)
    sites: dict[int, int] = field(default_factory=dict)
    site_list: list[Site] = field(default_factory=list)
    comms: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)
    comm_list: list[Comm] = field(default_factory=list)
    windows: dict[Window, int] = field(default_factory=dict)
    rows: dict[bytes, int] = field(default_factory=dict)
    numbers: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})

    def __post_init__(self) -> None:
        world = tuple(range(self.size))
        self.comms[(world, 0)] = 0
        self.comm_list.append(Comm(world, "MPI_COMM_WORLD", -1, None, None, 0))

    def add(self, capture: Capture) -> tuple[Int64s, Int64s]:
        """Take one rank's definitions.

        Returns (number of each of its calls in ``rows``, the same for what its wildcard
        receives, in the order of capture.resolved, turned out to be).
        """
        import numpy as np

        matrix = self._matrix(capture)
        numbers = self._numbers(matrix)
        if not len(capture.resolved):
            return numbers, np.empty(0, dtype=np.int64)
        return numbers, self._resolved(capture, matrix)

    def _resolved(self, capture: Capture, matrix: Int64s) -> Int64s:
        """Return the number of the call that each wildcard receive turned out to be."""
        import numpy as np

        at, _ = capture.events.index_of(capture.resolved[:, 0])
        call = capture.events.call[at]
        # Few of them differ: numbers first of what is told apart, then of what stands in rows.
        told = np.stack([call, *capture.resolved[:, 1:3].T], axis=1, dtype=np.int64)
        some, where = distinct_rows(told)
        actual = matrix[some[:, 0]]
        actual[:, _PEER], actual[:, _TAG] = some[:, 1], some[:, 2]
        distinct, inverse = np.unique(actual, axis=0, return_inverse=True)
        return self._numbers(distinct)[inverse.reshape(-1)][where]

    def files(self, capture: Capture) -> dict[int, FileName]:
        """Return what one rank knows of files, by the number of their windows; after add."""
        window_of = self._merge_windows(capture, self._merge_comms(capture))
        return {window_of[raw]: name for raw, name in capture.files.items() if raw in window_of}

    def neighbours(self, capture: Capture) -> dict[int, Neighbours]:
        """Return the neighbours of one rank by the number of their communicator."""
        comm_of = self._merge_comms(capture) if capture.neighbours else {}
        return {
            comm_of[raw.comm]: Neighbours(raw.destinations, raw.sources)
            for raw in capture.neighbours
            if raw.comm in comm_of
        }

    def _numbers(self, matrix: Int64s) -> Int64s:
        import numpy as np

        rows, width = self.rows, 8 * matrix.shape[1]
        raw = np.ascontiguousarray(matrix).tobytes()
        return np.array(
            [rows.setdefault(raw[at : at + width], len(rows)) for at in range(0, len(raw), width)],
            dtype=np.int64,
        )

    def calls(self, used: NDArray[np.bool_]) -> tuple[Call, ...]:
        """Return the calls of the rows that have events, in the order of their numbers."""
        import numpy as np

        table = np.frombuffer(b"".join(self.rows), dtype=np.int64).reshape(-1, _COLUMNS)
        names, numbers = list(self.ops), list(self.numbers)
        return tuple(
            Call(*(names[row[_OP]], *row[_SITE:_NUMBERS], numbers[row[_NUMBERS]]))
            for row in table[used[: len(table)]].tolist()
        )

    def _matrix(self, capture: Capture) -> Int64s:
        """Return this rank's calls as rows of numbers that mean the same on every rank."""
        import numpy as np

        comm_of = self._merge_comms(capture)
        window_of = self._merge_windows(capture, comm_of)
        site_to = np.array([self._site(raw) for raw in capture.sites] + [0], dtype=np.int64)
        op_of = {
            number: self.ops.setdefault(name, len(self.ops))
            for number, name in capture.opnames.items()
        }
        calls = capture.calls
        rows = np.empty((len(calls), _COLUMNS), dtype=np.int64)
        rows[:, _OP] = _mapped(calls["op"], op_of)
        rows[:, _SITE] = site_to[np.minimum(calls["site"], len(site_to) - 1).astype(np.int64)]
        rows[:, _COMM] = _mapped(calls["comm"], comm_of)
        rows[:, _WINDOW] = _mapped(calls["window"], window_of)
        for column, name in (
            (_PEER, "peer"),
            (_BYTES, "bytes"),
            (_ELEM, "elem_bytes"),
            (_TAG, "tag"),
            (_ROOT, "root"),
            (_COUNT, "count"),
            (_DEPTH, "depth"),
            (_TEAM, "team"),
            (_BLOCK, "block"),
            (_MEMORY, "memory"),
        ):
            rows[:, column] = calls[name]
        list_of = {
            number: self.numbers.setdefault(values, len(self.numbers))
            for number, values in capture.numbers.items()
        }
        rows[:, _NUMBERS] = _mapped(calls["numbers"], {0: 0, **list_of})
        return rows

    def _site(self, raw: RawSite | None) -> int:
        if raw is None:
            return 0  # lost; no event that is kept refers to it
        if raw.key not in self.sites:
            self.sites[raw.key] = len(self.site_list)
            self.site_list.append(Site(f"{raw.key:016x}", raw.frames))
        return self.sites[raw.key]

    def _merge_comms(self, capture: Capture) -> dict[int, int]:
        """Return this rank's communicator ids -> indices of the merged communicators."""
        seen: dict[tuple[int, ...], int] = {}
        index: dict[int, int] = {-1: -1}
        for raw in capture.comms:
            ordinal = seen.get(raw.members, 0)
            seen[raw.members] = ordinal + 1
            key = (raw.members, ordinal)
            if key not in self.comms:
                parent = index.get(raw.parent, -1)
                self.comms[key] = len(self.comm_list)
                self.comm_list.append(
                    Comm(raw.members, raw.op, parent, raw.dims, raw.periods, ordinal, raw.inter)
                )
            index[raw.id] = self.comms[key]
        return index

    def _merge_windows(self, capture: Capture, comm_of: dict[int, int]) -> dict[int, int]:
        """Return this rank's window ids -> indices of the merged windows."""
        seen: dict[tuple[int, int, str], int] = {}
        index: dict[int, int] = {NO_WINDOW: NO_WINDOW}
        for raw in capture.windows:
            key = (comm_of.get(raw.comm, -1), raw.kind, raw.op)
            ordinal = seen.get(key, 0)
            seen[key] = ordinal + 1
            window = Window(key[0], _WINDOW_KINDS.get(raw.kind, str(raw.kind)), raw.op, ordinal)
            index[raw.id] = self.windows.setdefault(window, len(self.windows))
        return index


def distinct_rows(table: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct rows of a table, in no order that means something, and each row's."""
    import numpy as np

    where = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        _, number = np.unique(column, return_inverse=True)
        _, where = np.unique(where * (int(number.max(initial=0)) + 1) + number, return_inverse=True)
    _, first = np.unique(where, return_index=True)
    return table[first], where


def _mapped(values: NDArray[np.generic], table: dict[int, int]) -> Int64s:
    """Return table[value] of each value; -1 for one that is not in it."""
    import numpy as np

    if not table or not len(values):
        return np.full(len(values), -1, dtype=np.int64)
    keys = np.array(sorted(table), dtype=np.int64)
    to = np.array([table[key] for key in keys.tolist()], dtype=np.int64)
    at = np.minimum(np.searchsorted(keys, values.astype(np.int64)), len(keys) - 1)
    return np.where(keys[at] == values, to[at], -1)


def event_calls(capture: Capture, calls: Int64s, resolved: Int64s) -> Int64s:
    """Return the row number of each event's call, wildcard receives as what they received."""
    found: Int64s = calls[capture.events.call]
    at, _ = capture.events.index_of(capture.resolved[:, 0])
    found[at] = resolved
    return found


@dataclass(frozen=True)
class CallsInBlocks:
    """The row numbers of events' calls as event_calls has them, a block at a time.

    at: events that are wildcard receives, ascending; became: the row number of each.
    """

    calls: Int64s
    at: Int64s
    became: Int64s

    @staticmethod
    def of(capture: Capture, calls: Int64s, resolved: Int64s) -> CallsInBlocks:
        """Return those of a rank; calls, resolved: see Tables.add."""
        import numpy as np

        at, _ = capture.events.index_of(capture.resolved[:, 0])
        order = np.argsort(at, kind="stable")
        return CallsInBlocks(calls, at[order], resolved[order])

    def of_block(self, first: int, call: NDArray[np.unsignedinteger]) -> Int64s:
        """Return the row numbers of the events from number ``first`` on, with these calls."""
        import numpy as np

        found: Int64s = self.calls[call]
        low, high = np.searchsorted(self.at, [first, first + len(call)])
        found[self.at[low:high] - first] = self.became[low:high]
        return found
