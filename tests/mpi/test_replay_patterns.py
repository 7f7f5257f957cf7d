"""1,000 communication patterns, planned and executed under a scripted MPI that is free to be nasty.

No program may wait for ever, messages must meet as in the full run, and every event of the run is
measured, or reused from a class that is measured, or put together from such classes.
"""

from __future__ import annotations

import random
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from replay_jobs import mpis, run_job, settings_of
from replay_random import Pattern, pattern
from scripted_mpi import BUFFERING, TEMPERS, Outcome, execute

from p3s.program.collectives.choose import library_of
from p3s.program.mapping import mapping_of
from p3s.replay.engine.job import result_path, write_job
from p3s.replay.plan.build_traffic import WHY_TEXT, SkipReason
from p3s.replay.plan.plan import make_plan, timed_programs
from p3s.replay.plan.program import BLACK_HOLE, MEASURED, Program
from p3s.replay.plan.types import ReplayPlan
from p3s.replay.settings import ReplaySettings
from p3s.simulate.network import rough_network
from p3s.simulate.steps import RECEIVES, SENDS, Op, Section

#: Patterns in make test, and all of them.
SOME = 100
ALL = 1000
_GROUP = 20
LIBRARIES = (("openmpi", "4.1"), ("mpich", "4.0"))


def plan_of(made: Pattern) -> ReplayPlan:
    """Plan a pattern as one section, with a mapping, library and settings by its seed."""
    rng = random.Random(made.seed)
    library = library_of(*rng.choice(LIBRARIES))
    mapping = mapping_of(rng.choice(("block", "cyclic")), made.steps.n, made.cores)
    section = Section(made.words, (0,), made.steps, 1, 0, 1, 1.0, ())
    settings = ReplaySettings(timed=True, exhaustive=rng.random() < 0.3, budget_s=600.0)
    with patch("p3s.replay.plan.plan.MOST_CLASSES", 1000):
        return make_plan([section], mapping, None, settings, rough_network(), library)


def schedule_of(plan: ReplayPlan, seed: int) -> np.ndarray:
    """Return times that grow along each rank and mean nothing else."""
    full = plan.full[0]
    rng = np.random.default_rng(seed)
    begin = rng.random(len(full)) * 1e6
    for rank in full.ranks.tolist():
        begin[full.of(rank)] = np.sort(begin[full.of(rank)])
    return begin


def assert_meets(plan: ReplayPlan, program: Program, outcome: Outcome) -> None:
    """Check which ends met: those of the full run, or a measured rank and its own black hole."""
    full = plan.full[0]
    processes = plan.world.processes
    for send, receive in outcome.met:
        ends = processes[send.process], processes[receive.process]
        roles = {end.role for end in ends}
        if roles == {MEASURED}:
            assert full.to[send.step] == receive.step
        elif BLACK_HOLE in roles and MEASURED in roles:
            assert send.step == receive.step
            assert (ends[0].side, ends[0].slot) == (ends[1].side, ends[1].slot)


def measured_classes(plan: ReplayPlan) -> tuple[set[int], set[int]]:
    """Return the classes of calls and of messages that some program measures."""
    calls: set[int] = set()
    messages: set[int] = set()
    for program in plan.programs:
        if program.what == "trace":
            calls |= set(program.events["sample"].tolist()) - {-1}
        elif program.pairing is not None:
            messages |= set(program.pairing.cls.tolist()) - {-1}
    return calls, messages


def assert_covered(plan: ReplayPlan) -> None:
    """Check that nothing is lost: each event is measured, reused, composed, or left out and said.

    A collective that is executed as such is a class of its own; where its members do not fit, its
    messages are.
    """
    calls, messages = measured_classes(plan)
    full = plan.full[0]
    stopped = {entry.call for entry in plan.left_out if entry.why == WHY_TEXT[SkipReason.DEADLOCK]}
    known = calls | set(plan.composed)
    direct = plan.wholes[0].direct_of[plan.wholes[0].origin]
    for i in np.flatnonzero(full.is_op(*SENDS, *RECEIVES)).tolist():
        call = int(direct[i]) if direct[i] >= 0 else int(plan.wholes[0].call_of[i])
        assert call in known or full.calls[full.call[i]] in stopped
        assert int(plan.wholes[0].message_of[i]) in messages
    for i in np.flatnonzero(full.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)).tolist():
        assert int(direct[i]) in known


def assert_measured_once(plan: ReplayPlan) -> None:
    """Check that no program samples an event twice, and only events of its own ranks' calls."""
    for program in plan.programs:
        if program.what == "trace":
            step = program.step[program.events["sample"] >= 0]
            step = step[step >= 0]
            assert len(np.unique(step)) == len(step)


def run(seed: int) -> tuple[int, int]:
    """Plan and execute a pattern; return how many programs and events it took."""
    made = pattern(seed)
    plan = plan_of(made)
    assert_covered(plan)
    assert_measured_once(plan)
    rng = random.Random(seed)
    programs = plan.programs + timed_programs(plan, [schedule_of(plan, seed)])
    events = 0
    for program in programs:
        outcome = execute(program, seed, rng.choice(TEMPERS), rng.choice(BUFFERING))
        if program.what in ("trace", "timed"):
            assert_meets(plan, program, outcome)
        events += len(program.events)
    return len(programs), events


@pytest.mark.parametrize("first", range(0, SOME, _GROUP))
def test_patterns_come_to_their_end(first: int) -> None:
    assert sum(run(seed)[0] for seed in range(first, first + _GROUP)) > _GROUP


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SOME, ALL, _GROUP))
def test_all_patterns_come_to_their_end(first: int) -> None:
    assert sum(run(seed)[0] for seed in range(first, first + _GROUP)) > _GROUP


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3, 7, 10])
def test_patterns_come_to_their_end_with_real_processes(tmp_path: Path, seed: int) -> None:
    plan = plan_of(pattern(seed))
    programs = [program for program in plan.programs if program.what == "trace"]
    programs += timed_programs(plan, [schedule_of(plan, seed)])
    for mpi in mpis():
        job = tmp_path / mpi.family
        write_job(
            job, programs, plan.world, settings_of(mpi, budget_s=8.0, stall_s=20.0, work_scale=0.01)
        )
        ended = run_job(job, mpi, plan.world.size, timeout_s=300.0)
        assert ended.code == 0, ended.stderr
        assert all(result_path(job, number).exists() for number in range(len(programs)))
