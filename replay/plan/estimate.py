"""What a replay will take, before it is made: time, and processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.replay.plan.program import SENDING, Code, Program, among
from p3s.simulate.network import Network
from p3s.simulate.steps import Section

#: Passes of a program that are thrown away (connections, caches), and those that usually make a
#: class narrow enough.
WARM_UP = 2
EXPECTED_PASSES = 16
FEWEST_PASSES = 8
#: Starting the processes: seconds for the launcher and per process, and per program to hand out.
START_S = 1.5
START_PER_PROCESS_S = 0.03
PER_PROGRAM_S = 0.05
#: An event of the inner loop and a synchronisation before each pass.
EVENT_NS = 1_000.0
PASS_NS = 200_000.0
#: Part of the budget that emulated computation may take.
WORK_SHARE = 0.5


@dataclass(frozen=True)
class Estimate:
    """What is expected of a replay; seconds unless it says otherwise.

    ``program_s``: each program with EXPECTED_PASSES, the timed ones last; ``launch_s``: starting it
    all; ``total_s``: both, never more than the budget allows; ``needed_s``: what it would take
    without a budget; ``least_s``: with FEWEST_PASSES of each. ``run_s``: the run that is predicted,
    one simulation with a rough network. ``processes``: of the replay; ``ranks``: of the run.
    ``all_pairs``: how many pairs of ranges there are. ``work_scale``: factor on emulated
    computation that lets all programs fit the budget. ``section_ns``: length of a pass of each
    section.
    """

    program_s: tuple[float, ...]
    launch_s: float
    total_s: float
    needed_s: float
    least_s: float
    budget_s: float
    run_s: float
    processes: int
    ranks: int
    all_pairs: int
    work_scale: float
    section_ns: tuple[float, ...]

    @property
    def share_of_cores(self) -> float:
        """Processes of the replay over ranks of the run."""
        return self.processes / self.ranks

    @property
    def share_of_time(self) -> float | None:
        """Time of the replay over that of the run, None if that is not known."""
        return self.total_s / self.run_s if self.run_s > 0 else None


def pass_ns(program: Program, network: Network) -> float:
    """Return how long a pass of a program takes its slowest process, without waiting for others."""
    events = program.events
    nbytes = np.where(among(events["code"], *SENDING), events["bytes"], 0).astype(np.float64)
    nbytes *= np.where(events["code"] == Code.LINK_SEND, np.maximum(events["number"], 1), 1)
    transfer = np.where(nbytes > 0, network.path(max(network.paths)).transfer.at(nbytes), 0.0)
    return _slowest(program, events["work_ns"] + EVENT_NS + transfer)


def _slowest(program: Program, each: np.ndarray) -> float:
    """Return the largest sum of a value per event over the events of a process."""
    total = np.concatenate(([0], np.cumsum(each)))
    return float(np.diff(total[program.start]).max(initial=0.0))


def run_seconds(sections: Sequence[Section], section_ns: Sequence[float]) -> float:
    """Return how long the run is: sections as often as they are entered, all their turns."""
    total = 0.0
    for section, length in zip(sections, section_ns, strict=True):
        turns = max(section.run_turns, section.turns, 1) / max(section.turns, 1)
        total += length * turns * section.entries
    return total * 1e-9


def estimate(
    sections: Sequence[Section],
    section_ns: Sequence[float],
    programs: Sequence[Program],
    network: Network,
    *,
    timed: Sequence[int],
    processes: int,
    ranks: int,
    all_pairs: int,
    placements: int,
    budget_s: float,
) -> Estimate:
    """Return what to expect.

    ``section_ns``: length of each section's pass. ``timed``: section of each timed program that
    will be made; ``placements``: how often the processes are started anew on other nodes.
    """
    passes, least = WARM_UP + EXPECTED_PASSES, WARM_UP + FEWEST_PASSES
    trace = [program for program in programs if program.what == "trace"]
    per_pass = [
        max(pass_ns(p, network), section_ns[p.section] if p.what == "trace" else 0.0)
        for p in programs
    ]
    per_pass += [section_ns[section] for section in timed]
    program_s = tuple(passes * (ns + PASS_NS) * 1e-9 + PER_PROGRAM_S for ns in per_pass)
    launch_s = placements * (START_S + START_PER_PROCESS_S * processes)
    needed = sum(program_s)
    work_ns = sum(_slowest(program, program.events["work_ns"]) for program in trace)
    work_s = (FEWEST_PASSES + 1) * 1e-9 * work_ns
    return Estimate(
        program_s=program_s,
        launch_s=launch_s,
        total_s=launch_s + min(needed, budget_s),
        needed_s=launch_s + needed,
        least_s=launch_s + needed * least / passes,
        budget_s=budget_s,
        run_s=run_seconds(sections, section_ns),
        processes=processes,
        ranks=ranks,
        all_pairs=all_pairs,
        work_scale=min(1.0, WORK_SHARE * budget_s / work_s) if work_s > 0 else 1.0,
        section_ns=tuple(section_ns),
    )
