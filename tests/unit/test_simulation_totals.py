"""Times added up by the core, beside those of the single steps; columns that fill less memory."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from loops import AHEAD, HALO, SWEEP, loop_of, turns_of
from test_dependency_random import network, pattern

from p3s.base.errors import P3SError
from p3s.costs.spread import Distribution, Spread
from p3s.predict.estimators import drawn as of_draws
from p3s.predict.estimators import drawn as of_variation
from p3s.predict.estimators.drawn import Variation
from p3s.simulate import packed as of_packed
from p3s.simulate import simulate as simulation
from p3s.simulate.folded import fold_times, folded_totals
from p3s.simulate.network import rough_network
from p3s.simulate.packed import Tally
from p3s.simulate.simulate import simulate, totals
from p3s.simulate.steps import constant, narrow_column, taken
from p3s.simulate.totals import PARTS, Room, StepDraws, added_up

CELLS = 24


def tally_of(steps, rng) -> Tally:
    """Return three cells of each rank, weights, and two groups of steps."""
    cell = steps.rank * 3 + rng.integers(0, 3, len(steps))
    group = rng.integers(0, 3, len(steps)).astype(np.uint8)
    return Tally(cell, rng.uniform(0, 9, len(steps)), CELLS, group, 2)


@pytest.mark.parametrize("many", [0, 20_000])
@pytest.mark.parametrize("links", [False, True])
def test_times_are_added_up_as_they_are_told(links, many, monkeypatch) -> None:
    """Also of steps that lie in the order in which they began the first time."""
    monkeypatch.setattr(simulation, "MANY", many)
    room = Room()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        steps = pattern(rng)[0]
        net = network(rng, links=links, background=seed % 2 > 0)
        nodes = np.arange(steps.n) // 2
        tally, first = tally_of(steps, rng), rng.uniform(0, 500, len(steps.ranks))
        for again in range(3):
            cost = network(np.random.default_rng(again), links=links, background=seed % 2 > 0)
            totals(steps, nodes, cost, tally, first_ns=first[::-1].copy(), room=room)
        found = totals(steps, nodes, net, tally, first_ns=first, room=room)
        (packed,) = [one for one in room.packs.kept if one.columns[2] is steps.start]
        assert (packed.order is not None) == (many == 0 and packed.begun is not None)
        single = simulate(steps, nodes, net, first_ns=first, anyway=True)
        wanted = added_up(single, steps.start, tally)
        assert found.sums.shape == (PARTS, CELLS)
        assert (found.sums == wanted.sums).all()
        assert np.allclose(found.long, wanted.long, rtol=1e-12)
        assert (found.ends_of(np.arange(len(steps))) == single.end_ns).all()
        assert (found.notes, found.cut) == (single.notes, single.cut)


def test_slower_messages_are_shorter_computation() -> None:
    rng = np.random.default_rng(5)
    steps = pattern(rng)[0]
    net, nodes, tally = network(rng, links=True), np.arange(steps.n) // 2, tally_of(steps, rng)
    found = totals(steps, nodes, net, tally, slower=1.08)
    shorter = replace(steps, work_ns=steps.work_ns / 1.08)
    assert (found.sums == totals(shorter, nodes, net, tally).sums).all()


def test_memory_that_is_used_again_leaves_nothing_behind() -> None:
    """Neither sums nor what was found out of other steps, nor of the same with other work."""
    room, net = Room(), rough_network()
    for size in (6, 3, 5, 5):
        work = np.full(size * size, 1e5 * size)
        steps = turns_of(HALO, size, size, 4, work=work)
        nodes = np.arange(size * size) // 4
        tally = Tally(steps.rank, np.ones(len(steps)), size * size)
        for more in (1.0, 2.0):
            now = replace(steps, work_ns=steps.work_ns * more)
            found = totals(now, nodes, net, tally, room=room)
            assert (found.sums == totals(now, nodes, net, tally).sums).all()
    worse = replace(steps, work_ns=np.full(len(steps), np.nan))
    with pytest.raises(P3SError, match="its work is negative or no number"):
        totals(worse, nodes, net, tally, room=room)
    unmet = replace(steps, to=np.where(steps.to >= 0, steps.to[::-1], -1))
    with pytest.raises(P3SError, match="simulation: step"):
        totals(unmet, nodes, net, tally, room=room)


@pytest.mark.parametrize("many", [0, 20_000])
def test_what_is_computed_instead_counts_for_one_simulation(many, monkeypatch) -> None:
    monkeypatch.setattr(simulation, "MANY", many)
    net, nodes, room = rough_network(), np.arange(16) // 4, Room()
    steps = turns_of(HALO, 4, 4, 4, work=np.full(16, 1e5))
    tally = Tally(steps.rank, np.ones(len(steps)), 16)
    at = np.flatnonzero(steps.work_ns > 0)
    rng = np.random.default_rng(4)
    for _ in range(3):
        plain = totals(steps, nodes, net, tally, room=room)
        assert (plain.sums == totals(steps, nodes, net, tally).sums).all()
        for which in (at[::2], at):
            work = steps.work_ns.copy()
            work[which] *= rng.uniform(0.5, 2, len(which))
            drawn = StepDraws(which, work[which])
            found = totals(steps, nodes, net, tally, drawn=drawn, room=room)
            assert (
                found.sums == totals(replace(steps, work_ns=work), nodes, net, tally).sums
            ).all()
    with pytest.raises(P3SError, match=f"step {at[1]} of rank .*: its work is negative"):
        totals(steps, nodes, net, tally, drawn=StepDraws(at[:2], np.array([1.0, -1.0])), room=room)


def test_cells_that_there_are_not_are_refused() -> None:
    steps = turns_of(SWEEP, 2, 2, 2, work=np.ones(4), periodic=False)
    with pytest.raises(P3SError, match="cells"):
        totals(steps, np.zeros(4, int), rough_network(), Tally(steps.rank, np.ones(len(steps)), 3))


@pytest.mark.parametrize("pattern_", [HALO, SWEEP, AHEAD])
@pytest.mark.parametrize("overlap", [False, True])
def test_loops_fold_the_same_whoever_adds_up(pattern_, overlap, monkeypatch) -> None:
    monkeypatch.setattr(simulation, "MANY", 0)
    work = np.random.default_rng(1).uniform(1e5, 2e5, 16)
    loop = loop_of(turns_of(pattern_, 4, 4, 12, work=work, periodic=False), 300)
    net, nodes, room = rough_network(), np.arange(16) // 4, Room()
    kept = []

    def add_up(steps, only, tally, first):
        return totals(steps, nodes, net, tally, first_ns=first, only=only, room=room)

    def run(steps, _, first):
        kept.append(len(steps))
        return simulate(steps, nodes, net, first_ns=first, anyway=True)

    one = folded_totals(loop, add_up, overlap=overlap)
    again = folded_totals(loop, add_up, overlap=overlap)
    assert all(packed.order is not None for packed in room.packs.kept)
    assert (again.sums == one.sums).all()
    other = fold_times(loop, run, overlap=overlap)
    assert np.allclose(one.sums, other.sums, rtol=1e-12)
    assert (one.windows, one.settled) == (other.windows, other.settled) == (len(kept), one.settled)


def test_threads_share_packed_steps(monkeypatch) -> None:
    """While one thread simulates, others let go of what it was told: tallies, networks, order."""
    monkeypatch.setattr(simulation, "MANY", 0)
    steps = turns_of(HALO, 8, 8, 60, work=np.random.default_rng(1).uniform(1e5, 2e5, 64))
    nodes, room = np.arange(64) // 4, Room()
    nets = [replace(rough_network(), post=10.0 * k) for k in range(12)]
    tallies = [Tally(steps.rank, np.full(len(steps), 1.0 + k), 64) for k in range(12)]
    wanted = [totals(steps, nodes, *both).sums for both in zip(nets, tallies, strict=True)]

    def simulated(seed: int) -> bool:
        mine = Room(room.packs)
        some = np.random.default_rng(seed).integers(0, 12, 40).tolist()
        return all(
            (
                totals(
                    steps, nodes, nets[k], replace(tallies[k], cell=tallies[0].cell), room=mine
                ).sums
                == wanted[k]
            ).all()
            for k in some
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(simulated, range(8)))
    assert len(room.packs.kept) == 1


def test_simulations_of_a_loop_add_up_by_the_same_tallies(monkeypatch) -> None:
    """Also in a last window of which some iterations count: they are weighed once for all."""
    loop = loop_of(turns_of(HALO, 4, 4, 4, work=np.full(16, 1e5)), 6)
    net, nodes, room = rough_network(), np.arange(16) // 4, Room(loop.packs)
    told: list[Tally] = []
    moved: list[int] = []
    move = of_packed.PackedSteps.moved

    def seen(self, column):
        moved.append(len(column))
        return move(self, column)

    def add_up(steps, only, tally, first):
        told.append(tally)
        return totals(steps, nodes, net, tally, first_ns=first, only=only, room=room)

    first = folded_totals(loop, add_up)
    monkeypatch.setattr(of_packed.PackedSteps, "moved", seen)
    again = folded_totals(loop, add_up)
    assert again.settled and (again.sums == first.sums).all()
    half = len(told) // 2
    assert half > 1 and all(a is b for a, b in zip(told[:half], told[half:], strict=True))
    assert len({id(tally) for tally in told}) == half == 2 and not moved


def test_means_of_what_never_repeats_are_had_from_the_windows_that_are_allowed() -> None:
    """Queues at links need not repeat, here not at all; what they cost in the mean settles soon."""
    loop = loop_of(turns_of(HALO, 4, 4, 6, work=np.full(16, 1e5)), 5000)
    net, nodes = rough_network(), np.arange(16) // 4

    def sums(most: int) -> tuple[float, int, bool]:
        rng = np.random.default_rng(2)

        def add_up(steps, only, tally, first):
            work = steps.work_ns * rng.uniform(0.8, 1.2, len(steps))
            now = replace(steps, work_ns=work)
            return totals(now, nodes, net, tally, first_ns=first, only=only)

        found = folded_totals(loop, add_up, most=most)
        return float(found.sums[0].mean()), found.windows, found.settled

    few, many = sums(8), sums(80)
    assert few[1:] == (9, False) and many[1:] == (81, False)
    assert few[0] == pytest.approx(many[0], rel=0.1)


def test_what_varies_is_drawn_where_there_is_computation() -> None:
    turns = Distribution.of((0.1, 0.5, 0.9), (0.5, 1.0, 1.6))
    varies = Variation((Spread(turns=turns), Spread(), Spread(turns=turns)))
    rng = np.random.default_rng(3)
    work = np.where(rng.random(5000) < 0.3, 0.0, rng.uniform(1, 9, 5000))
    cell, lasting = rng.integers(0, 30, 5000), rng.uniform(0.5, 2, 30)
    varying = varies.varying(work, cell, lasting)
    whole, again = (varying.drawn(np.random.default_rng(8)) for _ in range(2))
    assert (again == whole).all()
    even = cell % 3 == 1
    assert (whole[even] == (work * lasting[cell])[even]).all()
    busy = ~even & (work > 0)
    assert np.std(whole[busy] / (work * lasting[cell])[busy]) > 0.1
    assert (whole[work == 0] == 0).all()


@pytest.mark.parametrize("phases", [1, 3])
def test_what_is_drawn_piece_by_piece_is_what_is_drawn_at_once(phases, monkeypatch) -> None:
    turns = Distribution.of((0.1, 0.5, 0.9), (0.5, 1.0, 1.6))
    varies = Variation(tuple(Spread(turns=turns) for _ in range(phases)))
    rng = np.random.default_rng(3)
    work, cell = rng.uniform(1, 9, 50_000), rng.integers(0, 30, 50_000)
    varying = varies.varying(work, cell, rng.uniform(0.5, 2, 30))
    assert all((where is None) == (phases == 1) for _, _, where in varying.parts)
    found = []
    for number in (700, 1 << 14, 1 << 20):
        monkeypatch.setattr(of_variation, "_AT_ONCE", number)
        found.append(varying.drawn(np.random.default_rng(8)))
    assert (found[0] == found[2]).all() and (found[1] == found[2]).all()


def test_few_steps_are_drawn_in_this_thread_and_many_alike_in_several(monkeypatch) -> None:
    loop = loop_of(turns_of(HALO, 4, 4, 6, work=np.full(16, 1e5)), 500)
    net, nodes = rough_network(), np.arange(16) // 4
    ready: Any = SimpleNamespace(
        loops=(loop,), trace=SimpleNamespace(n=16), node_of=nodes, distance=None
    )
    varies = Variation((Spread(turns=Distribution.of((0.1, 0.5, 0.9), (0.5, 1.0, 1.6))),))
    even = folded_totals(loop, of_draws.runner(ready, net, [], Room()))
    threads = set()

    def seen(*args, **more):
        threads.add(threading.get_ident())
        return folded_totals(*args, **more)

    monkeypatch.setattr(of_draws, "folded_totals", seen)
    few = of_draws.simulate_variation(ready, 0, net, varies, even, False)
    assert threads == {threading.get_ident()}
    monkeypatch.setattr(of_draws, "_WORTH_A_THREAD", 1)
    threads.clear()
    many = of_draws.simulate_variation(ready, 0, net, varies, even, False)
    assert (many == few).all() and not (few[:-1] == even.sums).all()
    assert threading.get_ident() not in threads or len(os.sched_getaffinity(0)) == 1


def test_columns_take_no_more_bits_than_they_need() -> None:
    assert narrow_column(np.array([-1, 2**31 - 1])).dtype == np.int32
    for far in (2**31, -(2**31) - 1):
        assert narrow_column(np.array([0, far])).tolist() == [0, far]
    same = constant(-1, 6)
    for which, number in ((np.array([4, 1]), 2), (np.arange(6) % 2 > 0, 3)):
        found = taken(same, which)
        assert found.tolist() == [-1] * number and found.strides == (0,)
    assert taken(np.arange(6), np.array([4, 1])).tolist() == [4, 1]
