"""The Cartesian communicator over all ranks: what a program itself says of its process grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p3s.signature.part import Place
from p3s.signature.tables import PointTable


@dataclass(frozen=True)
class Cart:
    """The Cartesian communicator over all ranks: per count extents and members; periods."""

    dims: dict[int, tuple[int, ...]]
    members: dict[int, tuple[int, ...]]
    periods: tuple[bool, ...] | None

    def folded(self) -> Cart:
        """Return it without the dimensions whose extent is 1 at all counts."""
        extents = list(zip(*self.dims.values(), strict=True))
        kept = [d for d, seen in enumerate(extents) if set(seen) != {1}] or [0]
        dims = {n: tuple(of[d] for d in kept) for n, of in self.dims.items()} if extents else {}
        periods = None if self.periods is None else tuple(self.periods[d] for d in kept)
        return Cart(dims, self.members, periods)


def cart_of(tables: Sequence[PointTable]) -> Cart:
    """Return the largest Cartesian communicator over all ranks (empty where there is none).

    Where a program makes several, the one of most dimensions that exists at every count counts.
    """
    per: dict[int, dict[int, Place]] = {}
    for t in tables:
        for p in t.places:
            if p.dims and len(p.members) == t.np:
                per.setdefault(len(p.dims), {}).setdefault(t.np, p)
    for ndims in sorted(per, reverse=True):
        got = per[ndims]
        if len(got) == len(tables):
            periods = {p.periods or (False,) * ndims for p in got.values()}
            return Cart(
                {n: p.dims for n, p in got.items() if p.dims},
                {n: p.members for n, p in got.items()},
                periods.pop() if len(periods) == 1 else None,
            )
    return Cart({}, {}, None)
