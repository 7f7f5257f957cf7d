"""Work of segments over several settings: one law for the same code, in blocks, n and parameters.

The shapes are those of p3s.model.work.features with the blocks' extents following the
parameters, and shapes of n times powers of the parameters for what no message shows. All samples
of all settings and counts are fitted together: the code is the same, so is its cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from p3s.base.serialise import from_data, to_data
from p3s.base.settings import Setting
from p3s.costs.parameters.align import Alike, number_at
from p3s.costs.parameters.tree import Differs, Leaves, fill, join, leaves_of
from p3s.costs.parameters.types import SegmentLaws, find_number, with_values
from p3s.laws.exact import exact_value
from p3s.laws.expr import Expr, mul, num, power, sym, symbols_of
from p3s.model.evaluate import model_grid
from p3s.model.sizes.observed import env_of
from p3s.model.tree import assign
from p3s.model.types import Item
from p3s.model.work.features import ONCE, Feature, feature_values, features
from p3s.model.work.flows import Run, run_of
from p3s.model.work.segments import (
    counts_and_work,
    most_terms,
    places_of,
    samples_at,
    segment_of,
    thinned,
)
from p3s.model.work.sparse import fit_sparse
from p3s.model.work_types import Case, Segment, WorkPlace
from p3s.signature.tables import PointTable

#: Ranks per setting and count that a law is fitted to.
_RANKS = 64
#: Numbers that stand in for the extents that follow the parameters while shapes are made.
_MARK = 10**9

Place = tuple[str, str]
Term = tuple[float, Expr, str]


def fit_family_work(
    part: Alike, use: Sequence[int], tables: Mapping[int, Sequence[PointTable]]
) -> SegmentLaws:
    """Return the laws of all segments.

    use: numbers of the members; tables: of each of them.
    """
    items = _items(part, use[0])
    places = places_of(items)
    runs, basis = _runs(part, use, tables, places)
    most = most_terms(runs)
    laws: dict[str, Segment] = {}
    like: list[tuple[int, ...]] = []
    pairs = sorted(
        {(int(a), int(b)) for run in runs for a, b in np.unique(run.segments[:, 1:3], axis=0)},
        key=lambda pair: (
            -sum(
                float(
                    run.segments[
                        (run.segments[:, 1] == pair[0]) & (run.segments[:, 2] == pair[1]), 4
                    ].sum()
                )
                for run in runs
            )
        ),
    )
    names = list(places)
    for a, b in pairs:
        law, terms = _law(runs, a, b, basis, most[(a, b)], like)
        like.append(terms)
        laws[_key(names[a] if a >= 0 else None, names[b])] = law
    return SegmentLaws(laws)


def _key(a: Place | None, b: Place) -> str:
    return f"{'' if a is None else ':'.join(a)} > {':'.join(b)}"


def _items(part: Alike, m: int) -> list[Item]:
    """Return the items of one member in the order that all have in common."""
    member = part.members[m]
    order = sorted(range(len(member.number)), key=lambda i: member.number[i])
    return [member.model.items[i] for i in order]


def _at_member(part: Alike, tree: Any, m: int) -> Any:
    """Return a tree with the numbers that it has at a member."""
    values = part.leaves.values
    return fill(tree, lambda k: values[k][m], lambda k: values[k][m])


def _runs(
    part: Alike,
    use: Sequence[int],
    tables: Mapping[int, Sequence[PointTable]],
    places: Mapping[Place, int],
) -> tuple[list[Run], list[Feature]]:
    """Return the traced counts of all settings by places of the family, and their features."""
    basis = family_features(part, use)
    out = []
    for m in use:
        member = part.members[m]
        items = _items(part, m)
        of_item = np.array([places[(it.site, it.op)] for it in items] + [-1], dtype=np.int64)
        exprs = [with_values(_at_member(part, f.expr, m), member.setting) for f in basis]
        for t in sorted(tables[m], key=lambda t: t.np):
            grid = model_grid(member.model, t.np)
            item = np.minimum(assign(items, t, grid, member.model.splits).of_row, len(items))
            out.append(run_of(t, grid, of_item[item], places))
            env = env_of(grid, np.arange(grid.n))
            columns = [feature_values(Feature(expr, 0.0), env, {}) for expr in exprs]
            out[-1].features = np.stack(columns, axis=1)
    return out, basis


def family_features(part: Alike, use: Sequence[int]) -> list[Feature]:
    """Return the shapes of work: those of a model, extents as leaves, and powers of parameters."""
    marks: dict[Any, int] = {}
    mark_of: dict[int, int] = {}
    for k, (kind, values) in enumerate(zip(part.leaves.kind, part.leaves.values, strict=True)):
        if kind == "number":
            mark_of[k] = marks.setdefault(tuple(values), _MARK + len(marks))
    leaf_of = {mark: k for k, mark in reversed(mark_of.items())}
    marked = fill(
        part.tree["items"], lambda k: Fraction(mark_of[k]), lambda k: part.leaves.values[k][use[0]]
    )
    sizes = [s["elements"]["expr"] for it in marked for s in it["slots"] if "expr" in s["elements"]]
    ndims = int(part.tree["grid"]["ndims"])

    def unmarked(expr: Any) -> Any:
        if not isinstance(expr, list):
            return expr
        if expr[0] == "num" and expr[1] in leaf_of:
            return ["num", {"law": leaf_of[expr[1]]}]
        return [unmarked(e) for e in expr]

    out = []
    for f in features(sizes, ndims):
        out.append(Feature(unmarked(f.expr), f.cost, f.message, f.nest))
    names = [
        name
        for name in part.members[use[0]].setting
        if len({part.members[m].setting[name] for m in use}) > 1
    ]
    out += _of_parameters(names)
    return sorted(out, key=lambda f: f.cost)


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
        for expr, cost in shapes:
            out.append(Feature(mul(whole, expr), cost + 0.1 * sum(powers)))
        out.append(Feature(mul(whole, power(n, -1)), 6.2 + 0.1 * sum(powers), ONCE))
        out.append(Feature(whole, 6.0 + 0.1 * sum(powers), ONCE))
    for name in names:
        size = mul(sym(name), power(n, -1))
        out.append(Feature(mul(size, ["log2", ["max", size, num(1)]]), 2.4))
    return out


def _law(
    runs: Sequence[Run],
    a: int,
    b: int,
    basis: Sequence[Feature],
    max_terms: int,
    like: Sequence[tuple[int, ...]],
) -> tuple[Segment, tuple[int, ...]]:
    """Return the law of one occurrence of the segment from place a to place b, and its terms."""
    seen, label = [], []
    for number, run in enumerate(runs):
        mine = run.segments[(run.segments[:, 1] == a) & (run.segments[:, 2] == b)]
        (count,), (work,) = counts_and_work(mine, [a], run.grid.n)
        samples = samples_at(run, count, work, (a, b), basis)
        if samples is not None:
            seen.append(thinned(samples, _RANKS))
            label.append(np.full(len(seen[-1].ranks), number))
    x = np.concatenate([s.features for s in seen])
    y = np.concatenate([s.work for s in seen])
    nest = [i for i, f in enumerate(basis) if f.nest]
    # met by as many samples as terms is met by chance
    enough = len({(v, *row) for v, row in zip(y.tolist(), x[:, nest].tolist(), strict=True)})
    fit = fit_sparse(
        x,
        y,
        np.concatenate(label),
        [f.cost for f in basis],
        nest if enough >= len(nest) + 2 else [],
        [i for i, f in enumerate(basis) if f.falls and not leaves_of(f.expr)],
        max_terms,
        like,
    )
    return segment_of(fit, None, seen, basis), fit.terms


# ---- the places of a model at one setting ----------------------------------------------------
def places_at(
    part: Alike, use: Sequence[int], work: SegmentLaws, setting: Setting, filled: Any, beyond: float
) -> dict[Place, WorkPlace]:
    """Return the places of all phases at a setting, by (site, operation).

    filled: (tree) -> tree without leaves at the setting; beyond: doublings by which the setting
    lies outside those fitted: the errors of laws grow by half as much again with each.
    """
    near = part.members[use[0]]
    out: dict[Place, WorkPlace] = {}

    def terms(raw: Sequence[Term]) -> tuple[Term, ...]:
        return tuple(
            _term(c, with_values(filled(expr), setting), message) for c, expr, message in raw
        )

    for phase in near.model.phases:
        for place in phase.work.places:
            segments = []
            for a, own in zip(place.before, place.segments, strict=True):
                law = work.segments.get(_key(a, place.place))
                segments.append(
                    own
                    if law is None
                    else Segment(
                        terms=terms(law.terms),
                        error=law.error * (1 + 0.5 * beyond),
                        rivals=tuple(terms(r) for r in law.rivals),
                        counts=law.counts,
                    )
                )
            items = [near.number[i] for i in place.items]
            out[place.place] = replace(
                place,
                segments=tuple(segments),
                cases=_cases(part, use, place, setting),
                items=tuple(sorted(items)),
                rows=tuple(row for _, row in sorted(zip(items, place.rows, strict=True))),
            )
    return out


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


def _cases(part: Alike, use: Sequence[int], place: WorkPlace, setting: Setting) -> tuple[Case, ...]:
    """Return how often segments occur, numbers as laws where other settings have the same cases.

    Where they have not, the cases are those of the first member: the nearest setting.
    """
    others = []
    for m in use:
        found = next(
            (
                p
                for phase in part.members[m].model.phases
                for p in phase.work.places
                if p.place == place.place
            ),
            None,
        )
        if found is not None and found.before == place.before:
            others.append((part.members[m].setting, to_data(found.cases)))
    leaves = Leaves()
    try:
        tree = join([cases for _, cases in others], leaves)
    except Differs:
        return place.cases
    laws = [find_number([s for s, _ in others], values) for values in leaves.values]
    made = fill(tree, lambda k: number_at(laws[k], setting), lambda k: {})
    return from_data(tuple[Case, ...], made)
