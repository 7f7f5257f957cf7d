"""What is known of the process grid beside the traces, and which rules of the grid agree with it.

The user says it (``p3s model STUDY --grid``), or the program was given its grid as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.extents import dims_balanced, shape
from p3s.model.grid.at import GridRule, dimensions, layout_of
from p3s.model.grid.grids import (
    BalancedGrid,
    Bits,
    Line,
    ListedGrid,
    all_rules,
    candidate_rules,
    rules_in_part,
)

Extents = tuple[int, ...]
#: The dimension that is counted last in every order of dimensions.
LAST = -1


class Contradiction(P3SError):
    """What is said of the process grid cannot be what the traces show."""


@dataclass(frozen=True)
class Statement:
    """What is known of the process grid: any of its dimensions, its extents, its order.

    ndims: number of dimensions, 0 where it is open; extents: (count, extents), ascending; fastest:
    the dimension in which the next rank is, LAST for the last one, None where it is open.
    arguments: the program gets its extents as arguments, at counts without extents here those
    of MPI_Dims_create. by_user: it must hold; what arguments alone say is dropped where the traces
    contradict it.
    """

    ndims: int = 0
    extents: tuple[tuple[int, Extents], ...] = ()
    fastest: int | None = None
    arguments: bool = False
    by_user: bool = False

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.ndims or self.extents) or self.fastest is not None

    def to_json(self) -> dict[str, Any]:
        """Return the statement as plain data; what is open is left out."""
        out: dict[str, Any] = {}
        if self.ndims:
            out["ndims"] = self.ndims
        if self.extents:
            out["extents"] = {str(n): list(dims) for n, dims in self.extents}
        if self.fastest is not None:
            out["fastest"] = self.fastest
        for name in ("arguments", "by_user"):
            if getattr(self, name):
                out[name] = True
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Statement:
        """Return the statement from :meth:`to_json` data."""
        listed = sorted(
            (int(n), tuple(map(int, dims))) for n, dims in data.get("extents", {}).items()
        )
        fastest = data.get("fastest")
        return Statement(
            int(data.get("ndims", 0)),
            tuple(listed),
            None if fastest is None else int(fastest),
            bool(data.get("arguments")),
            bool(data.get("by_user")),
        )

    def text(self) -> str:
        """Return the statement for people: ``3 dimensions, 4x2x2 at 16``."""
        parts = []
        if self.ndims and not self.extents:
            parts.append("1 dimension" if self.ndims == 1 else f"{self.ndims} dimensions")
        parts += [f"{shape(dims)} at {n}" + _apart(n - math.prod(dims)) for n, dims in self.extents]
        if self.fastest is not None:
            parts.append(
                "the last dimension fastest"
                if self.fastest == LAST
                else f"dimension {self.fastest} fastest"
            )
        return ", ".join(parts)

    def merged(self, other: Statement) -> Statement:
        """Return this statement with what another one adds; unchanged where they disagree."""
        here, there = dict(self.extents), dict(other.extents)
        if (self.ndims and other.ndims and self.ndims != other.ndims) or any(
            here[n] != there[n] for n in here.keys() & there.keys()
        ):
            return self
        return replace(
            other,
            ndims=self.ndims or other.ndims,
            extents=tuple(sorted({**there, **here}.items())),
            fastest=other.fastest if self.fastest is None else self.fastest,
            by_user=self.by_user or other.by_user,
        )


def _apart(ranks: int) -> str:
    return f" with {ranks} rank{'s' * (ranks > 1)} apart" if ranks else ""


def of_arguments(ndims: int, listed: Mapping[int, Extents]) -> Statement:
    """Return what is known of the grid of a program that gets its extents as arguments.

    listed: extents at counts where they are not those of MPI_Dims_create.
    """
    return Statement(ndims, tuple(sorted(listed.items())), arguments=True)


# ---- rules that agree --------------------------------------------------------------------------
def rules(
    known: Statement,
    counts: Sequence[int],
    cart: Mapping[int, Extents],
    members: Mapping[int, tuple[int, ...]],
) -> list[GridRule]:
    """Return the rules of the grid that agree with a statement, simplest first.

    cart, members: extents and ranks of the Cartesian communicator over all ranks, by count (empty
    where there is none). Raises Contradiction where it has other extents, or no rule gives those
    that are stated.
    """
    found = _agreeing(known, counts, cart, members)
    if not found:
        raise Contradiction("no rule of a process grid agrees with it at all traced counts")
    return found


def _agreeing(
    known: Statement,
    counts: Sequence[int],
    cart: Mapping[int, Extents],
    members: Mapping[int, tuple[int, ...]],
) -> list[GridRule]:
    if cart and known.arguments:
        return _as_given(known, counts, cart, members)
    if cart:
        _check_cart(known, cart, members)
    found = [
        fam
        for fam in _candidates(known, counts, cart, members)
        if all(fam.dims(n) == dims for n, dims in known.extents)
        and all(fam.dims(n) is not None for n in counts)
    ]
    if known.extents and not found:
        found = _list_extents(known, counts, cart)
    return [fam for each in found for fam in _vary_rank_order(each, known, bool(members))]


def _check_cart(
    known: Statement, cart: Mapping[int, Extents], members: Mapping[int, tuple[int, ...]]
) -> None:
    n, dims = max(cart.items())
    made = "the program made its grid with MPI_Cart_create"
    if known.ndims and known.ndims != len(dims):
        raise Contradiction(
            f"{made}: {shape(dims)} at {n} processes, {len(dims)} dimensions, not {known.ndims}"
        )
    for n, said in known.extents:
        if cart.get(n, said) != said:
            raise Contradiction(f"{made}: {shape(cart[n])} at {n} processes, not {shape(said)}")
    if known.fastest not in (None, LAST, len(dims) - 1) and all(
        m == tuple(range(n)) for n, m in members.items()
    ):
        raise Contradiction(f"{made}, whose last dimension is the fastest")


def _candidates(
    known: Statement,
    counts: Sequence[int],
    cart: Mapping[int, Extents],
    members: Mapping[int, tuple[int, ...]],
) -> list[GridRule]:
    """Return the rules among which those that agree are looked for."""
    ndims = known.ndims or (len(known.extents[0][1]) if known.extents else 0)
    if cart:
        return candidate_rules(list(counts), dict(cart), dict(members))
    if known.arguments:
        return [_of_launch(known)]
    out = rules_in_part(counts)
    if all(math.prod(dims) == n for n, dims in known.extents):
        out = [*all_rules(counts), *out]
    return [fam for fam in out if ndims in (0, fam.ndims)]


def _of_launch(known: Statement) -> GridRule:
    """Return the rule by which a program gets its grid as arguments."""
    if known.ndims == 1:
        return Line(1)
    if all(dims == dims_balanced(n, known.ndims) for n, dims in known.extents):
        return BalancedGrid(known.ndims)
    return ListedGrid(known.ndims, rest="balanced", listed=known.extents)


def _as_given(
    known: Statement,
    counts: Sequence[int],
    cart: Mapping[int, Extents],
    members: Mapping[int, tuple[int, ...]],
) -> list[GridRule]:
    """Return the rules of a Cartesian communicator with the extents given, in any order."""
    launch, forward = _of_launch(known), tuple(range(known.ndims))
    for order in sorted(permutations(forward), key=lambda o: (o != forward, o != forward[::-1])):
        if any(
            tuple(given[d] for d in order) != cart[n]
            for n in cart
            if (given := launch.dims(n)) is not None
        ):
            continue
        rest = {forward: "balanced", forward[::-1]: "balanced_up"}.get(order, "")
        if any(m != tuple(range(n)) for n, m in members.items()) or not rest:
            break
        if known.ndims == 1:
            return [launch]
        if not launch.listed:
            return [GridRule.named(rest, known.ndims)]
        table = tuple((n, tuple(dims[d] for d in order)) for n, dims in launch.listed)
        return [ListedGrid(known.ndims, rest=rest, listed=table)]
    else:
        n, dims = max(cart.items())
        given = launch.dims(n) or ()
        raise Contradiction(
            f"the program made a grid of {shape(dims)} with MPI_Cart_create at {n} "
            f"processes, where its arguments are {shape(given)}"
        )
    return candidate_rules(list(counts), dict(cart), dict(members))


def _list_extents(
    known: Statement, counts: Sequence[int], cart: Mapping[int, Extents]
) -> list[GridRule]:
    """Return the rule that says the extents count by count; it needs those of all counts."""
    table = {**cart, **dict(known.extents)}
    odd = [f"{shape(dims)} at {n}" for n, dims in known.extents if math.prod(dims) != n]
    if odd:
        raise Contradiction(f"no rule that leaves ranks out of the grid gives {', '.join(odd)}")
    missing = [n for n in counts if n not in table]
    if missing:
        raise Contradiction(
            f"no rule gives {', '.join(f'{shape(d)} at {n}' for n, d in known.extents)}; state the "
            f"extents at the other traced counts too ({', '.join(map(str, missing))})"
        )
    return [ListedGrid(len(known.extents[0][1]), rest="", listed=tuple(sorted(table.items())))]


def _vary_rank_order(fam: GridRule, known: Statement, made: bool) -> Iterator[GridRule]:
    """Yield a rule in the orders of ranks that a statement leaves open.

    Extents of no stated dimension have names of our own: one order says as much as the others.
    """
    last = fam.ndims - 1
    fastest = last if known.fastest == LAST else known.fastest
    if made or fam.part or isinstance(fam, (Bits, Line)):  # these have one order, their own
        own = fam.layout if fam.layout != "reverse" else "row"
        if not isinstance(fam, Bits) and fastest not in (None, dimensions(own, fam.ndims)[-1]):
            return
        yield fam
        return
    if fastest is None and not known.extents and not known.arguments:
        yield fam
        return
    orders = sorted(
        permutations(range(fam.ndims)),
        key=lambda o: (o != tuple(range(fam.ndims)), o != tuple(range(last, -1, -1))),
    )
    for order in orders:
        if fastest in (None, order[-1]):
            yield replace(fam, layout=layout_of(order))
