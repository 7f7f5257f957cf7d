"""Folded loops against simulations of all their turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from loops import AHEAD, HALO, SWEEP, loop_of, section_of, turns_of

from p3s.simulate.folded import fold_times, strung
from p3s.simulate.network import rough_network
from p3s.simulate.simulate import simulate
from p3s.simulate.steps import select_steps
from p3s.simulate.totals import alike, is_self_contained

NETWORK = rough_network()
UNLIMITED = replace(NETWORK, rate=float("inf"))
TURNS = 400


def run_on(network, nodes):
    """Return what simulates, and a list of the steps simulated."""
    seen = []

    def run(steps, _, first):
        seen.append(len(steps))
        return simulate(steps, nodes, network, first_ns=first)

    return run, seen


def whole(pattern, rows, columns, turns, network, nodes, **more):
    """Return time in calls, waiting, transfer and software of every rank over all turns."""
    steps = turns_of(pattern, rows, columns, turns, **more)
    found = simulate(steps, nodes, network)
    parts = (found.end_ns - found.begin_ns, found.waiting_ns, found.transfer_ns, found.software_ns)
    return np.stack([np.bincount(steps.rank, weights=part) for part in parts])


def work_of(n, how):
    rng = np.random.default_rng(7)
    if how == "even":
        return np.full(n, 1e5)
    if how == "one slow":
        return np.where(np.arange(n) == n // 2, 1.3e5, 1e5)
    return 1e5 * (1 + 0.2 * rng.random(n))


@pytest.mark.parametrize("how", ["even", "one slow", "all different"])
@pytest.mark.parametrize(("pattern", "periodic"), [(HALO, True), (HALO, False), (SWEEP, False)])
def test_folded_loops_take_as_long_as_all_their_turns(pattern, periodic, how) -> None:
    rows = columns = 6
    nodes, work = np.zeros(36, dtype=np.int64), work_of(36, how)
    wanted = whole(pattern, rows, columns, TURNS, UNLIMITED, nodes, work=work, periodic=periodic)
    loop = loop_of(turns_of(pattern, rows, columns, 5, work=work, periodic=periodic), TURNS)
    run, seen = run_on(UNLIMITED, nodes)
    found = fold_times(loop, run)
    assert found.settled
    total = wanted[0].mean() + work.mean() * TURNS
    assert np.abs(found.sums - wanted).max() < 2e-3 * total
    # Ranks that are nearly as slow as the slowest are overtaken by its delay late.
    share = 0.8 if how == "all different" else 0.2
    assert sum(seen) < share * len(loop.full) * TURNS / 5


def test_the_cost_does_not_grow_with_the_turns() -> None:
    nodes, work = np.zeros(16, dtype=np.int64), work_of(16, "one slow")
    sizes = []
    for turns in (100, 10_000, 1_000_000):
        run, seen = run_on(UNLIMITED, nodes)
        found = fold_times(loop_of(turns_of(HALO, 4, 4, 4, work=work), turns), run)
        sizes.append(sum(seen))
        per_turn = found.sums[0].mean() / turns
    assert len(set(sizes)) == 1
    assert per_turn == pytest.approx(0.3e5 + 1200, rel=0.2)


def test_a_delay_that_spreads_counts_once() -> None:
    """A slow rank of a chain is felt one rank further in each turn: longer than one window."""
    nodes, work = np.zeros(60, dtype=np.int64), np.full(60, 1e5)
    work[0] = 1.5e5
    wanted = whole(HALO, 1, 60, 200, UNLIMITED, nodes, work=work, periodic=False)
    loop = loop_of(turns_of(HALO, 1, 60, 4, work=work, periodic=False), 200)
    run, _ = run_on(UNLIMITED, nodes)
    found = fold_times(loop, run)
    assert found.windows > 15  # the last rank has felt it
    assert np.abs(found.sums - wanted)[0].max() < 2e-3 * 200 * 1.5e5


def test_loops_with_few_turns_end_when_they_end() -> None:
    nodes, work = np.zeros(60, dtype=np.int64), np.full(60, 1e5)
    work[0] = 1.5e5
    for turns in (5, 9, 14):
        wanted = whole(HALO, 1, 60, turns, UNLIMITED, nodes, work=work, periodic=False)
        run, _ = run_on(UNLIMITED, nodes)
        found = fold_times(loop_of(turns_of(HALO, 1, 60, 4, work=work, periodic=False), turns), run)
        assert found.settled
        assert np.abs(found.sums - wanted)[0].max() < 0.02 * turns * 1.5e5


def test_entries_multiply_everything_the_fill_too() -> None:
    nodes, work = np.zeros(36, dtype=np.int64), work_of(36, "even")
    steps = turns_of(SWEEP, 6, 6, 5, work=work, periodic=False)
    run, _ = run_on(UNLIMITED, nodes)
    once, thrice = fold_times(loop_of(steps, 50), run), fold_times(loop_of(steps, 50, 3.0), run)
    assert np.allclose(3 * once.sums, thrice.sums)


def test_links_of_nodes() -> None:
    """Windows overlap, so that the queues of links reach from one into the next."""
    nodes, work = np.arange(64) // 16, work_of(64, "all different") / 10
    more = {"work": work, "nbytes": 30_000}
    wanted = whole(HALO, 8, 8, TURNS, NETWORK, nodes, **more)
    run, _ = run_on(NETWORK, nodes)
    found = fold_times(loop_of(turns_of(HALO, 8, 8, 24, **more), TURNS), run, overlap=True)
    assert found.settled
    total = (wanted[0] + work * TURNS).mean()
    assert found.sums[0].mean() == pytest.approx(wanted[0].mean(), abs=0.01 * total)


def test_requests_completed_a_turn_later_are_not_torn_apart() -> None:
    nodes, work = np.zeros(12, dtype=np.int64), work_of(12, "one slow")
    early = loop_of(turns_of(AHEAD, 1, 12, 40, work=work), TURNS)
    early = fold_times(early, run_on(UNLIMITED, nodes)[0])
    assert not early.settled  # the delay has not come round
    steps = turns_of(AHEAD, 1, 12, 160, work=work)
    loop = loop_of(steps, TURNS)
    assert loop.group is not None
    assert not loop.chained
    wanted = whole(AHEAD, 1, 12, TURNS, UNLIMITED, nodes, work=work)
    run, seen = run_on(UNLIMITED, nodes)
    found = fold_times(loop, run)
    assert len(seen) == 1
    assert found.settled
    total = (wanted[0] + work * TURNS).mean()
    assert np.abs(found.sums - wanted)[0].max() < 0.01 * total


@pytest.mark.parametrize("pattern", [HALO, SWEEP], ids=["halo", "sweep"])
def test_windows_strung_together_are_one_simulation(pattern) -> None:
    """Also where ranks are turns apart from each other, and messages wait for their receivers."""
    rows, columns, turns = 3, 4, 9
    n, calls = rows * columns, len(pattern[0])
    network = replace(rough_network(), rate=np.inf, background=False)
    work = np.random.default_rng(5).uniform(1e3, 1e5, n)
    node_of = np.arange(n) // 4

    def steps(turns: int):
        return turns_of(pattern, rows, columns, turns, work=work, nbytes=100_000, periodic=False)

    whole, window = simulate(steps(turns), node_of, network), steps(1)
    results = strung(
        lambda first_ns: simulate(window, node_of, network, first_ns=first_ns),
        np.zeros(n),
        window.start[1:] - 1,
    )
    for turn, found in zip(range(turns), results, strict=False):
        here = np.arange(n * turns * calls).reshape(n, turns, calls)[:, turn].reshape(-1)
        long = whole.end_ns[here] - whole.begin_ns[here]
        assert found.end_ns - found.begin_ns == pytest.approx(long, rel=1e-9, abs=1e-4)
        assert found.waiting_ns == pytest.approx(whole.waiting_ns[here], rel=1e-9, abs=1e-4)
    assert whole.waiting_ns.max() > 1e3  # somebody waited


def test_sums_add_up_and_weights_are_kept() -> None:
    nodes, work = np.zeros(36, dtype=np.int64), work_of(36, "all different")
    loop = loop_of(turns_of(HALO, 6, 6, 5, work=work), TURNS)
    run, _ = run_on(UNLIMITED, nodes)
    long, waiting, transfer, software = fold_times(loop, run).sums
    assert np.allclose(long, waiting + transfer + software)
    # nine calls a turn, each at least the post: none is lost, none counted twice
    assert np.allclose(software, fold_times(loop, run, windows=6).sums[3], rtol=1e-6)


def test_windows_that_never_repeat_are_averaged() -> None:
    """With drawn computation nothing repeats; the mean is that of many turns."""
    nodes, n, turns = np.zeros(16, dtype=np.int64), 16, 600
    rng = np.random.default_rng(3)
    wanted = np.mean(
        [
            whole(
                HALO, 4, 4, turns, UNLIMITED, nodes, work=1e5 + rng.exponential(0.3e5, (n, turns))
            )
            for _ in range(3)
        ],
        axis=0,
    )
    loop = loop_of(turns_of(HALO, 4, 4, 7, work=np.full(n, 1e5)), turns)

    def run(steps, _, first):
        busy = steps.work_ns > 0
        work = np.where(busy, steps.work_ns + rng.exponential(0.3e5, len(steps)), 0.0)
        return simulate(replace(steps, work_ns=work), nodes, UNLIMITED, first_ns=first)

    found = np.mean([fold_times(loop, run, windows=40).sums for _ in range(5)], axis=0)
    assert found[0].mean() == pytest.approx(wanted[0].mean(), rel=0.06)


def test_nothing_is_folded_where_all_turns_are_there() -> None:
    steps = turns_of(HALO, 2, 2, 4, work=np.full(4, 1e5))
    assert not alike(section_of(steps, 4)).folded
    assert loop_of(steps, 4).group is None
    straight = replace(section_of(steps, 4), turns=1)
    assert alike(straight) is None


def test_turns_are_told_apart_by_what_is_done_in_them() -> None:
    """Turn 3 of 6 makes other calls: the others stand for the loop."""
    steps = turns_of(HALO, 2, 2, 6, work=np.full(4, 1e5))
    row = np.where(steps.turn == 3, steps.row + 1000, steps.row)
    found = alike(section_of(replace(steps, row=row), 61))
    assert found is not None
    assert found.turns.tolist() == [1, 2, 4, 5]
    assert found.stands_for == pytest.approx(48)


def test_parts_keep_links_and_requests() -> None:
    steps = turns_of(HALO, 3, 3, 4, work=np.full(9, 1e5))
    kept = np.isin(steps.turn, [1, 2])
    assert is_self_contained(steps, kept)
    mine = select_steps(steps, kept)
    wanted = turns_of(HALO, 3, 3, 2, work=np.full(9, 1e5))
    for name in ("start", "op", "peer", "to", "source", "done", "done_start", "work_ns"):
        assert np.array_equal(getattr(mine, name), getattr(wanted, name)), name
    assert not is_self_contained(steps, kept & (np.arange(len(steps)) != np.flatnonzero(kept)[3]))
