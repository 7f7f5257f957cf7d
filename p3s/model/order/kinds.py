"""Which calls ranks make together, whoever their partners are and whatever they send."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from p3s.base import ops
from p3s.base.arrays import Bools, Ints
from p3s.base.errors import P3SError

if TYPE_CHECKING:
    from p3s.model.types import Model

#: Of more processes, those of a half, a quarter ... are looked at: ranks repeat.
MOST = 512


class Kinds:
    """The calls that ranks make at any count, and which of them they make together."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._known: dict[int, Bools] = {}
        # a call is an item's slot; slots of one item follow each other
        self._first = np.cumsum([0, *(len(item.slots) for item in model.items)])
        waits = [ops.waits(item.op) for item in model.items for _ in item.slots]
        self._waits = np.array(waits, dtype=bool)

    def unseen(self, n: int, counts: Collection[int], *, wait: bool = False) -> tuple[int, Ints]:
        """Return a count, ``n`` if it is not too large, and its ranks with calls in no known order.

        Such a rank makes two calls that no rank of ``counts`` makes both. wait: only those of which
        one may wait for another rank, so that the order of the two changes a run time.
        Raises P3SError where the program's grid has no form at any count that is looked at.
        """
        at, here = self._at(n)
        open_ = np.ones((len(self._waits),) * 2, dtype=bool)
        for each in counts:
            there = self._at(each)[1].astype(np.float32)
            open_ &= there.T @ there == 0
        if wait:
            open_ &= self._waits[:, None] | self._waits
        made = here.astype(np.float32)
        return at, np.flatnonzero(((made @ open_) * made).any(axis=1))

    def _at(self, n: int) -> tuple[int, Bools]:
        from p3s.model.evaluate import model_grid

        last: P3SError | None = None
        for at in (n >> k for k in range(n.bit_length())):
            if at > MOST:
                continue
            try:
                model_grid(self.model, at)
            except P3SError as err:
                last = last or err
                continue
            return at, self._known.setdefault(at, self._made(at))
        raise last or P3SError(f"{n} is no number of processes")

    def _made(self, n: int) -> Bools:
        """Return which of the calls each rank makes, shape (n, calls)."""
        from p3s.model.evaluate import generate
        from p3s.model.tripcounts import as_traced

        model = as_traced(self.model, n) if n in self.model.counts else self.model
        rows = generate(model, n, work=False)
        made = np.zeros((n, len(self._waits)), dtype=bool)
        there = rows.repeat > 0
        made[rows.rank[there], self._first[rows.item[there]] + rows.slot[there]] = True
        return made
