"""One domain per program: the hypotheses of all sizes that share the fewest constants.

Every slot keeps all hypotheses that give its sizes. What is chosen costs the bits of its constants,
each once for the program, and those of every slot: a weighted set cover, solved exactly. What
costs little more and says something else further on is a rival.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import TypeVar

import numpy as np

from p3s.laws.expr import Expr
from p3s.laws.whole import evaluate_int
from p3s.model.sizes.affine import step_of
from p3s.model.sizes.blocks import FittedSize, Observations
from p3s.model.sizes.hypotheses import Constant, Hypothesis, Slot, bits_of
from p3s.model.sizes.levels import blocks_in
from p3s.model.sizes.positions import moving

K = TypeVar("K", bound=Hashable)

#: Bits by which a rival may cost more; rivals of one law that are kept.
BUDGET, MOST_RIVALS = 10.0, 24
#: Extents tried at every slot; how often a constant and what replaces it are excluded in turn.
POPULAR, EXCLUSIONS = 12, 4
#: Seconds for rivals that replace constants; hypotheses of all slots together in one cover.
SECONDS, MOST_HYPOTHESES = 3.0, 6000
#: Ranks of the largest grid at which laws are compared.
_MOST_RANKS = 1024


@dataclass
class _Group:
    """Slots with the same hypotheses: keys, the hypotheses, the law so far."""

    keys: list[Hashable]
    slot: Slot
    law: FittedSize | None
    hypotheses: list[Hypothesis]
    raw: float = 0.0
    chosen: int | None = None
    rivals: list[Hypothesis] = field(default_factory=list)


def joint_sizes(
    slots: Mapping[K, tuple[Observations, FittedSize | None]], typed: frozenset[int]
) -> dict[K, FittedSize]:
    """Return the laws of those sizes about which all together say more than each one alone.

    slots: any key -> the sizes of a slot and the law found for it alone.
    """
    groups = _groups(slots, typed)
    if not groups:
        return {}
    fixed = _fixed(slots, groups)
    cover = _Cover(groups, typed, fixed)
    if not cover.choose():
        return {}
    cover.find_rivals()
    out: dict[K, FittedSize] = {}
    for g in groups:
        law = _law_of(g)
        if law is not None:
            out.update({key: law for key in g.keys})  # type: ignore[misc]
    return out


def _groups(
    slots: Mapping[K, tuple[Observations, FittedSize | None]], typed: frozenset[int]
) -> list[_Group]:
    """Return the slots that blocks may explain, those alike together."""
    merged: dict[bytes, _Group] = {}
    for key, (obs, law) in slots.items():
        if not len(obs.value) or obs.value.min() < 1 or moving(obs):
            continue
        if len(np.unique(obs.env["n"])) < 2 or np.all(obs.value == obs.value[0]):
            continue
        digest = obs.digest()
        if digest in merged:
            merged[digest].keys.append(key)
        else:
            merged[digest] = _Group([key], Slot(obs), law, [])

    def price(c: Constant) -> float:
        return bits_of(c, typed)

    for g in merged.values():
        g.hypotheses = g.slot.hypotheses(sorted(typed), price)
    uses: dict[Constant, int] = {}
    for g in merged.values():
        for c in frozenset().union(*(h.constants() for h in g.hypotheses)):
            uses[c] = uses.get(c, 0) + 1
    shared = {c for c, k in uses.items() if k > 1}

    def cheaper(c: Constant) -> float:
        return price(c) / (2 if c in shared else 1)

    popular = sorted(
        (c for c in shared if c[0] == "extent"), key=lambda c: (price(c) - 6 * uses[c], str(c[1]))
    )
    known = sorted(typed | {c[1] for c in popular[:POPULAR] if isinstance(c[1], int)})
    out: dict[object, _Group] = {}
    most = max(40, MOST_HYPOTHESES // max(len(merged), 1))
    for g in merged.values():
        g.hypotheses = g.slot.hypotheses(known, cheaper)[:most]
        if not g.hypotheses:
            continue
        sizes = len(np.unique(g.slot.obs.value))
        g.raw = len(g.slot.obs.value) * log2(sizes + 1)
        alike = (frozenset(h.key() for h in g.hypotheses), g.law is None)
        if alike in out:
            out[alike].keys += g.keys
        else:
            out[alike] = g
    return list(out.values())


def _fixed(
    slots: Mapping[K, tuple[Observations, FittedSize | None]], groups: Sequence[_Group]
) -> frozenset[Constant]:
    """Return the constants of laws that no hypothesis replaces."""
    mine = {k for g in groups for k in g.keys}
    found: set[Constant] = set()
    for key, (_, law) in slots.items():
        for b in blocks_in(law.expr) if law is not None and key not in mine else ():
            if b[2][0] == "num":
                found |= {("extent", b[2][1]), ("cut", b[1])}
    return frozenset(found)


class _Cover:
    """The choice of one hypothesis per group that costs the fewest bits together."""

    def __init__(
        self, groups: Sequence[_Group], typed: frozenset[int], fixed: frozenset[Constant]
    ) -> None:
        self.groups, self.fixed = groups, fixed
        self.constants = sorted(
            frozenset().union(*(h.constants() for g in groups for h in g.hypotheses)), key=str
        )
        self.number = {c: i for i, c in enumerate(self.constants)}
        self.bits = np.array(
            [0.0 if c in fixed else bits_of(c, typed) for c in self.constants], dtype=float
        )
        self.total = 0.0
        self.taken: frozenset[Constant] = frozenset()
        self._build()

    def _build(self) -> None:
        """Set up the cover: constants are 0 or 1, hypotheses and raw sizes shares of one."""
        from scipy.sparse import csr_array

        cost, rows, cols, data = list(self.bits), [], [], []
        self.first: list[int] = []
        row = 0
        for g in self.groups:
            start = len(cost)
            self.first.append(start)
            cost += [h.own() for h in g.hypotheses] + [g.raw]
            for i in range(start, len(cost)):
                rows.append(row), cols.append(i), data.append(1.0)
            row += 1
        self.groups_rows = row
        for g, start in zip(self.groups, self.first, strict=True):
            users: dict[Constant, list[int]] = {}
            for i, h in enumerate(g.hypotheses):
                for c in h.constants():
                    users.setdefault(c, []).append(start + i)
            for c, who in users.items():
                for i in who:
                    rows.append(row), cols.append(i), data.append(1.0)
                rows.append(row), cols.append(self.number[c]), data.append(-1.0)
                row += 1
        self.cost = np.array(cost)
        self.matrix = csr_array((data, (rows, cols)), shape=(row, len(cost)))

    def solve(self, without: frozenset[Constant] = frozenset()) -> tuple[float, list[int]] | None:
        """Return the least bits, and the hypothesis of every group (their number: raw)."""
        from scipy.optimize import Bounds, LinearConstraint, milp

        m = len(self.constants)
        upper = np.ones(len(self.cost))
        for c in without:
            upper[self.number[c]] = 0.0
        low = np.full(self.matrix.shape[0], -np.inf)
        high = np.zeros(self.matrix.shape[0])
        low[: self.groups_rows] = high[: self.groups_rows] = 1.0
        found = milp(
            self.cost,
            integrality=np.append(np.ones(m), np.zeros(len(self.cost) - m)),
            bounds=Bounds(0.0, upper),
            constraints=LinearConstraint(self.matrix, low, high),
            options={"time_limit": 5.0},
        )
        if found.x is None:
            return None
        taken = {c for c, x in zip(self.constants, found.x[:m], strict=True) if x > 0.5}
        chosen, total = [], float(self.bits[found.x[:m] > 0.5].sum())
        for g, start in zip(self.groups, self.first, strict=True):
            mine = [
                (h.own(), i) for i, h in enumerate(g.hypotheses) if h.constants() <= taken
            ]
            cost, which = min([*mine, (g.raw, len(g.hypotheses))])
            total += cost
            chosen.append(which)
        return total, chosen

    def choose(self) -> bool:
        """Choose for every group; tell whether that worked."""
        found = self.solve()
        if found is None:
            return False
        self.total, chosen = found
        for g, k in zip(self.groups, chosen, strict=True):
            g.chosen = k if k < len(g.hypotheses) else None
        self.taken = self._constants(chosen)
        return True

    def _constants(self, chosen: Sequence[int]) -> frozenset[Constant]:
        return frozenset().union(
            *(
                g.hypotheses[k].constants()
                for g, k in zip(self.groups, chosen, strict=True)
                if k < len(g.hypotheses)
            )
        )

    def find_rivals(self) -> None:
        """Note the rivals of every group: with constants of its own, or others for all."""
        price = dict(zip(self.constants, self.bits.tolist(), strict=True))
        for g in self.groups:
            if g.chosen is None:
                continue
            best = g.hypotheses[g.chosen].own()
            for h in g.hypotheses:
                more = sum(price[c] for c in h.constants() - self.taken)
                if h.own() + more - best <= BUDGET:
                    g.rivals.append(h)
        until = time.monotonic() + SECONDS
        for start in sorted(self.taken, key=str):
            if start[0] in ("extent", "cut", "border", "ghost"):
                self._exclude(start, until)

    def _exclude(self, start: Constant, until: float) -> None:
        """Note what all together say without a constant, then without what replaced it."""
        without = frozenset([start])
        for _ in range(EXCLUSIONS):
            found = self.solve(without) if time.monotonic() < until else None
            if found is None or found[0] - self.total > BUDGET:
                return
            for g, k in zip(self.groups, found[1], strict=True):
                if g.chosen is not None and k < len(g.hypotheses) and k != g.chosen:
                    g.rivals.append(g.hypotheses[k])
            new = {c for c in self._constants(found[1]) - self.taken if c[0] == start[0]}
            if not new:
                return
            without |= new


def _law_of(g: _Group) -> FittedSize | None:
    """Return the law of a group with its rivals; None where nothing is to be changed."""
    if g.chosen is None:
        return None
    best, obs = g.hypotheses[g.chosen], g.slot.obs
    env = elsewhere(obs)
    expr = best.expr()
    mine = evaluate_int(expr, env, undefined=-1)
    law = g.law
    rivals: list[Expr] = []
    seen = [mine]
    if law is not None:
        then = evaluate_int(law.expr, env, undefined=-1)
        if np.array_equal(then, mine):
            expr = law.expr
            rivals += law.others
        elif not _in_vocabulary(g, then, env):
            return None
    for h in _in_order(g.rivals):
        other = evaluate_int(h.expr(), env, undefined=-1)
        if all(np.any(other != v) for v in seen):
            seen.append(other)
            rivals.append(h.expr())
            if len(seen) > MOST_RIVALS:
                break
    keeps = law is not None and expr is law.expr
    points = len(np.unique(obs.env["n"]))
    return FittedSize(
        expr,
        law.free if keeps and law is not None else best.free(),
        points,
        law.even if keeps and law is not None else _even(obs) and best.divides(),
        law.rivals if keeps and law is not None else (),
        tuple(rivals),
    )


def _in_order(rivals: Sequence[Hypothesis]) -> Iterator[Hypothesis]:
    """Yield each of some hypotheses once."""
    done: set[object] = set()
    for h in rivals:
        if (key := h.key()) not in done:
            done.add(key)
            yield h


def _in_vocabulary(g: _Group, then: np.ndarray, env: dict[str, np.ndarray]) -> bool:
    """Tell whether some hypothesis says what the law so far says."""
    return any(
        np.array_equal(then, evaluate_int(h.expr(), env, undefined=-1)) for h in g.hypotheses
    )


def _even(obs: Observations) -> bool:
    """Tell whether all ranks have one size at every count."""
    return all(
        len(np.unique(obs.value[obs.env["n"] == n])) == 1 for n in np.unique(obs.env["n"])
    )


def elsewhere(obs: Observations) -> dict[str, np.ndarray]:
    """Return the symbols of all ranks on grids larger than those seen, to compare laws there."""
    top = [int(obs.env[f"p{d}"].max()) for d in range(obs.ndims)]
    grids = [tuple(p + k for p in top) for k in (1, 2, 3)]
    for d in range(obs.ndims):
        for times, more in ((1, 1), (2, 0), (2, 1), (3, 0), (4, 0)):
            grids.append(tuple(p * times + more if e == d else p for e, p in enumerate(top)))
    parts: list[dict[str, np.ndarray]] = []
    for dims in dict.fromkeys(grids):
        n = int(np.prod(dims))
        if n > _MOST_RANKS:
            continue
        env = {"n": np.full(n, n), "r": np.arange(n), "s": np.zeros(n), "t": np.zeros(n)}
        coords = np.unravel_index(np.arange(n), dims)
        for d, p in enumerate(dims):
            env |= {f"p{d}": np.full(n, p), f"c{d}": coords[d]}
            env[f"q{d}"] = (coords[d] + step_of(obs, d)) % p
        parts.append(env)
    if not parts:
        return {k: v for k, v in obs.env.items()}
    return {k: np.concatenate([e[k] for e in parts]).astype(np.int64) for k in parts[0]}

