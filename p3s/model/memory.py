"""What was found is remembered as long as it takes little room."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Memory(Generic[V]):
    """Values by their keys; all are forgotten as soon as they take more room than ``most``."""

    def __init__(self, most: int = 1 << 10, room: Callable[[V], int] = lambda _: 1) -> None:
        """room: what a value takes: one each, or its cells."""
        self._most, self._room, self._taken = most, room, 0
        self._known: dict[Hashable, V] = {}

    def of(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of a key, made where it is not known."""
        if key not in self._known:
            value = make()
            self._taken += self._room(value)
            if self._taken > self._most:
                self._known.clear()
                self._taken = self._room(value)
            self._known[key] = value
        return self._known[key]

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._taken = 0
