"""Start, end and rest of a program: what lies before, after and between its loops."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p3s.program.scaled import read_order

#: Phase numbers of the parts of phase 0, which is what lies in no loop.
REST, START, END = 0, -1, -2
_BETWEEN, _BEFORE, _AFTER = 0, 1, 2
#: What is of the whole of phase 0, not of one of its parts.
_WHOLE = ("crm_i_ns", "crm_c_ns", "compute_ns", "work")


@dataclass(frozen=True)
class Ends:
    """Where the rows of the root phase belong: ``of_slot`` is 0 between, 1 before, 2 after loops.

    By the rows' column ``slot``; ``root``: number of the root phase.
    """

    root: int
    of_slot: NDArray[np.int64]

    def place(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return 0, 1 or 2 per row; rows of slots that are not known lie between the loops."""
        known = (slot >= 0) & (slot < len(self.of_slot))
        of = self.of_slot[np.where(known, slot, 0)] if len(self.of_slot) else np.zeros_like(slot)
        return np.asarray(np.where(known, of, _BETWEEN))

    def divided(self, phases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the phases with the start in front and the end at the end."""
        whole = next(phase for phase in phases if phase["phase"] == self.root)
        part = {key: value for key, value in whole.items() if key not in _WHOLE}
        rest = [part if phase is whole else phase for phase in phases]
        return [
            {**part, "phase": START, "name": "start", "kind": "start"},
            *rest,
            {**part, "phase": END, "name": "end", "kind": "end"},
        ]


def ends_of(scaled_dir: Path, phases: list[dict[str, Any]]) -> Ends | None:
    """Return where the rows of the phase without a parent belong; None where nothing says it.

    From order.json: an item's first position against those of the outermost loops that iteration
    (walks from partner to partner are none). None without an order, and without loops.
    """
    roots = [phase["phase"] for phase in phases if phase.get("kind") == "rest"]
    path = scaled_dir / "order.json"
    if len(roots) != 1 or roots[0] != REST or not path.exists():
        return None
    order = read_order(scaled_dir)
    loops = [
        loop.at[0]
        for loop in order.loops or ()
        if not loop.parent and loop.walk is None and loop.at
    ]
    if not loops:
        return None
    first, last = min(loops), max(loops)
    places = []
    for item in order.items:
        where = _BETWEEN
        if item.at:
            where = _BEFORE if item.at[0] < first else _AFTER if item.at[0] > last else _BETWEEN
        places += [where] * len(item.slots)
    return Ends(roots[0], np.array(places, dtype=np.int64))
