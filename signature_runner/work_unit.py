"""How the work of a study's runs is measured: in one unit, and as in its earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from p3s.base.errors import P3SError, UsageError
from p3s.base.host.cores import threads_in
from p3s.base.records import RunRecord, Traces, work_of
from p3s.signature_runner.recording import ACCEPTED, UNFINALIZED, Recording

_NAMES = {"wall": "wall time", "cpu": "CPU time", "instructions": "instructions"}


def settle(
    request: Recording, study: Traces | None, counts: Sequence[int], repeats: int, usable: int
) -> Recording:
    """Return the recording of new runs at ``counts``: one way to measure work in a whole study.

    CPU time for all counts if any, old or new, exceeds the ``usable`` cores, unless the user
    asked for something; else what the runs that stay have. Instead of either the instructions of
    perf_event, where the machine counts them and runs that stay have nothing else. Errors:
    UsageError when runs that stay were measured in another way.
    """
    runs = (
        1 if request.work == "instructions" else repeats
    )  # exact: a second run would say the same
    replaced = {(np, rep) for np in counts for rep in range(runs)}
    every = study.runs if study is not None else ()
    remaining = [run for run in every if (run.np, run.rep) not in replaced and run.info]
    counts_of = work_of(remaining)
    width = max(request.threads, 1)
    most = width * max([*counts, *(run.np for run in remaining)])
    work, native = request.work, request.work == "auto" and _native(remaining)
    perf = request.work == "auto" and width == 1 and (native or not counts_of)
    if work == "auto" and "instructions" in counts_of and not native:
        work = "instructions"
    elif work == "auto" and most > usable:
        work = "cpu"
    elif work == "auto" and counts_of and not native:
        work = next(iter(counts_of))
    unit_of = "instructions" if native else work
    others = {unit: nps for unit, nps in counts_of.items() if unit != unit_of}
    if others and study is not None:
        unit, nps = next(iter(others.items()))
        again = ",".join(map(str, sorted({*counts, *nps})))
        them = "processes" if width == 1 else "threads"
        why = f", {most} {them} share {usable} cores" if request.work == "auto" else ""
        advice = ""
        if work == "instructions":
            advice = " (there, CPU time is measured beside the instructions)"
            if any(run.rep >= runs for run in remaining if run.np in counts):
                again = ""  # repeats that no new run replaces
        asks = f"use another study for --work {work}, -o NEW"
        if again:
            asks = f"trace -n {again} with --work {work}, or use another study"
        raise UsageError(
            f"{study.root}: work was measured in {_NAMES[unit]} at"
            f" {', '.join(map(str, sorted(nps)))} processes, this would be {_NAMES[unit_of]}{why};"
            f" a study holds one unit: {asks}{advice}"
        )
    return replace(request, work=work, perf=perf)


def _native(runs: Sequence[RunRecord]) -> bool:
    """Tell whether perf_event counted the instructions of runs: they were not asked for."""
    counted = [run for run in runs if "instructions" in work_of([run])]
    return any(run.info.get("work", "instructions") != "instructions" for run in counted)


def only_timed(request: Recording, study: Traces, counts: Sequence[int]) -> bool:
    """Tell whether new runs give the time of what was counted: CPU time, a study of instructions.

    Errors: UsageError when nothing was counted at one of the ``counts``.
    """
    counts_of = work_of(run for run in study.runs if run.info and run.status == "complete")
    if request.work != "cpu" or list(counts_of) != ["instructions"]:
        return False
    missing = [np for np in counts if np not in counts_of["instructions"]]
    if missing:
        words = ",".join(map(str, missing))
        raise UsageError(
            f"{study.root}: holds counts of instructions, and none at {words} processes that CPU"
            f" time could go beside; trace -n {words} with --work instructions, which measures both"
        )
    return True


def of_study(study: Traces) -> Recording:
    """Return the recording for a run that is compared with those of a study."""
    studies = [study, *study.sources]
    runs = [run for each in studies for run in each.runs if run.info]
    units, native = list(work_of(runs)), _native(runs)
    work = units[0] if len(units) == 1 and not native else "auto"
    return as_earlier(Recording(work=work, perf=native), study)


def in_unit_of(study: Traces, request: Recording) -> Recording:
    """Return a recording in the unit of a study; UsageError where another was asked for."""
    unit = of_study(study).work
    if request.work not in ("auto", unit):
        raise UsageError(
            f"--work {request.work}: the work of {study.root} is measured in {unit}, and work can"
            " only be compared in one unit; leave out --work"
        )
    return replace(request, work=unit)


def as_earlier(request: Recording, study: Traces) -> Recording:
    """Return a recording with the threads and the way to end that the study's runs have."""
    if any(run.info.get(UNFINALIZED) for run in study.runs):
        request = replace(request, unfinalized=True)
    accepted = [run.info[ACCEPTED] for run in study.runs if ACCEPTED in run.info]
    if accepted and not request.accepted:
        request = replace(request, accepted=int(accepted[-1]))
    if request.threads or not study.threads:
        return request
    threads_known = [threads for run in study.runs if (threads := threads_in(run.info))]
    return replace(
        request,
        threads=study.threads,
        affinity=threads_known[-1][1] if threads_known else request.affinity,
    )


def check_unit(study: Traces) -> None:
    """Raise P3SError when the runs of a study were measured in several ways."""
    counts_of = work_of(run for run in study.runs if run.info)
    if len(counts_of) > 1:
        parts = [
            f"{_NAMES[unit]} at {', '.join(map(str, sorted(nps)))}"
            for unit, nps in counts_of.items()
        ]
        again = ",".join(map(str, sorted({np for nps in counts_of.values() for np in nps})))
        raise P3SError(
            f"{study.root}: work was measured in {' and in '.join(parts)} processes; trace"
            f" -n {again} again with --work cpu"
        )
