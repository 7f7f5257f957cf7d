"""Work of segments over several settings: one law for the same code, in blocks, n and parameters.

The shapes are those of p3s.model.work.features with the blocks' extents following the
parameters, and shapes of n times powers of the parameters for what no message shows. All samples
of all settings and counts are fitted together: the code is the same, so is its cost. An extent
that follows the parameters is a symbol: the place of its number, joined by dots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from p3s.base.settings import Setting
from p3s.costs.parameters.alike import (
    Alike,
    Differs,
    Numbers,
    Path,
    as_fraction,
    join_values,
    replace_numbers,
)
from p3s.costs.parameters.laws import find_number, with_values
from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, mul, num, power, sym, symbols_of
from p3s.laws.statistics import PER_DOUBLING
from p3s.laws.sums import SELDOM, near, search_sums
from p3s.model.evaluate import model_grid
from p3s.model.sizes.observed import env_of
from p3s.model.tree import assign
from p3s.model.types import Model
from p3s.model.work.features import ONCE, Feature, features, values_of
from p3s.model.work.flows import Run, run_of
from p3s.model.work.segments import counts_and_work, places_of, samples_at, segment_of, thin_samples
from p3s.model.work_types import Case, PhaseWork, Segment, WorkPlace

#: Ranks per setting and count that a law is fitted to.
_RANKS = 64
#: Numbers that stand in for the extents that follow the parameters while shapes are made.
_MARK = 10**9

Place = tuple[str, str]
Term = tuple[float, Expr, str]


def fit_family_work(part: Alike, use: Sequence[int]) -> dict[str, Segment]:
    """Return the laws of all segments, by where they start and end; use: numbers of the members."""
    places = places_of(part.members[0].model.items)
    runs, basis = _runs(part, use, places)
    spent: dict[tuple[int, int], float] = {}
    for run in runs:
        for a, b in np.unique(run.segments[:, 1:3], axis=0).astype(int).tolist():
            mine = (run.segments[:, 1] == a) & (run.segments[:, 2] == b)
            spent[a, b] = spent.get((a, b), 0.0) + float(run.segments[mine, 4].sum())
    names = list(places)
    laws: dict[str, Segment] = {}
    like: list[tuple[int, ...]] = []
    for a, b in sorted(sorted(spent), key=lambda pair: -spent[pair]):
        law, terms = _law(runs, a, b, basis, like)
        like.append(terms)
        laws[_key(names[a] if a >= 0 else None, names[b])] = law
    return laws


def _key(a: Place | None, b: Place) -> str:
    return f"{'' if a is None else ':'.join(a)} > {':'.join(b)}"


def _runs(
    part: Alike, use: Sequence[int], places: Mapping[Place, int]
) -> tuple[list[Run], list[Feature]]:
    """Return the traced counts of all settings by places of the family, and their features."""
    basis = family_features(part, use)
    out = []
    for m in use:
        model, setting = part.members[m].model, part.members[m].setting
        of_item = np.array([places[(it.site, it.op)] for it in model.items] + [-1], dtype=np.int64)
        known = symbols({path: values[m] for path, values in part.numbers.items()})
        exprs = [with_values(f.expr, {**setting, **known}) for f in basis]
        for t in sorted(part.members[m].tables, key=lambda t: t.np):
            grid = model_grid(model, t.np)
            item = np.minimum(assign(model.items, t, grid, model.splits).of_row, len(model.items))
            out.append(run_of(t, grid, of_item[item], places))
            env = env_of(grid, np.arange(grid.n))
            columns = [values_of(expr, env) for expr in exprs]
            out[-1].features = np.stack(columns, axis=1)
    return out, basis


def symbols(numbers: Mapping[Path, Any]) -> dict[str, Fraction]:
    """Return the values of the symbols that stand for numbers in features."""
    return {
        symbol(path): as_fraction(value)
        for path, value in numbers.items()
        if isinstance(value, (Fraction, float))
    }


def symbol(path: Path) -> str:
    """Return the name of the place of a number: in features, and in family.json."""
    return ".".join(map(str, path))


def family_features(part: Alike, use: Sequence[int]) -> list[Feature]:
    """Return the shapes of work: those of a model, extents as symbols, and powers of parameters."""
    marks: dict[Any, int] = {}
    name_of: dict[int, str] = {}
    marked: dict[Path, Fraction] = {}
    for path, values in part.numbers.items():
        if path[0] == "items" and isinstance(values[0], (Fraction, float)):
            mark = marks.setdefault(tuple(values), _MARK + len(marks))
            name_of.setdefault(mark, symbol(path))
            marked[path] = Fraction(mark)
    items = replace_numbers(part.members[0].model, marked).items
    sizes = [slot.elements.expr for it in items for slot in it.slots if slot.elements.expr]

    def unmarked(expr: Any) -> Any:
        if not isinstance(expr, list):
            return expr
        if expr[0] == "num" and expr[1] in name_of:
            return sym(name_of[expr[1]])
        return [unmarked(e) for e in expr]

    ndims = part.members[0].model.grid.family.ndims
    out = [replace(f, expr=unmarked(f.expr)) for f in features(sizes, ndims)]
    names = [
        name
        for name in part.members[use[0]].setting
        if len({part.members[m].setting[name] for m in use}) > 1
    ]
    out += _of_parameters(names)
    return sorted(out, key=lambda f: f.bits)


def _of_parameters(names: Sequence[str]) -> list[Feature]:
    """Return shapes of n times products of powers of the parameters, up to the third power."""
    n = sym("n")
    shapes: list[tuple[Expr, float]] = [
        (power(n, -1), 1.5),
        (num(1), 1.8),
        (["pow", n, -1, 2], 2.2),
        (["pow", n, -2, 3], 2.2),
    ]
    out = []
    for powers in product(range(4), repeat=len(names)):
        if not 0 < sum(powers) <= 3:
            continue
        whole = mul(*(power(sym(name), e) for name, e in zip(names, powers, strict=True) if e))
        out += [Feature(mul(whole, e), bits + 0.1 * sum(powers)) for e, bits in shapes]
        out.append(Feature(mul(whole, power(n, -1)), SELDOM + 0.2 + 0.1 * sum(powers), ONCE))
        out.append(Feature(whole, SELDOM + 0.1 * sum(powers), ONCE))
    for name in names:
        size = mul(sym(name), power(n, -1))
        out.append(Feature(mul(size, ["log2", ["max", size, num(1)]]), 2.4))
    return out


def _law(
    runs: Sequence[Run], a: int, b: int, basis: Sequence[Feature], like: Sequence[tuple[int, ...]]
) -> tuple[Segment, tuple[int, ...]]:
    """Return the law of one occurrence of the segment from place a to place b, and its terms."""
    seen, label = [], []
    for number, run in enumerate(runs):
        mine = run.segments[(run.segments[:, 1] == a) & (run.segments[:, 2] == b)]
        (count,), (work,) = counts_and_work(mine, [a], run.grid.n)
        samples = samples_at(run, count, work, (a, b), basis)
        if samples is not None:
            seen.append(thin_samples(samples, _RANKS))
            label.append(np.full(len(seen[-1].ranks), number))
    x = np.concatenate([s.features for s in seen])
    y = np.concatenate([s.work for s in seen])
    bits, nest = [f.bits for f in basis], [i for i, f in enumerate(basis) if f.nest]
    found = near(search_sums(x, y, np.concatenate(label), bits, nest, like))
    laws = [law for _, law in found]
    return segment_of(laws, seen, basis), laws[0].which


# ---- the places of a model at one setting ----------------------------------------------------
def work_at(
    part: Alike,
    order: Sequence[int],
    laws: Mapping[str, Segment],
    setting: Setting,
    known: Mapping[str, Fraction],
    beyond: float,
) -> list[PhaseWork]:
    """Return the work of all phases at a setting.

    order: members, the nearest first. known: values of the symbols that stand for numbers.
    beyond: doublings by which the setting lies outside those fitted: the errors of laws grow by
    half as much again with each.
    """
    values = {**setting, **known}

    def terms(raw: Sequence[Term]) -> tuple[Term, ...]:
        return tuple(_term(c, with_values(expr, values), message) for c, expr, message in raw)

    def segment(own: Segment, law: Segment | None) -> Segment:
        if law is None:
            return own
        return Segment(
            terms=terms(law.terms),
            error=law.error * (1 + PER_DOUBLING * beyond),
            rivals=tuple(terms(r) for r in law.rivals),
            counts=law.counts,
        )

    def at(place: WorkPlace) -> WorkPlace:
        segments = (
            segment(own, laws.get(_key(a, place.place)))
            for a, own in zip(place.before, place.segments, strict=True)
        )
        cases = _cases(part, order, place, setting)
        return replace(place, segments=tuple(segments), cases=cases)

    return [
        replace(phase.work, measured={}, points=(), places=tuple(map(at, phase.work.places)))
        for phase in part.members[order[0]].model.phases
    ]


def _term(coef: float, expr: Expr, message: str) -> Term:
    """Return a term with the numbers among its factors in the coefficient."""
    parts: list[Expr] = []

    def take(e: Expr) -> None:
        nonlocal coef
        if e[0] == "mul":
            for inner in e[1:]:
                take(inner)
        elif not symbols_of(e) and (value := exact_value(e, {})) is not None:
            coef *= float(value)
        else:
            parts.append(e)

    take(expr)
    return coef, mul(*parts), message


def _cases(
    part: Alike, order: Sequence[int], place: WorkPlace, setting: Setting
) -> tuple[Case, ...]:
    """Return how often segments occur, numbers as laws where other settings have the same cases.

    Where they have not, the cases are those of the first member: the nearest setting.
    """
    others = [
        (part.members[m].setting, twin.cases)
        for m in order
        if (twin := _twin(part.members[m].model, place)) is not None
    ]
    numbers: Numbers = {}
    try:
        made = join_values([cases for _, cases in others], numbers)[0]
    except Differs:
        return place.cases
    laws = {path: find_number([s for s, _ in others], v) for path, v in numbers.items()}
    cases: tuple[Case, ...] = replace_numbers(
        made, {p: law.rounded(setting) for p, law in laws.items()}
    )
    return cases


def _twin(model: Model, place: WorkPlace) -> WorkPlace | None:
    """Return the same place of another model, with the same calls before."""
    every = (p for phase in model.phases for p in phase.work.places)
    twin = next((p for p in every if p.place == place.place), None)
    return twin if twin is not None and twin.before == place.before else None
