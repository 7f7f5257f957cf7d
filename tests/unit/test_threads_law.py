"""Laws over threads: known ones are recovered, intervals are wide where nothing was seen."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.errors import P3SError
from p3s.machine.topology.inside import read_node
from p3s.methods.threads.law import ThreadLaw, fit_law, measured_of, rows_of, value_of
from p3s.methods.threads.types import Samples, Uses, Value, samples, uses

NODE = read_node("2x4x8+smt2")
#: Full nodes, 1, 2 and 4 of them, with three numbers of threads; some that are not full.
FULL = [(64 * k // t, t, 64 // t) for k in (1, 2, 4) for t in (1, 4, 16)]
SOME = [(8, 1, 8), (4, 1, 4), (2, 2, 2), (1, 64, 1), (64, 2, 64)]
WORK = 1000.0


def columns(rows: list[tuple[int, int, int]]) -> Uses:
    n, threads, per_node = (np.array(x) for x in zip(*rows, strict=True))
    return uses(n, threads, per_node)


def value(law: ThreadLaw, at: Uses, work: np.ndarray, work_error: float = 0.0) -> Value:
    """Return seconds with their interval."""
    return value_of(law.draws(at, work, work_error))


def saturating(u: Uses) -> np.ndarray:
    """Computing of 1 and waiting of 0.5 for a unit of work; 3 threads fill a domain's bandwidth."""
    total = np.minimum(u.per_node, u.n) * u.threads
    crowd = np.minimum(total, np.where(total > 64, 16, 8))
    share = np.where(total > 64, 2, 1)
    work = WORK / u.n
    each = (1 + 0.6 * (share - 1)) + 0.5 * np.maximum(1, crowd / 3)
    return work / u.threads * each + 0.01 * work + 0.002


def taken(rows: list[tuple[int, int, int]], noise: float = 0.0, **known: np.ndarray) -> Samples:
    u = columns(rows)
    y = saturating(u) * np.random.default_rng(5).lognormal(0.0, noise, len(u))
    return samples(
        n=u.n, threads=u.threads, per_node=u.per_node, work=WORK / u.n, seconds=y, **known
    )


def test_a_known_law_is_recovered_between_and_beyond_the_runs() -> None:
    law = fit_law(taken(FULL + SOME, 0.01), NODE)
    asked = columns([(32, 8, 8), (128, 2, 32), (512, 4, 16), (1024, 1, 64), (16, 1, 16)])
    told, true = value(law, asked, WORK / asked.n), saturating(asked)
    error = np.abs(told.seconds / true - 1)
    assert np.median(error) < 0.03 and error.max() < 0.2
    assert np.count_nonzero((told.low <= true) & (true <= told.high)) >= 4
    assert law.fit < 0.03


def test_few_points_work_and_say_little_of_what_nobody_saw() -> None:
    rows = [(n, t, n) for n in (2, 4, 8) for t in (1, 2)]
    law = fit_law(taken(rows, 0.01), NODE)
    near, far = columns([(4, 2, 4)]), columns([(4, 16, 4)])
    inside, outside = (value(law, u, WORK / u.n) for u in (near, far))
    assert inside.high[0] / inside.low[0] < 1.1
    assert outside.high[0] / outside.low[0] > 1.5
    assert law.outside(far)[1][0] == 8
    assert law.outside(near)[2][0] == 1


def test_more_runs_narrow_the_interval_of_full_nodes() -> None:
    rows = [(n, t, n) for n in (2, 4, 8) for t in (1, 2)]
    asked = columns([(4, 16, 4)])
    width = [
        float(np.log(told.high / told.low)[0])
        for more in ([], [(64, 1, 64)])
        for told in [value(fit_law(taken(rows + more, 0.01), NODE), asked, WORK / asked.n)]
    ]
    assert width[1] < 0.8 * width[0]


def test_measured_parts_tell_serial_from_parallel() -> None:
    u = columns(rows := [(n, t, n) for n in (2, 4) for t in (1, 4)])
    work = WORK / u.n
    serial = 0.2 * work
    parts = {
        "serial": serial,
        "busy": (saturating(u) - 0.01 * work - 0.002) * u.threads,
        "longest": saturating(u) - 0.01 * work - 0.002,
        "overhead": np.full(len(u), 1e-5),
        "regions": np.full(len(u), 5.0),
    }
    y = serial + parts["longest"] + parts["overhead"]
    law = fit_law(
        samples(n=u.n, threads=u.threads, per_node=u.per_node, work=work, seconds=y, **parts), NODE
    )
    share = {each.name: each for each in law.parts}
    at = int(np.argmax(u.n * u.threads))
    assert rows[at] == (4, 4, 4)
    assert share["serial"].value + share["fixed"].value == pytest.approx(
        serial[at] / y[at], rel=0.1
    )
    assert share["serial"].seen


def test_equal_samples_give_equal_laws_and_jointly_drawn_times() -> None:
    some = taken(FULL, 0.02)
    one, other = fit_law(some, NODE), fit_law(some, NODE)
    asked = columns([(512, 4, 16), (512, 4, 16), (2048, 1, 64)])
    draws = one.draws(asked, WORK / asked.n)
    assert np.array_equal(draws, other.draws(asked, WORK / asked.n))
    assert np.array_equal(draws[:, 0], draws[:, 1])
    alone = one.draws(asked.take([2]), WORK / asked.n[2:])
    np.testing.assert_allclose(alone[:, 0], draws[:, 2], rtol=1e-6)


def test_a_law_holds_for_another_workload() -> None:
    law = fit_law(taken(FULL + SOME, 0.01), NODE)
    asked = columns([(64, 4, 16)])
    whole, half = (value(law, asked, w * WORK / asked.n).seconds[0] for w in (1.0, 0.5))
    assert half == pytest.approx(whole / 2, rel=0.05)
    wide = value(law, asked, WORK / asked.n, work_error=0.2)
    assert wide.high[0] / wide.low[0] > 1.6


def test_measured_bandwidth_and_regions_tell_of_threads_that_no_run_had() -> None:
    class Machine:
        def bandwidth(self, threads: int, far: bool) -> float:
            return 1e10 * min(threads, 3) if threads <= 8 else 3e10 * threads / 8

        def fork_join(self, threads: int) -> float:
            return 1e-6 * threads

    measured = measured_of(Machine(), NODE)
    law = fit_law(taken([(n, t, n) for n in (2, 4, 8) for t in (1, 2)]), NODE, measured=measured)
    asked = columns([(1, 1, 1), (1, 8, 1), (16, 4, 16), (64, 2, 64)])
    np.testing.assert_allclose(rows_of(asked, NODE, measured).slower, [1, 8 / 3, 8 / 3, 16 / 3])
    assert law.shapes.curve.mean() > 0.5


def test_loops_with_fewer_iterations_than_threads_leave_some_idle() -> None:
    """192 rows: what each thread gets whole of; known from the runs, they are no guess."""
    u, asked = columns(FULL), columns([(256, 1, 64), (512, 1, 64), (64, 8, 8), (96, 2, 32)])

    def seconds(at: Uses) -> np.ndarray:
        whole = np.ceil(np.ceil(192 / at.n) / at.threads)
        return whole / 192 * WORK

    law = fit_law(
        samples(
            n=u.n,
            threads=u.threads,
            per_node=u.per_node,
            work=WORK / u.n,
            seconds=seconds(u),
            rows=192.0 / u.n,
        ),
        NODE,
    )
    told = value(law, asked, WORK / asked.n).seconds
    np.testing.assert_allclose(told, seconds(asked), rtol=0.08)
    busy = np.median(law.busy(asked, WORK / asked.n), axis=0)
    np.testing.assert_allclose(busy, WORK / asked.n, rtol=0.08)  # idle threads are not busy
    assert law.envelope.rows and law.envelope.in_all == 256


def test_what_cannot_be_fitted_is_said() -> None:
    with pytest.raises(P3SError, match="hardware threads"):
        fit_law(taken([(64, 4, 64), (32, 1, 32)]), NODE)
    for wrong in ({"seconds": [0.0]}, {"work": [np.nan]}, {"threads": [0]}, {"strange": [1.0]}):
        good = {"n": [1], "threads": [1], "per_node": [1], "work": [1.0], "seconds": [1.0]}
        with pytest.raises(P3SError) as caught:
            samples(**(good | wrong))
        assert "\n" not in str(caught.value)
    with pytest.raises(P3SError, match="different lengths"):
        samples(n=[1, 2], threads=[1], per_node=[1, 2], work=[1.0, 1.0], seconds=[1.0, 2.0, 3.0])
