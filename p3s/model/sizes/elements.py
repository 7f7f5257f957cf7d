"""Element counts and numbers of communications as laws of extents, coordinates, stages, turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from p3s.laws.counts import Law
from p3s.laws.exact import evaluate_int
from p3s.laws.expr import Expr, add, evaluate, mul, num, sym
from p3s.laws.lawfinder import find_law
from p3s.model.law_types import CountLaw, IterationsLaw, Rival
from p3s.model.reasons import Code, Reason
from p3s.model.sizes.attempts import Attempts
from p3s.model.sizes.blocks import Axis, ExtentPool, FittedSize, Observations
from p3s.model.sizes.diagonal import fit_diagonal
from p3s.model.sizes.joint import joint_sizes, product_law
from p3s.model.sizes.levels import blocks_in, fit_chunks, fit_levels, scalar_law
from p3s.model.sizes.observed import Observed, env_of
from p3s.model.sizes.positions import decides, moving
from p3s.model.sizes.rankcounts import by_class, fit_rank_count

#: Different values that a symbol needs at one count, and rows beyond the numbers of a law.
_VALUES, _SPARE = 3, 3


def fit_branch(obs: Observations) -> FittedSize | None:
    """Return a size as a number times the ranks of a tree's branch: data dealt down a tree."""
    if "b" not in obs.env or np.any(obs.env["b"] <= 0):
        return None
    ranks = obs.env["b"]
    factor = int(obs.value[0]) // int(ranks[0])
    several = len(np.unique(ranks)) >= _VALUES
    if not (several and factor and np.array_equal(obs.value, factor * ranks)):
        return None
    return FittedSize(mul(num(factor), sym("b")), 1, len(np.unique(obs.env["n"])))


def fit_linear(obs: Observations) -> FittedSize | None:
    """Return a size as a * x + b or a * x + e * p + b, with whole numbers.

    x: the rank or a coordinate, or the partner's, the iteration or the stage; p: n or an extent.
    Laws of other symbols that meet all sizes, too, are kept beside the first.
    """
    found = list(_met(obs))
    if not found:
        return None
    (free, expr), *others = sorted(found, key=lambda each: each[0])
    points = len(np.unique(obs.env["n"]))
    return FittedSize(expr, free, points, others=tuple(e for _, e in others))


def _met(obs: Observations) -> Iterator[tuple[int, Expr]]:
    steps = [u for u in _symbols(obs, "rcqts") if _several(obs, u)]
    extents = [u for u in _symbols(obs, "np") if len(np.unique(obs.env[u])) > 1]
    for names in (*((x,) for x in steps), *((x, p) for x in steps for p in extents)):
        expr = _solved(obs, names)
        if expr is not None:
            yield len(names) + 1, expr
    if not steps:
        return
    for pair in combinations(steps, 2):
        expr = _solved(obs, pair)
        if expr is not None:
            yield len(pair) + 1, expr


def _symbols(obs: Observations, letters: str) -> list[str]:
    names = {"n", "r", "t", "s"} | {f"{k}{d}" for k in "pcq" for d in range(obs.ndims)}
    if obs.ndims == 1:
        names -= {"p0", "c0"}
    return [u for u in obs.env if u in names and u[0] in letters]


def _several(obs: Observations, name: str) -> bool:
    n = obs.env["n"]
    return any(len(np.unique(obs.env[name][n == m])) >= _VALUES for m in np.unique(n))


def _solved(obs: Observations, names: tuple[str, ...]) -> Expr | None:
    """Return the sum that meets every size, None where there is none or too little to show it."""
    columns = np.stack(
        [*(obs.env[u].astype(float) for u in names), np.ones(len(obs.value))], axis=1
    )
    if len(np.unique(columns, axis=0)) < columns.shape[1] + _SPARE:
        return None
    numbers, _, rank, _ = np.linalg.lstsq(columns, obs.value.astype(float), rcond=None)
    whole = np.rint(numbers).astype(np.int64)
    if rank < columns.shape[1] or np.any(np.abs(numbers - whole) > 1e-6) or np.any(whole[:-1] == 0):
        return None
    terms = [mul(num(int(k)), sym(u)) for k, u in zip(whole[:-1], names, strict=True)]
    expr = add(*terms, num(int(whole[-1])))
    return expr if np.array_equal(evaluate_int(expr, obs.env), obs.value) else None


def fit_elements(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return an exact law of the element counts that is no product of blocks, or None.

    obs: every (count, rank, stage, iteration) at which the slot was seen. A constant, laws of n and
    the extents, blocks at affine positions, sums over the cells of a multi-partition; sizes that
    change from turn to turn have laws of their own. Products of blocks are found for all slots
    together (p3s.model.sizes.joint), of which this law is one hypothesis. The extents of the law
    found are noted in ``pool``.
    """
    obs = distinct(obs)
    if len(obs.value) == 0:
        return None
    key = obs.digest()
    state, law = pool.known.get(key, (None, None))
    if state is None or (state != pool.state() and (law is None or law.open())):
        law = _fit(obs, pool)
        pool.known[key] = (pool.state(), law)
    result: FittedSize | None = law
    return result


def fit_alone(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the law of element counts, or of other numbers, that no other slot helps to find."""
    known = frozenset({*pool.typed, *pool.extents()})
    law = fit_elements(obs, pool)
    law = joint_sizes({0: (distinct(obs), law)}, known).get(0, law)
    for b in blocks_in(law.expr) if law is not None else ():
        if b[2][0] == "num":
            pool.note(b[2][1], b[1])
    return law


def known_law(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    """Return the law that was found for element counts."""
    law: FittedSize | None = pool.known.get(distinct(obs).digest(), (None, None))[1]
    return law


def distinct(obs: Observations) -> Observations:
    """Return the observations that tell something: each once, idle iterations forgotten."""
    return _without_idle(obs).unique()


def _without_idle(obs: Observations) -> Observations:
    """Forget iterations and stages that tell no sizes apart."""
    for u in moving(obs):
        rest = [obs.env[v] for v in ("t", "s") if v in obs.env and v != u]
        ranks = Axis(sym("n"), sym("r"), obs.env["n"], obs.env["r"])
        if decides(obs, [ranks], rest) or (
            "q0" in obs.env and decides(obs, _partner(obs), rest)  # the sender's own sizes
        ):
            env = {**obs.env, u: np.zeros(len(obs.value), dtype=np.int64)}
            obs = Observations(env, obs.value, obs.ndims, obs.across, obs.whole)
    return obs


def _partner(obs: Observations) -> list[Axis]:
    """Return the axes of the partner's place."""
    names = [(sym(f"p{d}"), sym(f"q{d}")) for d in range(obs.ndims)]
    return [Axis(p, q, obs.env[str(p[1])], obs.env[str(q[1])]) for p, q in names]


def _fit(obs: Observations, pool: ExtentPool) -> FittedSize | None:
    counts = np.unique(obs.env["n"])
    if np.all(obs.value == obs.value[0]):
        return FittedSize(num(int(obs.value[0])), 1, len(counts))
    if len(counts) < 2 or np.any(obs.value < 0):
        return None
    fit = Attempts(obs, pool, counts)
    law = next((law for step in _steps(fit) if (law := step()) is not None), None)
    if law is None or moving(obs):
        return law
    return replace(law, even=law.even or (law.free <= 2 and fit.fractional(law.expr)))


def _steps(fit: Attempts) -> Iterator[Callable[[], FittedSize | None]]:
    yield lambda: fit_branch(fit.obs)
    if moving(fit.obs):
        turned = [
            fit.level_scalar,
            fit.one,
            fit.header,
            fit.affine,
            lambda: fit_linear(fit.obs),
            lambda: fit_levels(fit.obs, fit.pool, fit_alone),
            lambda: fit_chunks(fit.obs, fit.pool, fit_alone),
        ]
        yield from turned
        return
    yield from (
        lambda: fit.scalar(1),
        lambda: product_law(fit.obs),
        fit.header,
        fit.scalar,
        fit.multiplied,
        fit.over_two,
        lambda: fit_linear(fit.obs),
        fit.affine,
        lambda: fit_diagonal(fit.obs, fit.pool),
        fit.complement,
        fit.one,
    )


#: Laws of numbers that differ by rank, by what was seen; so many are kept.
_BY_RANK: dict[bytes, CountLaw | None] = {}
_MOST_KNOWN = 1024


def fit_count(
    item: Observed, times: dict[int, np.ndarray], counts: list[int], varying: bool
) -> tuple[CountLaw, list[Reason]]:
    """Return how often each rank does it, and what keeps that from being surer.

    times: as traced, (stages, n) per count; varying: whether they differ from run to run.
    """
    ndims = len(item.grids[counts[0]].dims)
    envs: list[dict[str, int]] = []
    values: list[int] = []
    parts: list[tuple[dict[str, np.ndarray], np.ndarray]] = []
    exact = True
    for n in counts:
        s, r = _cells(item, times, n)
        if not len(s):
            continue
        got = times[n][s, r]
        g = item.grids[n]
        env = env_of(g, r, item.peers[n][s, r] if item.peers is not None else None, s)
        parts.append((env, got))
        if np.any(got != got[0]):
            exact = False
        envs.append(g.symbols)
        values.append(int(got[0]))
    if not parts:  # every cell is shared with another relation: each gets its part
        return _shared_count(item, times, counts), [Reason(Code.SHARED_PARTNER)]
    if exact and not varying:
        found = find_law(zip(envs, values, strict=True), "whole").law
        if found is not None:
            return exact_count(found), []
        why = Code.NO_COUNT
    elif not varying:
        names = set(parts[0][0])
        law = _by_rank(
            Observations(
                {k: np.concatenate([e[k] for e, _ in parts]) for k in names},
                np.concatenate([v for _, v in parts]),
                ndims,
            )
        )
        if law is not None:
            return law, []
        why = Code.COUNT_BY_RANK
    else:
        why = Code.COUNT_BY_REPEAT
    total = find_law(
        ((e["n"], int(v.sum())) for e, (_, v) in zip(envs, parts, strict=True)), "whole"
    ).law
    if total is not None and total.free < total.points:
        return CountLaw(total=total.expr), [Reason(why)]
    means = [float(v.mean()) for _, v in parts]
    return CountLaw(stat=find_law(zip(envs, means, strict=True), "work").fit), [Reason(why)]


def _by_rank(obs: Observations) -> CountLaw | None:
    """Return the law of numbers that differ by rank, found once for call sites with the same."""
    key = obs.digest()
    if key not in _BY_RANK:
        if len(_BY_RANK) >= _MOST_KNOWN:
            _BY_RANK.clear()
        _BY_RANK[key] = _fit_by_rank(obs)
    return _BY_RANK[key]


def _fit_by_rank(obs: Observations) -> CountLaw | None:
    by_rank = fit_rank_count(obs.env, obs.value, obs.ndims)
    if by_rank is not None and (by_rank.free < by_rank.points or by_class(by_rank.expr)):
        return exact_count(by_rank)
    law = fit_alone(obs, ExtentPool())
    if law is not None and law.points >= 2 and law.free < law.points:
        return CountLaw(expr=law.expr, points=law.points, free=law.free)
    return None


def _shared_count(item: Observed, times: dict[int, np.ndarray], counts: list[int]) -> CountLaw:
    """Return the law of a call that always has its partner in common with others: its part."""
    envs: list[dict[str, int]] = []
    values: list[float] = []
    for n in counts:
        s, r = np.nonzero(times[n])
        if len(s):
            ways = np.maximum(item.ways[n][s, r], 1) if n in item.ways else 1
            envs.append(item.grids[n].symbols)
            values.append(float(np.median(times[n][s, r] / ways)))
    whole = all(v == int(v) for v in values)
    law = find_law(zip(envs, map(int, values), strict=True), "whole").law if whole else None
    if law is not None:
        return CountLaw(expr=law.expr)
    return CountLaw(stat=find_law(zip(envs, values, strict=True), "work").fit)


def exact_count(law: Law) -> CountLaw:
    """Return an exact law with the rivals that meet its points too."""
    rivals = tuple(Rival(expr=e) for e in law.others) or None
    return CountLaw(expr=law.expr, points=law.points, free=law.free, rivals=rivals)


def _cells(item: Observed, times: dict[int, np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (stage, rank) of the cells that are known to belong to this slot alone."""
    stage, rank = np.nonzero((times[n] > 0) & item.care[n])
    return stage, rank


Env = dict[str, np.ndarray]


def turns_matter(cell: np.ndarray, turn: np.ndarray, what: Sequence[np.ndarray]) -> bool:
    """Tell whether some cell has several sizes or roots and each of its iterations has one.

    cell, iteration and the columns of ``what``: one entry per row of one count.
    """
    order = np.lexsort((turn, cell))
    same_cell = cell[order][1:] == cell[order][:-1]
    same_turn = same_cell & (turn[order][1:] == turn[order][:-1])
    changes = np.zeros(len(same_cell), dtype=bool)
    for column in what:
        changes |= column[order][1:] != column[order][:-1]
    return bool(np.any(changes & same_cell)) and not np.any(changes & same_turn)


def fit_turns(
    parts: Sequence[tuple[Env, np.ndarray, np.ndarray]], ndims: int
) -> IterationsLaw | None:
    """Return the laws of the iterations of every cell, or None.

    parts: per count the symbols of each row, the number of its cell and how often it was made. All
    iterations of a cell have to be made equally often.
    """
    firsts, numbers, envs = [], [], []
    steps: set[int] = set()
    for env, cell, count in parts:
        order = np.lexsort((env["t"], cell))
        key, turn = cell[order], env["t"][order]
        start = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
        lengths = np.diff(np.append(start, len(key)))
        inside = key[1:] == key[:-1]
        steps |= set(np.unique(np.diff(turn)[inside]).tolist())
        if np.any(count[order][1:][inside] != count[order][:-1][inside]):
            return None
        firsts.append(turn[start])
        numbers.append(lengths)
        envs.append({k: v[order][start] for k, v in env.items()})
    if len(steps) > 1 or 0 in steps:
        return None
    names = set(envs[0])
    env = {k: np.concatenate([e[k] for e in envs]) for k in names}
    env["t"] = np.zeros(len(env["n"]), dtype=np.int64)
    laws = []
    for values in (firsts, numbers):
        law = fit_alone(Observations(env, np.concatenate(values), ndims), ExtentPool())
        if law is None or (law.free >= law.points and len(parts) > 1 and law.expr[0] != "num"):
            return None
        laws.append(law.expr)
    return IterationsLaw(steps.pop() if steps else 1, *laws)


def turns_at(
    law: IterationsLaw | None, env: Env, m: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (iteration, which of m ranks have it, the how-manieth of how many) for every turn."""
    if law is None:
        yield 0, np.arange(m), np.stack([np.zeros(m, dtype=np.int64), np.ones(m, dtype=np.int64)])
        return
    first = np.broadcast_to(evaluate_int(law.first, env), (m,))
    number = np.broadcast_to(evaluate_int(law.number, env), (m,))
    step = law.step
    if not m or not number.any():
        return
    last = first + (number - 1) * step
    for t in range(int(first.min()), int(last.max()) + 1):
        has = np.flatnonzero((first <= t) & (t <= last) & ((t - first) % step == 0))
        if len(has):
            yield t, has, np.stack([(t - first[has]) // step, number[has]])


def share(total: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return how many of ``total`` calls are made in one iteration (place: from
    :func:`turns_at`)."""
    out: np.ndarray = total // place[1] + (place[0] < total % place[1])
    return out


def fit_root(env: Env, root: np.ndarray, ndims: int) -> Expr | None:
    """Return the law of a root (its place in the communicator) in iterations, coordinates,
    counts."""

    def ring(e: Expr, p: str) -> Expr:
        return ["mod", e, sym(p)]

    extents = ["n", *(f"p{d}" for d in range(ndims if ndims > 1 else 0))]
    own: list[Callable[[], Iterator[Expr]]] = [
        lambda: (sym(f"c{d}") for d in range(ndims)),
        lambda: (e for e in (sym("t"),)),
        lambda: (ring(add(sym("t"), num(k)), p) for k in (0, 1, -1) for p in extents),
        lambda: (
            ring(add(sym(p), num(-k), mul(num(-1), sym("t"))), p)
            for k in (1, 0, 2)
            for p in extents
        ),
        lambda: (ring(add(sym(f"c{d}"), sym("t")), f"p{d}") for d in range(ndims)),
        lambda: (ring(add(sym(f"c{d}"), mul(num(-1), sym("t"))), f"p{d}") for d in range(ndims)),
        lambda: (ring(add(sym(f"c{d}"), num(k)), f"p{d}") for k in (1, -1) for d in range(ndims)),
    ]
    for group in own:
        for e in group():
            if np.array_equal(np.broadcast_to(np.rint(evaluate(e, env)), root.shape), root):
                return e
    law = scalar_law(Observations(env, root, ndims))
    return law[0] if law is not None else None
