"""Which count to trace next: every count is scored by the open questions its trace would settle."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.text import join_words
from p3s.model.evaluate import model_grid
from p3s.model.grid import admissible
from p3s.model.grid.at import GridAt, GridRule
from p3s.model.grid.domain_grids import TracedGrid
from p3s.model.law_types import CountLaw, SizeLaw
from p3s.model.partners.relation import Relation
from p3s.model.reasons import Code, Verdict
from p3s.model.sizes.observed import differ
from p3s.model.types import NO_SHARE, Decision, Item, Model, NextCount
from p3s.model.verdicts import items_with_rivals, partners_differ, ranks_differ

#: Counts proposed at most, each for what those before it leave open.
MAX_PROPOSED = 3
#: A question is worth at least this, however small its share of the program.
_LEAST = 1e-3
#: Larger counts cost more: their score falls by this share with each doubling. So do counts that
#: nobody asks a batch system for: a factor of 13 costs as much as the doublings up to it.
_DOUBLING = 0.1
#: What a count that merely tests a rule is worth, beside one that decides between two.
_MERELY_SURER = 0.2


@dataclass(frozen=True)
class Question:
    """Something the traced counts leave open; decides: whether a count's trace settles it.

    weight: the share of the program that hangs on it, in events or bytes, whichever is more.
    differ: whether the text names what rules that still fit differ in.
    """

    text: str
    weight: float
    decides: Callable[[GridAt], bool]
    differ: bool = False


def next_counts(model: Model) -> tuple[NextCount, ...]:
    """Return counts worth tracing next, the most telling first.

    The score of a count is the sum of the shares of the questions it settles, less the cost of a
    larger or less round count. A count is proposed only for what those before it leave open.
    """
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
    larger = admissible.larger(known)
    if isinstance(model.grid.family, TracedGrid) and larger is not None:
        extents = Decision("no rule gives the extents of the process grid so far", 1.0)
        return (NextCount(larger, (), 1.0, (extents,)),)
    left = [(q, _answers(q, grids)) for q in questions(model, grids)]
    while left and len(out) < MAX_PROPOSED:
        best: tuple[float, int] | None = None
        for n in grids:
            settled = sum(q.weight for q, decides in left if decides[n])
            doublings = max(0.0, math.log2(n / top)) + math.log2(_largest_factor(n))
            score = settled / (1.0 + _DOUBLING * doublings)
            if settled and (best is None or score > best[0] + 1e-9):
                best = (score, n)
        if best is None:
            break
        grid = grids.pop(best[1])
        decided = [q for q, decides in left if decides[grid.n]]
        left = [(q, decides) for q, decides in left if not decides[grid.n]]
        out.append(NextCount(grid.n, tuple(grid.dims), round(best[0], 6), _decisions(decided)))
    return tuple(out)


def _largest_factor(n: int) -> int:
    """Return the largest prime factor of a count, 1 of 1."""
    largest, at = 1, 2
    while n > 1:
        if n % at:
            at += 1
        else:
            largest, n = at, n // at
    return largest


def _decisions(decided: Sequence[Question]) -> tuple[Decision, ...]:
    """Return what a count settles, the most telling first; what rules differ in is one sentence."""
    texts: dict[str, float] = {}
    ranked = sorted(decided, key=lambda q: -q.weight)
    for q in ranked:
        if not q.differ:
            texts[q.text] = texts.get(q.text, 0.0) + q.weight
    what = [q for q in ranked if q.differ]
    if what:
        named = join_words(dict.fromkeys(q.text for q in what))
        texts[f"the rules that still fit differ there in {named}"] = sum(q.weight for q in what)
    in_order = sorted(texts.items(), key=lambda t: -t[1])
    return tuple(Decision(text, round(min(1.0, weight), 6)) for text, weight in in_order)


def _answers(q: Question, grids: Mapping[int, GridAt]) -> dict[int, bool]:
    """Return at which counts a question is settled."""
    return {n: q.decides(grid) for n, grid in grids.items()}


def questions(model: Model, grids: Mapping[int, GridAt]) -> Iterator[Question]:
    """Yield what is open: directions, blocks, rival rules and grids, calls seen too seldom.

    grids: the counts that will be asked about; what takes long is answered for all at once.
    """
    yield from _directions(model)
    yield from _extents(model)
    yield from _partners(model)
    yield from _sizes(model, list(grids.values()))
    yield from _grids(model)
    yield from _seldom(model)
    top = max(model.counts)
    yield from _propose_tests(model, top)
    if model.growth.still:
        yield Question(
            "shows whether the set of calls still grows",
            max(_LEAST, model.growth.bound.events),
            lambda g: g.n > top,
        )


def _weight(item: Item) -> float:
    share = item.share or NO_SHARE
    return max(_LEAST, share.events, share.bytes)


def _extents(model: Model) -> Iterator[Question]:
    about = {
        Code.ONE_EXTENT: "who the partners along it are",
        Code.CONSTANT_OPEN: "which sizes depend on it",
    }
    weights: dict[tuple[Code, int], float] = {}
    far: dict[tuple[int, int], float] = {}
    for item in model.items:
        for why in item.why:
            for d in (why.dims or ()) if why.code == Code.DOMAIN_OPEN else ():
                far[d, why.at] = far.get((d, why.at), 0.0) + _weight(item)
            for d in (why.dims or ()) if why.code in about else ():
                weights[why.code, d] = weights.get((why.code, d), 0.0) + _weight(item)
    for (code, d), weight in sorted(weights.items()):
        traced = {dims[d] for dims in model.grid.dims.values()}
        text = f"another number of ranks in dimension {d} shows {about[code]}"
        yield Question(text, weight, partial(_another_extent, d, traced))
    for (d, most), weight in sorted(far.items()):
        text = f"more than {most} ranks in dimension {d} show whether partners are further away"
        yield Question(text, weight, partial(_more_ranks, d, most))


def _another_extent(dimension: int, traced: Collection[int], g: GridAt) -> bool:
    return g.dims[dimension] not in traced


def _more_ranks(dimension: int, most: int, g: GridAt) -> bool:
    return g.dims[dimension] > most


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


def _sizes(model: Model, grids: Sequence[GridAt]) -> Iterator[Question]:
    answers: dict[str, dict[int, bool]] = {}  # many slots have the same law and rivals
    for item in model.items:
        for slot in item.slots:
            law = slot.elements
            if slot.guard is None:
                continue
            if slot.guard_rivals:
                yield Question(
                    "which ranks take part", _weight(item), partial(ranks_differ, slot), differ=True
                )
            for what, each in (("size", law), ("number of messages", slot.count)):
                if each.rivals:
                    known = answers.setdefault(repr((each.expr, each.rivals, slot.relation)), {})
                    yield Question(
                        f"the {what}",
                        _weight(item),
                        partial(_rules_differ, each, slot.relation, known, grids),
                        differ=True,
                    )


def _rules_differ(
    law: SizeLaw | CountLaw,
    relation: Relation | None,
    known: dict[int, bool],
    grids: Sequence[GridAt],
    g: GridAt,
) -> bool:
    """Tell whether rules for a number differ at a count, one of ``grids``.

    known: the answers, which are asked for several times.
    """
    if not known:
        for alike in {len(each.dims) for each in grids}:
            some = [each for each in grids if len(each.dims) == alike]
            known.update(zip((e.n for e in some), differ(law, some, relation), strict=True))
    return known[g.n]


def _partners(model: Model) -> Iterator[Question]:
    weights: dict[object, float] = {}
    nodes: dict[object, list[Item]] = {}
    for items in items_with_rivals(model).values():
        key = tuple((i.relation, tuple(s.guard for s in i.slots), i.rivals) for i in items)
        weights[key] = weights.get(key, 0.0) + sum(map(_weight, items))
        nodes[key] = items
    for name, items in nodes.items():
        yield Question(
            "the partners", weights[name], partial(_partners_differ, items, {}), differ=True
        )


def _partners_differ(items: Sequence[Item], known: dict[int, bool], g: GridAt) -> bool:
    """Tell whether rival relations of a node differ at a count, which is asked several times."""
    if g.n not in known:
        known[g.n] = partners_differ(items, g)
    return known[g.n]


def _grids(model: Model) -> Iterator[Question]:
    """Other process grids that explain what was traced as well."""
    rules = [*model.grid.rivals, *(other.rule for other in model.grid.others)]
    if rules:
        weight = sum(_weight(item) for item in model.items if item.relation is not None)
        yield Question(
            "the process grid",
            min(weight, 1.0) * 0.5,
            lambda g: any(_differs(rule, g) for rule in rules),
            differ=True,
        )


def _differs(rule: GridRule, g: GridAt) -> bool:
    """Tell whether a rule gives no grid there, or one that is another however it is turned."""
    there = rule.at(g.n)
    if there is None or len(there.dims) == len(g.dims):
        return there is None or not np.array_equal(there.coords, g.coords)
    return sorted(p for p in there.dims if p > 1) != sorted(p for p in g.dims if p > 1)


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


def _propose_tests(model: Model, top: int) -> Iterator[Question]:
    """What no count decides alone, but each further one makes surer."""
    about = {
        Verdict.FITTED: "tests the rules that the fit without the largest count missed",
        Verdict.STATISTICAL: "makes surer how what has no exact rule grows",
    }
    for verdict, text in about.items():
        weak = [item for item in model.items if item.verdict == verdict]
        weight = sum(_weight(item) for item in weak)
        if weak:
            yield Question(text, _MERELY_SURER * min(1.0, weight), lambda g: g.n > top)
