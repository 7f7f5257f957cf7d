"""Guards as Python conditions on rank, coordinates, partner and stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p3s.errors import P3SError

#: Bounds on ranks that are laws of n (p3s.model.grid.guards).
_BOUNDS = {
    "half": "n // 2",
    "pairs": "n // 2 * 2",
    "power": "low_power(n)",
    "rest": "(n - low_power(n))",
    "folded": "2 * (n - low_power(n))",
}


def condition(
    guard: Sequence[Sequence[Any]], ndims: int, alone: bool, part: bool = False
) -> tuple[str, set[str]]:
    """Return a conjunction as a Python condition, and the coordinates and extents it uses.

    alone: the call has no partner, so conditions on one hold; part: some ranks are not on the
    grid (their coordinates are -1), and no condition on places holds for them. The condition is
    of ``rank``, ``n``, ``partner``, ``step`` and ``stages`` (the list of partners); empty: always.
    """
    made = _Condition(ndims, alone, part)
    return made.all_of(guard), made.used


class NotExpressible(P3SError):
    """A rule that has no plain Python form; the text says which."""


class _Condition:
    rank = "rank"

    def __init__(self, ndims: int, alone: bool, part: bool) -> None:
        self.ndims, self.alone, self.part = ndims, alone, part
        self.used: set[str] = set()

    def all_of(self, guard: Sequence[Sequence[Any]]) -> str:
        return " and ".join(part for atom in guard if (part := self.one(atom)))

    def one(self, atom: Sequence[Any]) -> str:
        op, args = atom[0], atom[1:]
        if op == "not":
            inner = self.all_of(args)
            return f"not ({inner})" if inner else "False"
        if op in ("peer", "notself", "down", "up"):
            return (
                ""
                if self.alone
                else {
                    "peer": "partner >= 0",
                    "notself": "partner != rank",
                    "down": "partner < rank",
                    "up": "partner > rank",
                }[op]
            )
        if op == "partner":  # what holds for the partner
            return "False" if self.alone else self.of_partner(args[0])
        if op in ("ingrid", "outgrid"):
            return f"{self.coordinate(0)} {'>=' if op == 'ingrid' else '<'} 0"
        place = self.of_place(op, args)
        if place is not None and self.part:
            place = f"{place} and {self.coordinate(0)} >= 0"
        for found in (self.of_rank(op, args), place, self.of_stage(op, args)):
            if found is not None:
                return found
        raise NotExpressible("which ranks take part has no plain Python form in this version")

    def of_partner(self, atom: Sequence[Any]) -> str:
        inner = _OfPartner(self.ndims, True, self.part)
        found = inner.one(atom)
        self.used |= inner.used
        return f"partner >= 0 and {found}" if found else "partner >= 0"

    def of_rank(self, op: str, args: Sequence[Any]) -> str | None:
        if op in ("rank", "notrank"):
            rank = int(args[0])
            return f"{self.rank} {'==' if op == 'rank' else '!='} " + (
                str(rank) if rank >= 0 else f"n - {-rank}"
            )
        if op in ("rankmod", "notrankmod"):
            sign = "==" if op == "rankmod" else "!="
            return f"{self.rank} % {int(args[0])} {sign} {int(args[1])}"
        if op in ("below", "from"):
            bound = _BOUNDS.get(args[0]) if isinstance(args[0], str) else str(int(args[0]))
            if bound is None:
                raise P3SError("model: a guard is malformed; run `p3s model` again")
            return f"{self.rank} {'<' if op == 'below' else '>='} {bound}"
        if op == "above":
            return f"n > {int(args[0])}"
        return None

    def coordinate(self, d: Any) -> str:
        self.used.add(f"c{int(d)}")
        return f"c{int(d)}"

    def extent(self, d: Any) -> str:
        self.used.add(f"p{int(d)}")
        return f"p{int(d)}"

    def of_place(self, op: str, args: Sequence[Any]) -> str | None:
        if op == "parity":
            total = " + ".join(self.coordinate(d) for d in range(self.ndims))
            return f"({total}) % 2 == {int(args[0])}"
        if op in ("diag", "offdiag", "less", "anti"):
            a, b = self.coordinate(args[0]), self.coordinate(args[1])
            return {
                "diag": f"{a} == {b}",
                "offdiag": f"{a} != {b}",
                "less": f"{a} < {b}",
                "anti": f"{a} + {b} == {self.extent(args[0])} - 1",
            }[op]
        if op == "wide":
            return f"{self.extent(args[0])} > {int(args[1])}"
        if op == "mod":
            return f"{self.coordinate(args[0])} % {int(args[1])} == {int(args[2])}"
        if op in ("first", "notfirst"):
            return f"{self.coordinate(args[0])} {'==' if op == 'first' else '!='} 0"
        signs = {
            "last": "== {} - 1",
            "notlast": "!= {} - 1",
            "lower": "< {} // 2",
            "upper": ">= {} // 2",
            "mid": "== {} // 2",
            "notmid": "!= {} // 2",
        }
        if op in signs:
            return f"{self.coordinate(args[0])} {signs[op].format(self.extent(args[0]))}"
        return None

    def of_stage(self, op: str, args: Sequence[Any]) -> str | None:
        if op in ("stage", "notstage"):
            last = "0" if int(args[0]) == 0 else "len(stages) - 1"
            return f"step {'==' if op == 'stage' else '!='} {last}"
        if op in ("early", "late"):
            half = f"(len(stages) + {int(args[0])}) // 2"
            return f"step {'<' if op == 'early' else '>='} {half}"
        if op in ("within", "beyond"):
            return f"{self.rank} {'<' if op == 'within' else '>='} 1 << step + {int(args[0])}"
        if op in ("smod", "sbit"):
            which, number = int(args[0]), int(args[1])
            if op == "sbit":
                name = self.rank if which == -1 else self.coordinate(which)
                return f"{name} >> step & 1 == {number}"
            names = (
                [self.coordinate(d) for d in range(self.ndims)]
                if which == -2
                else [self.rank if which == -1 else self.coordinate(which)]
            )
            return " and ".join(f"{name} % (1 << step + {number}) == 0" for name in names)
        return None


class _OfPartner(_Condition):
    """The same of the partner: its rank and its coordinates."""

    rank = "partner"

    def coordinate(self, d: Any) -> str:
        return f"GRID.coordinates(partner, n)[{int(d)}]"
