"""Whether what is known of the process grid can be what the traces show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.host.placeholders import shape
from p3s.base.text import processes
from p3s.model.comparison import HoldOut
from p3s.model.grid.choose import GridChoice, Vote, choose_grid
from p3s.model.grid.grids import dimensions
from p3s.model.grid.guards import GridAt
from p3s.model.grid.nodes import Node, collect_nodes, tag_splits
from p3s.model.grid.stated import Contradiction, Statement
from p3s.model.partners.relation import Staged
from p3s.model.sizes.observed import Rows
from p3s.model.types import Model
from p3s.signature.tables import PointTable

#: A grid on which partners cost so much more than on the one the traces lead to is not the
#: program's: so many times, and so many relations. More where that one is priced as if known, too:
#: on two ranks per dimension what is no stencil may look like one.
_TIMES, _MORE, _TIMES_KNOWN = 1.25, 1.0, 1.5
#: What a relation along all ranks costs more on a grid of several dimensions.
_ALL_RANKS = 0.5


def settled(
    tables: Sequence[PointTable], known: Statement | None, votes: Callable[[Sequence[Node]], Vote]
) -> tuple[Statement | None, str]:
    """Return what is known of the grid if the traces allow it, and why it was dropped if not.

    votes: what prices the sizes of messages of nodes on a grid. Raises Contradiction and P3SError
    where the user says what the traces do not allow; what arguments alone say is dropped.
    """
    if not known:
        return None, ""
    try:
        nodes = collect_nodes(tables, {k: bool(v) for k, v in tag_splits(tables).items()})
        choice = choose_grid(nodes, tables, known)
        # extents that the program was given have places for all ranks
        apart = not known.arguments
        price = _Price(votes(nodes))
        for said, times in ((None, _TIMES), (Statement(), _TIMES_KNOWN)):
            free = choose_grid(nodes, tables, said, apart=apart)
            if why := contradiction(nodes, choice, free, times, price):
                raise Contradiction(why)
    except P3SError as err:
        if known.by_user:
            raise
        return None, str(err)
    return known, ""


class _Price:
    """What the sizes of messages cost on grids, each asked once."""

    def __init__(self, vote: Vote) -> None:
        self._vote = vote
        self._asked: dict[str, float] = {}

    def __call__(self, choice: GridChoice) -> float:
        key = repr([(n, g.key) for n, g in choice.grids.items()])
        if key not in self._asked:
            self._asked[key] = self._vote(choice, math.inf)
        return self._asked[key]


def contradiction(
    nodes: Sequence[Node],
    choice: GridChoice,
    free: GridChoice,
    times: float,
    sizes: Callable[[GridChoice], float],
) -> str:
    """Return why a grid cannot be the program's, "" where it can.

    What the free choice explains must be explained on it too, at no more than so many ``times``
    the cost. Where partners alone do not say so, ``sizes`` of messages on both grids count, too.
    """
    worse = {i: _price(choice, i) - _price(free, i) for i in choice.explained}
    without = [
        i for i in worse if choice.explained[i].unexplained and not free.explained[i].unexplained
    ]
    total = sum(_price(free, i) for i in worse)
    more, allowed = sum(worse.values()), (times - 1) * total + _MORE
    if (
        not without
        and more <= allowed
        and (more <= 0 or more + sizes(choice) - sizes(free) <= allowed)
    ):
        return ""
    i = max(without or worse, key=lambda k: worse[k])
    n = max(nodes[i].rows)
    here, there = _named(choice.grids[n], free.grids[n]), _named(free.grids[n], choice.grids[n])
    of = f"at {processes(n)}, the partners of {nodes[i].op}"
    if without:
        return f"{of} follow no rule on a grid of {here}, and one on {there}"
    many, few = len(choice.explained[i].relations), len(free.explained[i].relations)
    if many > few:
        return f"{of} need {many} rules on a grid of {here}, and {few} on {there}"
    if apart := _apart(nodes[i], choice.grids[n], free.grids[n]):
        rank, peer = apart
        return (
            f"{of} are neighbours on a grid of {there}, and not on {here}: rank {rank} and its "
            f"partner {peer}"
        )
    return f"{of} follow rules with exceptions on a grid of {here}, and without on {there}"


def _apart(node: Node, grid: GridAt, other: GridAt) -> tuple[int, int] | None:
    """Return the first rank and partner that are neighbours on the other grid alone."""
    rows = node.rows[grid.n]
    far = (_steps(rows, other) == 1) & (_steps(rows, grid) > 1)
    at = np.lexsort((rows.peer, rows.rank, ~far))[:1]
    return (int(rows.rank[at[0]]), int(rows.peer[at[0]])) if far.any() else None


def _steps(rows: Rows, grid: GridAt) -> np.ndarray:
    """Return how many steps away partners are on a grid, at an end round to the other; -1: none."""
    step = np.abs(grid.coords[:, rows.peer] - grid.coords[:, rows.rank])
    step = np.minimum(step, np.array(grid.dims)[:, None] - step).sum(axis=0)
    return np.where(rows.peer < 0, -1, step)


def _named(grid: GridAt, other: GridAt) -> str:
    """Return the extents of a grid, with the order of its ranks where nothing else is different."""
    if len(grid.dims) == 1:
        return f"{grid.dims[0]} in one dimension"
    if sorted(grid.dims) != sorted(other.dims):
        return shape(grid.dims)
    fastest = (
        dimensions(grid.layout, len(grid.dims))[-1]
        if grid.layout in ("row", "column") or grid.layout.isdigit()
        else None
    )
    return shape(grid.dims) + ("" if fastest is None else f" (dimension {fastest} fastest)")


def _price(choice: GridChoice, i: int) -> float:
    """Return what the partners of a call cost on a grid, relations along all ranks as on a line."""
    found = choice.explained[i]
    several = choice.family.ndims > 1
    return found.cost - _ALL_RANKS * several * sum(
        isinstance(r, Staged) and r.along is None for r in found.relations
    )


def misled(model: Model, report: HoldOut, free: Callable[[], HoldOut]) -> str:
    """Return why a grid cannot be the program's by the count that was held out, "" where it can.

    report: the hold-out on that grid; free: makes the one without. Only where the smaller counts
    show every dimension does it say something of the grid that messages are missed.
    """
    last = max(model.counts)
    smaller = [dims for n, dims in model.grid.dims.items() if int(n) < last]
    wrong = _missed(report)
    if (
        not wrong
        or any(max(extents) < 2 for extents in zip(*smaller, strict=True))
        or len(smaller[0]) == 1
        or _missed(free()) != 0
    ):
        return ""
    here = shape(model.grid.dims[str(last)])
    messages = report.comparison.p2p_triples.true if report.comparison else 0
    return (
        f"rules of the smaller counts miss {wrong:,} of {messages:,} messages at "
        f"{processes(last)} on a grid of {here}, and none without it"
    )


def _missed(report: HoldOut) -> int | None:
    """Return how many messages of a held-out count were not predicted, None if it said nothing."""
    if report.comparison is None:
        return None
    messages = report.comparison.p2p_triples
    return max(messages.true, messages.predicted) - messages.equal
