"""Communicators of the scaled trace: numbers, members and roots, for all ranks at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p3s.base.arrays import Ints
from p3s.model.grid.at import GridAt
from p3s.model.partners.communicator_laws import CommunicatorLaw, World, number_instances


@dataclass(frozen=True)
class _Law:
    """The communicators of one law: base of their numbers, number per rank (-1: in none).

    sequence: members after each other, starts: where those of each begin, and the end.
    """

    base: int
    number: Ints | None
    sequence: Ints | None
    starts: Ints


class Communicators(Sequence[tuple[int, ...]]):
    """All communicators met so far; the world is 0. Indexing gives the members of one.

    Nothing is listed before somebody asks: a law costs a few arrays over all ranks, the world
    nothing.
    """

    def __init__(self, grid: GridAt) -> None:
        self.grid = grid
        world = _Law(0, None, None, np.array([0, grid.n], dtype=np.int64))
        self._laws: dict[CommunicatorLaw, _Law] = {}
        self._order = [world]
        self._tuples: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        last = self._order[-1]
        return last.base + len(last.starts) - 1

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self[x] for x in range(*k.indices(len(self)))]
        if k < 0 or k >= len(self):
            raise IndexError(k)
        if k not in self._tuples:
            self._tuples[k] = tuple(self.members(k).tolist())
        return self._tuples[k]

    def _of(self, k: int) -> _Law:
        return next(law for law in reversed(self._order) if law.base <= k)

    def members(self, k: int) -> Ints:
        """Return the members of one communicator, in the order of their rank in it."""
        law = self._of(int(k))
        if law.sequence is None:
            return np.arange(self.grid.n, dtype=np.int64)
        return law.sequence[law.starts[k - law.base] : law.starts[k - law.base + 1]]

    def ids(self, law: CommunicatorLaw, ranks: Ints) -> Ints:
        """Return the number of the communicator of each of the ranks, -1 where it is in none."""
        found = self._law(law)
        if found.number is None:
            return np.zeros(len(ranks), dtype=np.int64)
        number = found.number[ranks]
        return np.where(number >= 0, number + found.base, -1)

    def _law(self, law: CommunicatorLaw) -> _Law:
        if isinstance(law, World) and not law.ordinal and not law.order:
            return self._order[0]
        if law not in self._laws:
            number, sequence, starts = number_instances(law, self.grid)
            self._laws[law] = _Law(len(self), number, sequence, starts)
            self._order.append(self._laws[law])
        return self._laws[law]

    def member(self, ids: Ints, place: Ints, beyond: int = -1) -> Ints:
        """Return the rank at a place of each communicator (negative: from the end).

        beyond: what a place that it does not have gives: -1, or 0 for its first member.
        """
        out = np.full(len(ids), -1, dtype=np.int64)
        for law in self._order:
            mine = np.flatnonzero((ids >= law.base) & (ids < law.base + len(law.starts) - 1))
            if not len(mine):
                continue
            start = law.starts[ids[mine] - law.base]
            size = law.starts[ids[mine] - law.base + 1] - start
            at = np.where(place[mine] < 0, size + place[mine], place[mine])
            there = (at >= 0) & (at < size)
            where = start + np.where(there, at, 0)
            rank = where if law.sequence is None else law.sequence[where]
            out[mine] = rank if beyond == 0 else np.where(there, rank, -1)
        return out

    def sizes(self, ids: Ints) -> Ints:
        """Return how many members each communicator has (0 for -1)."""
        out = np.zeros(len(ids), dtype=np.int64)
        for law in self._order:
            mine = (ids >= law.base) & (ids < law.base + len(law.starts) - 1)
            out[mine] = np.diff(law.starts)[ids[mine] - law.base]
        return out

    def to_json(self, listed: int = 1 << 12) -> list[dict[str, Any]]:
        """Return all communicators as plain data (docs/formats.md, comms.json).

        listed: up to how many ranks members are listed one by one.
        """
        out: list[dict[str, Any]] = []
        for law in self._order:
            rule = _rule(law) if self.grid.n > listed else None
            if rule is not None:
                out.append(rule)
                continue
            for k in range(law.base, law.base + len(law.starts) - 1):
                members = self.members(k)
                if (
                    len(members) > 64
                    and members[-1] - members[0] + 1 == len(members)
                    and np.all(np.diff(members) == 1)
                ):
                    out.append({"id": k, "first": int(members[0]), "size": len(members)})
                else:
                    out.append({"id": k, "members": members.tolist()})
        return out


def _rule(law: _Law) -> dict[str, Any] | None:
    """Return communicators of one size that are shifts of each other as one entry, else None."""
    if law.sequence is None:
        return {"id": 0, "first": 0, "size": int(law.starts[-1])}
    sizes = np.diff(law.starts)
    if not len(sizes) or np.any(sizes != sizes[0]):
        return None
    table = law.sequence.reshape(len(sizes), int(sizes[0]))
    offsets = table[0] - table[0, 0]
    if not np.array_equal(table, table[:, :1] + offsets[None, :]):
        return None
    return {
        "id": law.base,
        "number": len(sizes),
        "firsts": runs(table[:, 0]),
        "offsets": runs(offsets),
    }


def runs(values: Ints) -> list[list[int]]:
    """Return numbers as runs [start, step, number]."""
    out: list[list[int]] = []
    at = 0
    step = np.diff(values)
    while at < len(values):
        if at == len(values) - 1:
            out.append([int(values[at]), 1, 1])
            break
        other = np.flatnonzero(step[at:] != step[at])
        number = int(other[0]) + 1 if len(other) else len(values) - at
        out.append([int(values[at]), int(step[at]), number])
        at += number
    return out
