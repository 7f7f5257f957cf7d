"""A machine made up: a cost curve with steps, work laws, runs with noise; and the truth."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from p3s.costs.points import Point


@dataclass(frozen=True)
class Machine:
    """A cost curve: base in ns per unit; steps (height relative to base, log2 location, width).

    A step of width 0 is a cache with random access: what does not fit misses, 1 - size/x of all.
    overhead: units of work per turn that cost and are not counted. wander: by how much more runs
    differ where all of the cost is that of memory.
    """

    base: float = 0.3
    steps: tuple[tuple[float, float, float], ...] = ()
    overhead: float = 0.0
    slope: float = 0.0
    wander: float = 0.0

    def cost(self, x: np.ndarray) -> np.ndarray:
        """Return the true cost at ``x``."""
        u = np.log2(np.asarray(x, dtype=float))
        total = np.ones_like(u)
        for height, where, width in self.steps:
            total = total + height * (
                np.maximum(0.0, 1.0 - np.exp2(where - u))
                if width == 0
                else 1.0 / (1.0 + np.exp(-(u - where) / width))
            )
        return self.base * (total + self.overhead / np.exp2(u)) * np.exp2(self.slope * u)

    def memory(self, x: np.ndarray) -> np.ndarray:
        """Return the share of the cost at ``x`` that is above the base."""
        return 1.0 - self.base / np.maximum(self.cost(x), self.base)


@dataclass(frozen=True)
class Program:
    """Work of a rank per turn at n processes: total * n**(grow - 1), in turns; ranks in groups.

    imbalance: relative work of the groups of ranks (each its own point per run).
    """

    total: float = 4e9
    grow: float = 0.0
    turns: int = 50
    imbalance: tuple[float, ...] = (1.0,)

    def x(self, n: float) -> np.ndarray:
        """Return the work per turn of each group at ``n``."""
        return self.total * n ** (self.grow - 1.0) * np.array(self.imbalance)


@dataclass(frozen=True)
class Noise:
    """Errors: run: of all points of a run; row: of each point; outlier: chance that a run is
    slower by ``amount``; repeats: runs made at each count, of which the least is kept."""

    run: float = 0.01
    row: float = 0.01
    outlier: float = 0.05
    amount: tuple[float, float] = (0.1, 0.3)
    repeats: int = 3


@dataclass(frozen=True)
class Case:
    """What a study would see, and the truth at other counts."""

    machine: Machine
    program: Program
    points: list[Point] = field(default_factory=list)
    typical: float = 1.0  # median of repeats over the least, in the mean


def runs(machine: Machine, x: np.ndarray, noise: Noise, rng: np.random.Generator) -> np.ndarray:
    """Return times per unit of work of ``noise.repeats`` runs: (repeats, len(x)), slower only."""
    # one-sided: a run is as fast as it can be, and a bit slower
    more = 1.0 + machine.wander * machine.memory(x)
    common = np.exp(np.abs(rng.normal(0, noise.run, (noise.repeats, 1))) * more)
    own = np.exp(rng.normal(0, noise.row, (noise.repeats, len(x))))
    disturbed = rng.random() < noise.outlier
    factor = 1.0 + (rng.uniform(*noise.amount) if disturbed else 0.0)
    return machine.cost(x) * common * own * factor


def points(
    machine: Machine,
    program: Program,
    counts: list[int],
    noise: Noise,
    rng: np.random.Generator,
    source: str = "own",
    scale: float = 1.0,
) -> list[Point]:
    """Return the points of runs at ``counts``; scale: of the workload relative to the original."""
    out = []
    for n in counts:
        x = program.x(n) * scale
        cost = runs(machine, x, noise, rng)
        groups = len(x)
        for g in range(groups):
            work = float(x[g] * program.turns)
            least, middle = (float(f(cost[:, g])) for f in (np.min, np.median))
            out.append(
                Point(
                    place=("f", "MPI_Send"),
                    phase=1,
                    n=float(
                        (program.total * program.imbalance[g] / x[g])
                        ** (1 / max(1e-9, 1 - program.grow))
                    )
                    if program.grow < 1
                    else None,
                    work=work,
                    x=float(x[g]),
                    least_ns=least * work,
                    typical_ns=middle * work,
                    ranks=max(1, n // groups),
                    repeats=noise.repeats,
                    source=source,
                    traced=n,
                )
            )
    return out


KINDS = {
    "flat": 0.15,
    "step": 0.25,
    "two steps": 0.2,
    "overhead": 0.1,
    "random access": 0.15,
    "random access, two levels": 0.1,
    "slope": 0.05,
}


def random_machine(rng: np.random.Generator, low: float, high: float) -> Machine:
    """Return a machine with no, one or two steps somewhere around log2 x of low to high."""
    kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
    steps = []
    number = {"step": 1, "two steps": 2, "random access": 1, "random access, two levels": 2}
    if kind in number:
        where = np.sort(rng.uniform(low - 2, high + 1, number[kind]))
        if len(where) == 2 and where[1] - where[0] < 2.5:
            where[1] = where[0] + 2.5
        for w in where:
            steps.append(
                (
                    float(np.exp(rng.uniform(np.log(0.05), np.log(1.5)))),
                    float(w),
                    float(rng.uniform(0.1, 0.7)) if "random" not in kind else 0.0,
                )
            )
    overhead = float(2**low * rng.uniform(0.02, 0.3)) if kind == "overhead" else 0.0
    slope = float(rng.uniform(0.01, 0.06)) if kind == "slope" else 0.0
    base = float(np.exp(rng.uniform(np.log(0.15), np.log(2.0))))
    return Machine(base * 2.0 ** (-slope * low), tuple(steps), overhead, slope)


def random_case(
    seed: int,
    *,
    counts: tuple[int, ...] = (2, 4, 8, 16),
    target: int = 64,
    far: tuple[tuple[float, tuple[int, ...]], ...] = ((1 / 8, (4, 8, 16)),),
    noise: Noise | None = None,
) -> tuple[Case, np.random.Generator]:
    """Return a case with points at ``counts`` and of other workloads (scale, counts) in ``far``."""
    rng = np.random.default_rng(seed)
    noise = noise or Noise()
    program = Program(
        total=float(np.exp(rng.uniform(np.log(1e8), np.log(1e11)))),
        grow=float(rng.choice((0.0, 0.0, 0.2))),
        imbalance=(1.0,)
        if rng.random() < 0.6
        else tuple(np.round(rng.uniform(0.8, 1.2, int(rng.integers(2, 4))), 3)),
    )
    top, bottom = program.x(min(counts)).max(), program.x(target).min()
    machine = random_machine(rng, float(np.log2(bottom)), float(np.log2(top)))
    found = points(machine, program, list(counts), noise, rng)
    for i, (scale, at) in enumerate(far):
        found += points(machine, program, list(at), noise, rng, f"far/w{i}", scale)
    return Case(machine, program, found), rng
