"""Which count to trace next: every count is scored by the open questions its trace would settle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from p3s.errors import P3SError
from p3s.model.evaluate import model_grid
from p3s.model.grid import admissible
from p3s.model.grid.grids import GridRule, candidate_rules
from p3s.model.grid.guards import GridAt
from p3s.model.grid.nodes import grid_at
from p3s.model.grid.stated import rules
from p3s.model.reasons import Code, Verdict
from p3s.model.sizes.rivals import differ_at
from p3s.model.types import NO_SHARE, Decision, Item, Model, NextCount

#: Counts proposed at most, each for what those before it leave open.
MAX_PROPOSED = 3
#: A question is worth at least this, however small its share of the program.
_LEAST = 1e-3
#: Larger counts cost more: their score falls by this share with each doubling.
_DOUBLING = 0.1


@dataclass(frozen=True)
class Question:
    """Something the traced counts leave open; decides: whether a count's trace settles it.

    weight: the share of the program that hangs on it, in events or bytes, whichever is more.
    """

    text: str
    weight: float
    decides: Callable[[GridAt], bool]


def next_counts(model: Model) -> tuple[NextCount, ...]:
    """Return counts worth tracing next, the most telling first.

    The score of a count is the sum of the shares of the questions it settles, less the cost of a
    larger count. A count is proposed only for what those before it leave open.
    """
    left = list(questions(model))
    known, top = model.admissible, max(model.counts)
    grids: dict[int, GridAt] = {}
    for n in admissible.candidates(known, 8 * top + 28):
        if n in model.counts or n in known.counts:
            continue
        try:
            grids[n] = model_grid(model, n)
        except P3SError:
            continue
    out: list[NextCount] = []
    while left and len(out) < MAX_PROPOSED:
        best: tuple[float, int] | None = None
        for n, grid in grids.items():
            settled = sum(q.weight for q in left if q.decides(grid))
            score = settled / (1.0 + _DOUBLING * max(0.0, math.log2(n / top)))
            if settled and (best is None or score > best[0] + 1e-9):
                best = (score, n)
        if best is None:
            break
        grid = grids.pop(best[1])
        decided = [q for q in left if q.decides(grid)]
        left = [q for q in left if q not in decided]
        decided.sort(key=lambda q: -q.weight)
        decisions = tuple(Decision(q.text, round(q.weight, 6)) for q in decided)
        out.append(NextCount(grid.n, tuple(grid.dims), round(best[0], 6), decisions))
    return tuple(out)


def questions(model: Model) -> Iterator[Question]:
    """Yield what is open: directions, blocks, rival rules and grids, calls seen too seldom."""
    yield from _directions(model)
    yield from _sizes(model)
    yield from _grids(model)
    yield from _seldom(model)
    if model.growth.still:
        top = max(model.counts)
        yield Question(
            "shows whether the set of calls still grows",
            max(_LEAST, model.growth.bound.events),
            lambda g: g.n > top,
        )


def _weight(item: Item) -> float:
    share = item.share or NO_SHARE
    return max(_LEAST, share.events, share.bytes)


def _directions(model: Model) -> Iterator[Question]:
    axes: dict[tuple[int, ...], float] = {}
    for item in model.items:
        for why in item.why:
            if why.code == Code.DIRECTION:
                axes[why.dims] = axes.get(why.dims, 0.0) + _weight(item)
    if not axes:
        return
    for key, weight in sorted(axes.items()):
        # what one count tells of several dimensions is one sentence
        text = (
            "more than two ranks in dimension "
            + ", ".join(map(str, sorted({d for k in axes for d in k})))
            + " tell the direction"
        )
        yield Question(text, weight, partial(_three_ranks, key))


def _three_ranks(dimensions: Iterable[int], g: GridAt) -> bool:
    return all(g.dims[d] >= 3 for d in dimensions)


def _leaves_remainder(expr: Any, g: GridAt) -> bool:
    return _uneven(expr, {"n": g.n, **_dims(g)})


def _sizes(model: Model) -> Iterator[Question]:
    for item in model.items:
        for slot in item.slots:
            law = slot.elements
            if law.expr is None or slot.guard is None:
                continue
            if law.even and any(w.code == Code.REMAINDER_OPEN for w in slot.why):
                yield Question(
                    "its blocks show how the program deals with a remainder",
                    _weight(item),
                    partial(_leaves_remainder, law.expr),
                )
            if law.rivals:
                yield Question(
                    "rules for the size that fit so far differ there",
                    _weight(item),
                    partial(differ_at, law),
                )


def _grids(model: Model) -> Iterator[Question]:
    """Rules for the process grid that need no more relations than the one chosen."""
    chosen = model.grid.family
    tied = tied_families(model)
    if not tied or chosen.ndims < 2 and all(f.ndims < 2 for f in tied):
        return
    weight = sum(_weight(item) for item in model.items if item.relation is not None)

    def decides(g: GridAt) -> bool:
        return any(
            (there := grid_at(f, g.n)) is None
            or there.dims != g.dims
            or not np.array_equal(there.coords, g.coords)
            for f in tied
        )

    yield Question(
        "rules for the process grid that explain as much differ there",
        min(weight, 1.0) * 0.5,
        decides,
    )


def tied_families(model: Model) -> list[GridRule]:
    """Return the other rules for the grid that explain the partners as cheaply as the chosen."""
    costs: dict[str, float] = dict(model.grid.considered)
    chosen, known = model.grid.family, model.grid.stated
    least = costs.get(chosen.text())
    if least is None or model.grid.cart:
        return []
    counts = list(model.counts)
    return [
        f
        for f in (rules(known, counts, {}, {}) if known else candidate_rules(counts))
        if f != chosen and costs.get(f.text(), math.inf) <= least + 1e-9 and f.ndims == chosen.ndims
    ]


def _seldom(model: Model) -> Iterator[Question]:
    few = [
        item
        for item in model.items
        if item.verdict in (Verdict.FITTED, Verdict.AMBIGUOUS)
        and any(w.code in (Code.ONE_COUNT, Code.TWO_COUNTS) for w in item.why)
    ]
    if few:
        first = max(min(s.seen) for item in few for s in item.slots if s.seen)
        yield Question(
            "calls seen at one or two counts only are seen again",
            sum(_weight(item) for item in few),
            lambda g: g.n >= first,
        )


def _dims(g: GridAt) -> dict[str, int]:
    return {f"p{d}": p for d, p in enumerate(g.dims)}


def _uneven(expr: Any, env: Mapping[str, float]) -> bool:
    """Return whether some block of an expression has a remainder."""
    if not isinstance(expr, list):
        return False
    if expr[0] == "block" and expr[2][0] == "num" and expr[3][0] == "sym":
        return bool(expr[2][1] % int(env[expr[3][1]]))
    return any(_uneven(a, env) for a in expr[1:])
