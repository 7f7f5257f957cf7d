"""The analytical model of a master and workers: golden values, fits of eq. 3.1 to 3.7."""

from __future__ import annotations

import numpy as np
import pytest
from machines import synthetic
from openmp_made import openmp

from p3s.base import serialise
from p3s.base.errors import P3SError, UsageError
from p3s.machine.teams import Region
from p3s.methods.tasks.fit import FORMS, Samples, fit_misses, fit_overlap, fit_work, penalty
from p3s.methods.tasks.messages import message_times, never_falling, of_machine
from p3s.methods.tasks.terms import Node, Program, Sum, Work, best, iteration, node_of, sum_of

# ---- messages --------------------------------------------------------------------------------


def test_messages_are_exact_at_points_and_flagged_outside() -> None:
    found = message_times([0, 100, 1000], [1e-6, 2e-6, 4e-6], library="Open MPI", hosts=["a", "b"])
    assert found.at([0, 100, 1000]).tolist() == [1e-6, 2e-6, 4e-6]
    assert found.at(550) == pytest.approx(3e-6)
    assert found.at(1900) == pytest.approx(6e-6), "on with the last slope"
    assert found.outside([0, 1000, 1001]).tolist() == [False, False, True]
    assert found.to_workers([100, 100, 1000]) == pytest.approx(8e-6), "one term per worker"
    assert found.to_workers(100, 3) == pytest.approx(6e-6)


def test_messages_never_fall_with_their_size() -> None:
    found = message_times([1, 2, 2, 3, 4], [1.0, 4.0, 2.0, 2.0, 5.0])
    assert found.nbytes == (1, 2, 3, 4)
    # At 2 bytes two repeats of 3 in the mean, then 2: together 8 / 3.
    assert found.seconds == pytest.approx((1.0, 8 / 3, 8 / 3, 5.0))
    rng = np.random.default_rng(0)
    values = rng.normal(size=50)
    made = never_falling(values, np.ones(50))
    assert (np.diff(made) >= 0).all() and made.sum() == pytest.approx(values.sum())
    with pytest.raises(P3SError, match="bytes and seconds"):
        message_times([1], [0.0])


def test_a_machine_without_messages_says_what_to_do() -> None:
    with pytest.raises(P3SError, match="p3s machine measure"):
        of_machine(synthetic())


# ---- misses (C8) -----------------------------------------------------------------------------

WORKLOADS = (32000, 34000, 36000, 40000, 42000)


def jacobi_misses(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return W, K, T and (0.18 W^2 - 609 W) / (K T) with 1 % of noise."""
    grid = [(w, k, t) for w in WORKLOADS for k in (2, 4, 8, 16, 24) for t in (1, 2, 4)]
    w, k, t = np.array(grid, dtype=float).T
    noise = 1 + 0.01 * np.random.default_rng(seed).standard_normal(len(w))
    return w, k, t, (0.18 * w**2 - 609 * w) / (k * t) * noise


def test_the_form_of_misses_is_found() -> None:
    found = [fit_misses(*jacobi_misses(seed)) for seed in range(100)]
    right = [each for each in found if each.form == "jacobi"]
    assert len(right) >= 95
    off = [abs(each.law.terms[0].coefficient / 0.18 - 1) for each in right]
    assert np.median(off) < 0.03
    assert found[0].rms == pytest.approx(0.01, rel=0.3)
    law = right[0].law
    assert law.at(44000, 16, 2) == pytest.approx((0.18 * 44000**2 - 609 * 44000) / 32, rel=0.05)


def test_least_error_takes_the_richest_form() -> None:
    found = fit_misses(*jacobi_misses(1), rule="least-error")
    assert found.form == "cubic"
    assert {c.form for c in found.candidates} == set(FORMS)


def test_misses_that_determine_nothing() -> None:
    with pytest.raises(P3SError, match="above 0"):
        fit_misses([1, 2, 3], 1, 1, [1, 0, 2])
    with pytest.raises(P3SError, match="determine no law"):
        fit_misses([100, 100], 1, 1, [1, 2])
    one = fit_misses([100] * 8, [1, 2] * 4, 1, [8.0, 4.0] * 4)
    assert len(one.law.terms) == 1, "one workload tells one coefficient"


# ---- overlap (C9) ----------------------------------------------------------------------------


def penalties(seed: int, tlb_factor: float = 0.5, noise: float = 0.01) -> tuple[np.ndarray, ...]:
    """Return penalties with factors 0.3 and ``tlb_factor``, and misses of 20 runs."""
    rng = np.random.default_rng(seed)
    w = rng.uniform(1000, 3500, 20)
    shared = rng.choice([2, 4, 8, 16, 32], 20)
    cache = 0.02 * w**3 / shared
    tlb = 5e-3 * w**3 / shared * rng.uniform(0.5, 1.5, 20)
    true = 0.3 * cache * 7.5e-8 + tlb_factor * tlb * 1.2e-7 + 1e-4
    return true * (1 + noise * rng.standard_normal(20)), cache, tlb


def test_overlaps_are_found_with_their_intervals() -> None:
    inside = 0
    for seed in range(200):
        found = fit_overlap(*penalties(seed), memory_s=7.5e-8, tlb_s=1.2e-7)
        assert found.cache.value == pytest.approx(0.3, rel=0.1)
        assert found.tlb.value == pytest.approx(0.5, rel=0.1)
        assert found.warnings == () and found.points == 20
        inside += found.cache.low <= 0.3 <= found.cache.high
    assert 0.83 * 200 <= inside <= 0.97 * 200, "an interval of 90 %"


def test_what_penalties_do_not_tell_is_marked() -> None:
    found = fit_overlap(*penalties(0, tlb_factor=0.003), memory_s=7.5e-8, tlb_s=1.2e-7)
    assert found.tlb.share < 0.05 and not found.tlb.identifiable and found.cache.identifiable
    assert "not-identifiable:tlb" in found.warnings
    y, cache, _ = penalties(0)
    same = fit_overlap(y, cache, 2 * cache, memory_s=7.5e-8, tlb_s=1.2e-7)
    assert {"not-identifiable:cache", "not-identifiable:tlb"} <= set(same.warnings)


def test_factors_that_are_no_shares_are_said() -> None:
    y, cache, tlb = penalties(0)
    found = fit_overlap(10 * y, cache, tlb, memory_s=7.5e-8, tlb_s=1.2e-7)
    assert found.warnings == ("outside-0-1:cache", "outside-0-1:tlb")
    with pytest.raises(P3SError, match="five or more"):
        fit_overlap(y[:4], cache[:4], tlb[:4], memory_s=1e-8, tlb_s=1e-8)
    assert penalty([2.0], [0.5]).tolist() == [1.5]


# ---- the whole model (C10, C11) --------------------------------------------------------------

MATMUL = Work(
    cpi=0.9,
    instructions=sum_of((5.0, 1)),
    results=sum_of((1.0, 2)),
    cache_misses=sum_of((0.25, 3, -1, -1), (10.0, 2, -1, -1)),
    tlb_misses=sum_of((1e-3, 3, -1, -1)),
    cache_overlap=0.02,
    tlb_overlap=0.5,
)
NODE = Node((1,), (3e9,), 7.5e-8, 1.2e-7, overhead_s=2e-5)
PROGRAM = Program(
    (MATMUL,),
    out=sum_of((8.0, 2, -1), (8.0, 2)),
    back=sum_of((8.0, 2, -1)),
    master=sum_of((0.01,)),
    sampled=(1900.0, 2000.0),
)
MESSAGES = message_times([1, 1e9], [5e-5 + 1 / 1.1e8, 5e-5 + 1e9 / 1.1e8])


def test_golden_iteration() -> None:
    found = iteration(PROGRAM, NODE, MESSAGES, 2000, 8, 4)
    parts = found.compute
    assert (parts.instructions, parts.cache, parts.tlb, parts.overhead) == pytest.approx(
        (0.375, 0.095625, 0.015, 2e-5)
    )
    assert parts.total == pytest.approx(0.485645, rel=1e-12)
    assert found.out == pytest.approx(2.6185818, abs=5e-8)
    assert found.back == pytest.approx(0.0364136, abs=5e-8)
    assert found.total == pytest.approx(3.1506405, abs=5e-8)


def test_regions_follow_each_other() -> None:
    twice = Program((MATMUL, MATMUL), PROGRAM.out, PROGRAM.back)
    found = iteration(twice, NODE, MESSAGES, 2000, 8, 4)
    assert found.compute.total == pytest.approx(2 * 0.485645)


def test_far_workloads_are_warned_of_and_refused() -> None:
    assert iteration(PROGRAM, NODE, MESSAGES, 2190, 8, 1).warnings == ()
    assert iteration(PROGRAM, NODE, MESSAGES, 2250, 8, 1).warnings == ("far-workload",)
    assert iteration(PROGRAM, NODE, MESSAGES, 1650, 8, 1).warnings == ("far-workload",)
    with pytest.raises(P3SError, match="20 % from the nearest that was sampled"):
        iteration(PROGRAM, NODE, MESSAGES, 2400, 8, 1)
    forced = iteration(PROGRAM, NODE, MESSAGES, 2400, 8, 1, force=True)
    assert forced.warnings == ("far-workload",)
    small = message_times([1, 100], [1e-6, 2e-6])
    assert iteration(PROGRAM, NODE, small, 2000, 8, 1).warnings == ("message-outside",)
    assert iteration(PROGRAM, NODE, MESSAGES, 2000, 8, 2).warnings == ("threads-outside",)
    with pytest.raises(UsageError, match="above 0"):
        iteration(PROGRAM, NODE, MESSAGES, 2000, 0, 1)


def test_best_is_the_shortest_of_all() -> None:
    every = [(k, t) for k in range(1, 30) for t in (1, 2, 4)]
    found = best(PROGRAM, NODE, MESSAGES, 2000, every)
    totals = [each.total for each in found]
    assert totals == sorted(totals) and len(found) == len(every)
    by_hand = min(every, key=lambda c: iteration(PROGRAM, NODE, MESSAGES, 2000, *c).total)
    assert (found[0].workers, found[0].threads) == by_hand


def test_a_measured_node_gives_overheads_and_its_clock() -> None:
    made = openmp()
    node = node_of(made)
    assert node.frequency(3) == made.frequency(3) and node.frequency(64) == 3.2e9
    work = Work(1.0, sum_of((1.0, 1)), constructs={"parallel": 1, "dynamic": 1},
                iterations=sum_of((1.0, 1, -1, -1)))  # fmt: skip
    found = iteration(Program((work,), sum_of((8.0,)), sum_of((8.0,))), node, MESSAGES, 64, 2, 4)
    wanted = made.theta([Region({"parallel": 1, "dynamic": 1}, 8)], 4)
    assert found.compute.overhead == pytest.approx(wanted)


def test_programs_are_records() -> None:
    data = serialise.to_data(PROGRAM)
    assert serialise.from_data(Program, data) == PROGRAM


def test_sums_broadcast() -> None:
    found = sum_of((2.0, 1, -1), (3.0,)).at([10, 20], [1, 2])
    assert found.tolist() == [23.0, 23.0]
    assert Sum().at([1, 2]).tolist() == [0.0, 0.0]


def test_the_sources_own_table_is_as_printed() -> None:
    """Tables 3.3 and 3.4, region 1 of Jacobi: plausible where the matrix product's are not."""
    law = sum_of((179.36e-3, 2, -1, -1), (-609.1023, 1, -1, -1))
    misses = float(law.at(44000, 16, 2))
    assert misses == pytest.approx(1.0e7, rel=0.05)
    assert misses * 7.5e-8 * 0.30934 == pytest.approx(0.23, rel=0.05)


# ---- from samples to a program ---------------------------------------------------------------

SAMPLED = Node((1, 2, 4), (3e9, 3e9, 2.8e9), 7.5e-8, 1.2e-7, overhead_s=0.0)
TRUE = Work(
    cpi=0.9,
    instructions=sum_of((5.0, 3)),
    cache_misses=sum_of((0.02, 3, -1, -1)),
    tlb_misses=sum_of((2.0, 2, -1, -1)),
    cache_overlap=0.3,
    tlb_overlap=0.5,
)


def samples(noise: float) -> Samples:
    """Return what counters and clocks would say of TRUE at workloads of 300 to 2,000."""
    rng = np.random.default_rng(5)
    grid = [(w, k, t) for w in (300, 900, 1200, 1600, 2000) for k in (1, 2, 4) for t in (1, 2, 4)]
    w, k, t = np.array(grid, dtype=float).T

    def seen(values: np.ndarray) -> np.ndarray:
        return values * (1 + noise * rng.standard_normal(len(w)))

    instructions = TRUE.instructions.at(w) / (k * t)
    hz = np.array([SAMPLED.frequency(x) for x in t])
    cache, tlb = (law.at(w, k, t) for law in (TRUE.cache_misses, TRUE.tlb_misses))
    seconds = 0.9 * instructions / hz + 0.3 * cache * 7.5e-8 + 0.5 * tlb * 1.2e-7
    return Samples(
        w, k, t, seen(seconds), seen(0.9 * instructions), seen(instructions), seen(cache), seen(tlb)
    )


def test_a_region_is_found_from_samples() -> None:
    found = fit_work(samples(0.0), SAMPLED)
    assert found.work.cpi == pytest.approx(0.9)
    assert found.overlap.cache.value == pytest.approx(0.3, rel=1e-3)
    assert found.overlap.tlb.value == pytest.approx(0.5, rel=1e-3)
    assert (found.cache.form, found.tlb.form) == ("cube", "square")
    out = sum_of((8.0,))
    true = iteration(Program((TRUE,), out, out), SAMPLED, MESSAGES, 2100, 8, 4)
    program = Program((found.work,), out, out, sampled=found.sampled)
    assert iteration(program, SAMPLED, MESSAGES, 2100, 8, 4).total == pytest.approx(true.total)
    with pytest.raises(P3SError, match="from the nearest"):
        iteration(program, SAMPLED, MESSAGES, 3000, 8, 4)


def test_noise_of_one_percent_stays_small_near_the_samples() -> None:
    found = fit_work(samples(0.01), SAMPLED, cpi=0.9)
    out = sum_of((8.0,))
    true = iteration(Program((TRUE,), out, out), SAMPLED, MESSAGES, 2100, 8, 4)
    told = iteration(Program((found.work,), out, out), SAMPLED, MESSAGES, 2100, 8, 4)
    assert told.total == pytest.approx(true.total, rel=0.03)
    assert found.overlap.cache.low < found.overlap.cache.value < found.overlap.cache.high
