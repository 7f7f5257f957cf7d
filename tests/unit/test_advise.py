"""The advisor: constraints are kept, errors are taken jointly, advice says what it rests on."""

from __future__ import annotations

import numpy as np
import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.inside import read_node
from p3s.methods.threads.advise.advisor import Advisor, Workload, next_runs
from p3s.methods.threads.advise.text import table_of
from p3s.methods.threads.advise.types import Configuration, Limits, Objective, admissible, uses_of
from p3s.methods.threads.law import ThreadLaw, fit_law
from p3s.methods.threads.types import Value, samples
from p3s.predict.types import CODES

NODE = read_node("2x2x8+smt2+64GB")
WORK = 64.0


@pytest.fixture(scope="module")
def law() -> ThreadLaw:
    """A program that loses with threads: every region waits for the slowest one."""
    rows = [(32 * k // t, t, 32 // t) for k in (1, 2, 4) for t in (1, 4, 16)] + [(4, 2, 4)]
    n, threads, per_node = (np.array(x) for x in zip(*rows, strict=True))
    work = WORK / n
    y = (
        work
        / threads
        * (1 + 0.1 * np.log2(threads))
        * np.random.default_rng(1).lognormal(0, 0.01, 10)
    )
    return fit_law(samples(n=n, threads=threads, per_node=per_node, work=work, seconds=y), NODE)


def table(found: tuple[Configuration, ...], messages: float = 0.0, spread: float = 1.0) -> Workload:
    n = np.array([float(each.processes) for each in found])
    seconds = Value(messages * n, messages * n / spread, messages * n * spread)
    return Workload((WORK / n)[None, :], np.full((1, len(n)), 10.0), seconds)


def test_configurations_keep_all_limits() -> None:
    found = admissible(
        Limits(
            NODE,
            nodes=4,
            cores=96,
            accepted=lambda n: n % 2 == 0,
            footprint=lambda n: 2.0**36 / n,
            threads=(1, 2, 4, 32),
        )
    )
    assert found == tuple(sorted(set(found)))
    for each in found:
        assert each.processes % 2 == 0 and each.threads in (1, 2, 4, 32)
        assert each.processes * each.threads <= 96 and each.nodes <= 4
        assert each.per_node * each.threads <= 32
        assert each.nodes == -(-each.processes // each.per_node)
        assert each.per_node * 2.0**36 / each.processes <= 64 * 2**30
    assert any(each.far for each in found)
    full = [c for c in found if c.per_node * c.threads == 32]
    assert full and not any(each.far for each in full)  # there far is close


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(NODE, nodes=0), "one node"),
        (Limits(NODE, threads=(64,)), "do not fit on a node of 32 cores; hardware threads"),
        (Limits(NODE, threads=(0,)), "1 and more"),
        (Limits(NODE, accepted=[100000]), "no configuration"),
        (Limits(NODE, footprint=lambda n: 1e15), "more memory"),
        (Limits(read_node("1x4"), footprint=lambda n: 1.0), "memory of a node is not known"),
    ],
)
def test_limits_that_cannot_be_met(limits: Limits, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        admissible(limits)
    assert "\n" not in str(caught.value)


def test_the_best_configuration_is_found(law: ThreadLaw) -> None:
    found = admissible(Limits(NODE, nodes=4))
    advice = Advisor([law], found).advise(table(found))
    assert advice.considered == len(found) and len(advice.choices) == 3
    best = advice.best
    assert (best.configuration.processes, best.configuration.threads) == (128, 1)
    assert best.seconds.low < 5.0 < best.seconds.high and best.trusted
    assert best.regret < 0.01 and best.chance > 0.5
    assert [c.regret for c in advice.choices] == sorted(c.regret for c in advice.choices)
    costly = Advisor([law], found).advise(table(found, 0.05))
    assert costly.best.configuration.processes < 128


def test_configurations_that_share_their_errors_are_told_apart(law: ThreadLaw) -> None:
    same = (Configuration(32, 1, 32, 1), Configuration(32, 1, 32, 1))
    unsure = table(same, 0.05, 3.0)
    advice = Advisor([law], same).advise(unsure)
    assert [choice.regret for choice in advice.choices] == [0.0, 0.0]
    pair = (Configuration(128, 1, 32, 4), Configuration(64, 1, 32, 2))
    work = table(pair)
    doubtful = Workload(work.work, work.iterations, work.messages, work_error=0.5)
    choice = Advisor([law], pair).advise(doubtful).best
    assert choice.seconds.high > 3 * choice.seconds.low  # far from known, and yet the better one
    assert choice.chance == 1.0 and choice.regret == 0.0


def test_objectives_are_those_of_the_thesis(law: ThreadLaw) -> None:
    found = (Configuration(32, 4, 8, 4), Configuration(128, 1, 32, 4))
    advisor, work = Advisor([law], found), table(found, 0.01)
    seconds, index, core_index, hours = (advisor.objective(work, each) for each in Objective)
    computing = advisor.computing(work)
    n = np.array([32, 128])
    efficiency = (n * computing) / (n * seconds)  # eq. 4.10 and T_c over what n ranks have
    np.testing.assert_allclose(index, seconds / efficiency, rtol=1e-9)  # eq. 4.9
    assert np.all(index >= seconds) and np.all(core_index >= seconds * 0.99)
    np.testing.assert_allclose(hours, seconds * 4 * 32 / 3600)
    choice = advisor.advise(work, Objective.INDEX).best
    assert choice.index == pytest.approx(choice.seconds.value / choice.efficiency)


def test_advice_outside_of_what_was_seen_says_so(law: ThreadLaw) -> None:
    found = (
        Configuration(4096, 1, 32, 128),
        Configuration(1, 32, 1, 1),
        Configuration(8, 1, 8, 1, True),
    )
    advice = Advisor([law], found).advise(table(found), top=3)
    codes = {c.configuration: {r.code for r in c.reasons} for c in advice.choices}
    assert {"extrapolated", "outside", "idle-threads"} <= codes[found[0]]
    assert "outside-threads" in codes[found[1]]
    assert "outside-place" in codes[found[2]]
    assert set().union(*codes.values()) <= set(CODES)
    assert not advice.best.trusted


def test_advice_is_the_same_again_and_reads_as_a_table(law: ThreadLaw) -> None:
    found = admissible(Limits(NODE, nodes=4, smt=True))
    one, other = (Advisor([law], found).advise(table(found, 0.001, 1.2)) for _ in range(2))
    assert one == other
    head, rows = table_of(one)
    assert "regret" in head and len(rows) == len(one.choices)


def test_the_heat_map_has_a_cell_for_each_pair(law: ThreadLaw) -> None:
    found = admissible(Limits(NODE, nodes=2))
    cells = Advisor([law], found).cells(table(found))
    assert len(cells) == len({(c.processes, c.threads) for c in found})
    assert all(c.configuration.processes == c.processes and c.value > 0 for c in cells)


def test_the_next_run_is_one_that_tells_what_is_open() -> None:
    rows = [(n, t, n) for n in (2, 4, 8) for t in (1, 2)]
    n, threads, per_node = (np.array(x) for x in zip(*rows, strict=True))
    y = WORK / n / threads * (1 + 0.02 * threads)
    law = fit_law(samples(n=n, threads=threads, per_node=per_node, work=WORK / n, seconds=y), NODE)
    found = admissible(Limits(NODE, nodes=4))
    advisor = Advisor([law], found)
    some = (Configuration(2, 1, 2, 1), Configuration(2, 16, 2, 1), Configuration(4, 2, 4, 1))
    told = next_runs(advisor, table(found), some, table(some))
    assert told[0].configuration == some[1]  # full nodes; the others were seen
    assert told[0].spread_after < 0.8 * told[0].spread
    assert all(each.gain > -1e-9 for each in told)
    with pytest.raises(P3SError, match="no run is possible"):
        next_runs(advisor, table(found), (), table(some))


def test_workloads_of_other_phases_are_refused(law: ThreadLaw) -> None:
    found = admissible(Limits(NODE))
    work = table(found)
    with pytest.raises(P3SError, match="other phases"):
        Advisor([law, law], found).advise(work)
    with pytest.raises(P3SError, match="needs laws"):
        Advisor([], found)
    assert len(uses_of(found)) == len(found)
    assert Value(*work.messages).seconds.shape == (len(found),)
