"""Moving cost to another machine: synthetic machines and places whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from compute_by_hand import compute_model, phase_costs
from machines import CYCLES, synthetic, true_cost

from p3s.base.errors import P3SError
from p3s.base.serialise import from_data, to_data
from p3s.costs import laws
from p3s.costs.laws import CostLaw, fit_cost
from p3s.costs.points import Point
from p3s.costs.transfer import move, transfer_law
from p3s.costs.types import ComputeModel, LawEntry, PowerLaw
from p3s.machine.factor import factor_of, resident_sizes, unknown_sizes
from p3s.machine.machinefile import CORE_KERNELS, CURVE_KERNELS, Machine

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Spec:
    """What a machine is made of: clock, cache sizes, memory cost by kernel."""

    ghz: float
    caches: tuple[float, ...]
    memory: dict[str, float]
    core: dict[str, float]

    def machine(self, name: str, noise: float, seed: int, **more: Any) -> Machine:
        return synthetic(
            self.ghz,
            self.caches,
            self.memory,
            name=name,
            noise=noise,
            spread=max(noise, 0.002),
            seed=seed,
            core=self.core,
            **more,
        )

    def cost(self, kernel: str, working_set: float) -> float:
        if kernel in CORE_KERNELS:
            return CYCLES[kernel] / self.ghz * self.core[kernel]
        return true_cost(kernel, working_set, self.ghz, self.caches, self.memory)


def spec(rng: np.random.Generator, name: str) -> Spec:
    """Return a machine at random; its kernels are not all faster or slower by one factor."""
    one = name == "base"
    ghz = 3.0 if one else float(rng.uniform(1.5, 4.5))
    caches = (
        (32 * KIB, 1 * MIB, 32 * MIB)
        if one
        else (
            float(rng.choice([32, 48, 64]) * KIB),
            float(rng.choice([0.5, 1, 2, 4]) * MIB),
            float(rng.choice([16, 32, 64, 96]) * MIB),
        )
    )
    slower = {k: 1.0 if one else float(np.exp(rng.uniform(-0.7, 0.7))) for k in CURVE_KERNELS}
    core = {k: 1.0 if one else float(np.exp(rng.uniform(-0.3, 0.3))) for k in CORE_KERNELS}
    return Spec(ghz, caches, slower, core)


@dataclass(frozen=True)
class Place:
    """A program's place: operations of kernels per instruction, bytes of its working set over x."""

    parts: dict[str, float]
    bytes_of: Callable[[float], float]

    def cost(self, machine: Spec, x: float) -> float:
        return sum(n * machine.cost(k, self.bytes_of(x)) for k, n in self.parts.items())


class Measured:
    """A law through measured points, straight between them on logarithmic axes."""

    unit = "instructions"

    def __init__(self, x: np.ndarray, ns: np.ndarray, width: float = 0.04) -> None:
        self.covered = (float(x.min()), float(x.max()))
        order = np.argsort(x)
        self._x, self._ns, self._width = np.log(x[order]), np.log(ns[order]), width

    def cost(self, x: Any) -> np.ndarray:
        return np.exp(np.interp(np.log(x), self._x, self._ns))

    typical = cost

    def interval(self, x: Any) -> tuple[np.ndarray, np.ndarray]:
        return self.cost(x) * (1 - self._width), self.cost(x) * (1 + self._width)


def place(rng: np.random.Generator) -> Place:
    parts = {str(rng.choice(list(CORE_KERNELS))): float(rng.uniform(0.05, 0.5))}
    kind = rng.choice(4, p=(0.15, 0.45, 0.25, 0.15))
    memory = rng.choice(list(CURVE_KERNELS), size=min(int(kind), 2), replace=False)
    for kernel in memory:
        top = {"read": 1.0, "triad": 0.5, "strided": 0.1, "gather": 0.1, "chase": 0.02}[str(kernel)]
        parts[str(kernel)] = float(rng.uniform(0.2, 1.0) * top)
    if kind == 3:
        parts.pop(next(iter(parts)))  # memory alone
    exponent = float(rng.choice([1.0, 1.0, 2 / 3]))
    middle = float(np.exp(rng.uniform(np.log(256 * KIB), np.log(48 * MIB))))
    return Place(parts, lambda x: middle * (x / 1e8) ** exponent)


def measured(truth: Place, base: Spec, x: np.ndarray, rng: np.random.Generator) -> Measured:
    ns = np.array([truth.cost(base, v) for v in x]) * np.exp(0.015 * rng.standard_normal(len(x)))
    return Measured(x, ns)


def true_factor(truth: Place, base: Spec, target: Spec, x: Sequence[float]) -> np.ndarray:
    return np.array([truth.cost(target, v) / truth.cost(base, v) for v in x])


# ---- the interval holds the truth ----------------------------------------------------------


def test_the_interval_contains_the_truth_for_hundreds_of_machines_and_places() -> None:
    inside, total, error, clock = 0, 0, [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        base, target, truth = spec(rng, "base"), spec(rng, "target"), place(rng)
        x = np.sort(1e8 * np.exp2(rng.uniform(-2.5, 3.0, int(rng.integers(4, 10)))))
        sizes = None
        if seed % 3 == 0:  # memory filled per rank is known; the place works on some of it
            share = float(rng.uniform(0.2, 1.0))
            sizes = resident_sizes(x.tolist(), [truth.bytes_of(v) / share for v in x])
        here, there = base.machine("base", 0.01, seed), target.machine("target", 0.01, seed + 1)
        factor = factor_of(measured(truth, base, x, rng), here, there, sizes)
        asked = [x[0] / 8, x[0] / 2, x[0], float(np.median(x)), x[-1]]
        value, low, high = factor.of(asked)
        real = true_factor(truth, base, target, asked)
        inside += int(((low <= real) & (real <= high)).sum())
        total += len(asked)
        error.append(np.abs(value / real - 1).mean())
        alone = there.core["int_add"].ns / here.core["int_add"].ns
        clock.append(np.abs(alone / real - 1).mean())
    assert inside / total >= 0.90
    assert np.median(error) < 0.6 * np.median(clock), "the clock alone says less"


def test_laws_fitted_to_points_are_moved_too() -> None:
    inside, total = 0, 0
    for seed in range(12):
        rng = np.random.default_rng(1000 + seed)
        base, target, truth = spec(rng, "base"), spec(rng, "target"), place(rng)
        points = []
        for n in (2, 4, 8, 16, 32):
            x = 8e8 / n
            cost = truth.cost(base, x) * float(np.exp(0.01 * rng.standard_normal()))
            points.append(
                Point(
                    ("f", "MPI_Send"),
                    0,
                    n,
                    x * 10,
                    x,
                    cost * x * 10,
                    cost * 1.01 * x * 10,
                    n,
                    3,
                    "own",
                    n,
                )
            )
        law = fit_cost(points, unit="instructions")
        factor = factor_of(
            law, base.machine("base", 0.01, seed), target.machine("target", 0.01, seed + 1)
        )
        moved = transfer_law(law, factor)
        assert laws.text(from_data(CostLaw, moved.to_json()))
        x = np.array([8e8 / 64, 8e8 / 16, 8e8 / 2])
        real = np.array([truth.cost(target, v) for v in x])
        low, high = moved.interval(x)
        assert (low <= moved.typical(x)).all() and (moved.typical(x) <= high).all()
        inside += int(((low <= real) & (real <= high)).sum())
        total += 3
    assert inside / total >= 0.90


# ---- what must hold whatever the numbers ---------------------------------------------------


def law_of(parts: dict[str, float], base: Spec, middle: float = 8 * MIB) -> Measured:
    truth = Place(parts, lambda x: middle * x / 1e8)
    x = 1e8 * np.exp2(np.linspace(-5, 4, 19))
    return Measured(x, np.array([truth.cost(base, v) for v in x]))


BASE = Spec(
    3.0,
    (32 * KIB, 1 * MIB, 32 * MIB),
    dict.fromkeys(CURVE_KERNELS, 1.0),
    dict.fromkeys(CORE_KERNELS, 1.0),
)


def like(**change: Any) -> Spec:
    return Spec(**{**vars(BASE), **change})


def test_moving_to_the_same_machine_changes_nothing_but_the_spread() -> None:
    machine = BASE.machine("base", 0.0, 0)
    for parts in ({"fp_add": 0.3}, {"fp_add": 0.3, "triad": 0.2}, {"chase": 0.05}):
        factor = factor_of(law_of(parts, BASE), machine, machine)
        assert factor.value == pytest.approx(1.0)
        spread = 1.645 * np.sqrt(2) * 0.002  # of two measurements, 90 %
        assert factor.low == pytest.approx(1 / (1 + spread), abs=1e-9)
        assert factor.high == pytest.approx(1 + spread, abs=1e-9)


def test_a_faster_clock_speeds_up_what_waits_for_the_core_alone() -> None:
    base, fast = BASE.machine("base", 0.0, 0), like(ghz=6.0).machine("fast", 0.0, 0)
    core = factor_of(law_of({"fp_add": 0.3}, BASE), base, fast)
    assert core.of(1e8)[0] == pytest.approx(0.5, rel=0.02)
    memory = factor_of(law_of({"chase": 0.05}, BASE, 512 * MIB), base, fast)
    assert memory.of(1e9)[0] > 0.9, "latency of memory is the same"
    both = factor_of(law_of({"fp_add": 0.3, "triad": 0.2}, BASE), base, fast)
    small, large = (float(both.of(x)[0]) for x in (1e6, 1.6e9))
    assert small == pytest.approx(0.5, rel=0.03) and small < large < 1


def test_a_larger_cache_moves_the_step_to_larger_work() -> None:
    base = BASE.machine("base", 0.0, 0)
    law = law_of({"fp_add": 0.1, "triad": 0.3}, BASE)

    def step(machine: Machine) -> float:
        """Where the moved cost passes the middle between its levels."""
        x = 1e8 * np.exp2(np.linspace(-5, 4, 200))
        cost = law.cost(x) * factor_of(law, base, machine).of(x)[0]
        return float(x[np.argmax(cost > 0.5 * (cost[0] + cost[-1]))])

    places = [
        step(like(caches=(32 * KIB, 1 * MIB, size * MIB)).machine("other", 0.0, 0))
        for size in (8, 16, 32, 64)
    ]
    assert places == sorted(places)
    for one, other in zip(places, places[1:], strict=False):
        assert other / one == pytest.approx(2.0, rel=0.35), "twice the cache, twice the work"


def test_a_slower_memory_costs_more_the_more_the_place_waits_for_it() -> None:
    base = BASE.machine("base", 0.0, 0)
    law = law_of({"fp_add": 0.1, "triad": 0.3}, BASE)
    values = [
        float(
            factor_of(
                law,
                base,
                like(memory=dict.fromkeys(CURVE_KERNELS, slower)).machine("other", 0.0, 0),
            ).of(1.5e9)[0]
        )
        for slower in (0.5, 1.0, 2.0, 4.0)
    ]
    assert values == sorted(values) and values[1] == pytest.approx(1.0)


def test_a_flat_cost_spans_all_that_can_be_flat() -> None:
    """Without a step nothing tells the core's time from a memory level's: both are inside."""
    rng = np.random.default_rng(5)
    base, target = BASE.machine("base", 0.0, 0), spec(rng, "target")
    other = target.machine("target", 0.0, 0)
    flat = Measured(np.array([1e7, 1e8]), np.array([0.4, 0.4]))
    factor = factor_of(flat, base, other)
    _, low, high = factor.of(3e7)
    for kernel in CORE_KERNELS:
        ratio = other.core[kernel].ns / base.core[kernel].ns
        if base.core[kernel].ns * 8 >= 0.4:  # else an instruction could not cost as much
            assert low <= ratio <= high
    memory = other.curves["triad"].ns[-1] / base.curves["triad"].ns[-1]
    assert low <= memory <= high


def test_a_part_of_many_operations_per_instruction_explains_nothing() -> None:
    """10 ns per instruction is no read from a cache: that takes 75 reads."""
    base, fast = BASE.machine("base", 0.0, 0), like(ghz=6.0).machine("fast", 0.0, 0)
    x = 1e8 * np.exp2(np.linspace(-2, 2, 9))
    factor = factor_of(Measured(x, np.full(9, 20.0)), base, fast)
    assert factor.bound in ("unknown", "memory", "core")
    cheap = factor_of(Measured(x, np.full(9, 0.2)), base, fast)
    assert cheap.high.max() <= factor.high.max() + 1e-9


def test_times_say_nothing_about_what_is_waited_for() -> None:
    base, target = BASE.machine("base", 0.0, 0), like(ghz=6.0).machine("fast", 0.0, 0)
    law = law_of({"fp_add": 0.3}, BASE)
    law.unit = "cpu_ns"  # type: ignore[misc]
    factor = factor_of(law, base, target)
    value, low, high = factor.of(1e8)
    assert low <= 0.5 and high >= 1.0 and low < value < high
    assert factor.bound == "unknown" and "time" in factor.why


def test_a_curve_that_no_kernel_has_is_said_and_wide() -> None:
    base, target = BASE.machine("base", 0.0, 0), like(ghz=6.0).machine("fast", 0.0, 0)
    x = 1e8 * np.exp2(np.linspace(-4, 4, 17))
    falling = Measured(x, 0.5 * (x / 1e8) ** -0.8)  # dearer the less there is to do
    factor = factor_of(falling, base, target)
    assert factor.bound == "unknown" and "no mixture" in factor.why
    assert factor.low.min() <= 0.5 and factor.high.max() >= 1.0


def test_working_sets_follow_memory_that_was_filled() -> None:
    x = [1e6, 4e6, 1.6e7]
    sizes = resident_sizes(x, [1 * MIB, 4 * MIB, 16 * MIB])
    assert sizes is not None and sizes.exponent == pytest.approx(1.0)
    assert np.exp2(sizes.at(np.log2([4e6])).max()) == pytest.approx(4 * MIB)
    half = resident_sizes(x, [1 * MIB, 2 * MIB, 4 * MIB])
    assert half is not None and set(np.round(half.exponent, 6)) == {0.5, 1.0}
    assert resident_sizes(x, [0, 0, 0]) is None
    assert len(resident_sizes([1e6], [1 * MIB]).first) > 1  # type: ignore[union-attr]
    assert np.ptp(unknown_sizes(20.0).at(np.array([20.0]))) >= 18


# ---- a whole compute.json ------------------------------------------------------------------


def compute(unit: str = "instructions") -> ComputeModel:
    truth = Place({"fp_add": 0.2, "triad": 0.3}, lambda x: 8 * MIB * x / 1e8)
    points = []
    for n in (2, 4, 8, 16):
        x = 8e8 / n
        least, typical = (truth.cost(BASE, x) * x * k for k in (10, 10.1))
        points.append(Point(("f", "MPI_Send"), 0, n, x * 10, x, least, typical, n, 3, "own", n))
    law = fit_cost(points, unit=unit)
    entry = LawEntry("place", 0, (("f", "MPI_Send"),), 1.0, tuple(points), law)
    phase = phase_costs(0, crm_i=PowerLaw(1.0, -1.0))
    return compute_model(unit, laws=(entry,), rest=law, phases=(phase,))


def test_a_compute_model_is_moved_whole() -> None:
    base, target = BASE.machine("base", 0.0, 0), like(ghz=1.5).machine("slow", 0.0, 0)
    resident = {n: 64 * MIB / n for n in (2, 4, 8, 16)}
    result = move(compute(), base, target, resident)
    law, old = result.laws[0].law, compute().laws[0].law
    small = 8e8 / 16 / 64
    assert law.typical(small) / old.typical(small) == pytest.approx(2.0, rel=0.1)
    truth = Place({"fp_add": 0.2, "triad": 0.3}, lambda x: 8 * MIB * x / 1e8)
    real = truth.cost(like(ghz=1.5), 4e8) / truth.cost(BASE, 4e8)
    assert law.typical(4e8) / old.typical(4e8) == pytest.approx(real, rel=0.1)
    for x in (small, 4e8):
        narrow, wide = old.interval(x), law.interval(x)
        assert wide[1] / wide[0] > narrow[1] / narrow[0]
    about = result.machine
    assert about is not None and about.target.name == "slow" and about.places[0].high >= 1.5
    assert result.phases[0].crm_i is None and not about.notes
    again = from_data(ComputeModel, to_data(result))
    assert to_data(again) == to_data(result), "what is written is read as the same"
    assert len(factor_of(old, base, target).at) > 10


def test_notes_say_what_is_doubtful() -> None:
    base, target = BASE.machine("base", 0.0, 0), like(ghz=1.5).machine("slow", 0.0, 0)
    assert "how much memory" in move(compute(), base, target).machine.notes[0]
    assert "CPU or wall time" in move(compute("cpu_ns"), base, target).machine.notes[0]


def test_another_instruction_set_is_refused_for_counts_of_instructions() -> None:
    base = BASE.machine("base", 0.0, 0)
    arm = BASE.machine("arm", 0.0, 0, architecture="aarch64")
    with pytest.raises(P3SError, match="do not carry over"):
        move(compute(), base, arm)
    result = move(compute("cpu_ns"), base, arm)
    assert "other instruction sets" in result.machine.notes[0]
