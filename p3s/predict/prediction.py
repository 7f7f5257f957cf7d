"""Run time and speedup at large counts from phase times and weights (Eq. 8.1)."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from p3s.base import ops
from p3s.base.artefacts import crc_of
from p3s.base.errors import P3SError
from p3s.base.ops import called
from p3s.base.serialise import from_data
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.base.text import not_used, quoted
from p3s.capture.other_calls import OtherCall, other_calls
from p3s.capture.sites import programs_of, traced_ns
from p3s.costs.files.types import FileUseAt
from p3s.model.comparison import Comparison, read_comparison
from p3s.model.grid.admissible import admits
from p3s.model.order.kinds import Kinds
from p3s.model.stage import read
from p3s.model.types import Model
from p3s.predict import doubts, notes
from p3s.predict.case import Case, Doubt, Facts, rivals_at
from p3s.predict.checks import doubts_of, reasons_of
from p3s.predict.commands import Commands, of_traces
from p3s.predict.distribution import residual_ends, total
from p3s.predict.estimated import TYPICAL
from p3s.predict.estimates import AS_FOUND, Estimate, Estimation, choose, estimates, structure_of
from p3s.predict.estimators.messages import network_of
from p3s.predict.residual import Measured, below_traced, contradictions, measured, missed, residuals
from p3s.predict.rows import baseline, related, row_of, with_interval
from p3s.predict.scaling import knee, limits, recommended, with_efficiencies
from p3s.predict.times import END, REST, START, PhaseTimes
from p3s.predict.types import Count, Law, PhaseAt, PhaseLaw, Prediction, Reason, part_s

PARTS = ("time", "compute", "transfer", "waiting", "software")
#: Of phases that use files this too.
FILES = "io"
#: A law that misses a count by more than this is none.
WORST_MISS = 0.25
#: Phases with less than this share of the time at every count get no laws.
LEAST_SHARE = 0.005
#: Values below this share of the phase's time at their count do not decide on a law.
_SMALL = 1e-4


def phase_laws(rows: Sequence[Count]) -> tuple[PhaseLaw, ...]:
    """Return laws over n of every phase's time and parts (rows of prediction.json).

    Sums of non-negative terms in n and log2 n, found by p3s.laws.lawfinder as those of the work
    are. ``error``: largest relative miss at the counts. A part has no law ("" as text) where fewer
    counts are there than its terms need and one to check them, or where the best law misses one
    by more than a quarter.
    """
    found = []
    table = [{phase.phase: phase for phase in row.phases} for row in rows]
    for number, name in _names(rows).items():
        mine = [(row.n, phases.get(number)) for row, phases in zip(rows, table, strict=True)]
        large = any(
            phase is not None and phase.time_s >= LEAST_SHARE * row.model_s
            for row, (_, phase) in zip(rows, mine, strict=True)
        )
        found.append(
            PhaseLaw(number, name, {part: _law(part, mine, large) for part in _parts(mine)})
        )
    return tuple(found)


def _parts(mine: Sequence[tuple[int, PhaseAt | None]]) -> tuple[str, ...]:
    return (*PARTS, FILES) if any(phase and phase.io_s for _, phase in mine) else PARTS


def _names(rows: Sequence[Count]) -> dict[int, str]:
    return {phase.phase: phase.name for row in rows for phase in row.phases}


def _law(part: str, mine: Sequence[tuple[int, PhaseAt | None]], large: bool) -> Law:
    from p3s.laws.lawfinder import find_law

    points = [
        (n, seconds, phase.time_s)
        for n, phase in mine
        if phase is not None and (seconds := part_s(phase, part)) is not None
    ]
    counts = tuple(n for n, _, _ in points)
    none = Law(text="", latex="", error=None, counts=counts)
    if not large or len(points) < 3:
        return none
    if not any(value > _SMALL * whole for _, value, whole in points):
        return replace(none, text="0", latex="0", error=0.0)
    law = find_law(
        ((n, value) for n, value, _ in points),
        "work",
        resolution=[_SMALL * whole for _, _, whole in points],
    ).fit
    if len(law.terms) >= len(points):
        return none
    miss = max(
        (
            abs(float(law.value(n)) - value) / value
            for n, value, whole in points
            if value > _SMALL * whole
        ),
        default=0.0,
    )
    if not miss <= WORST_MISS:
        return none
    return Law(
        text=law.text(),
        latex=law.latex(),
        terms=tuple(map(tuple, law.to_json()["terms"])),
        error=miss,
        counts=counts,
    )


#: Share of the bytes that an operation moves from which another way of it counts.
_LARGE = 0.1
_STARTS = ("MPI_Start", "MPI_Startall")


def other_ways(study: Study, model: Model) -> tuple[OtherCall, ...]:
    """Return the calls that could take over from those that move the program's data.

    Nothing where the program is not on this machine, or was built again since.
    """
    stacks = _stacks(model)
    frames = {module for found in stacks.values() for stack in found for module, _ in stack}
    every = [frame for frames in model.sites.values() for frame in _frames(frames)]
    for path in map(Path, programs_of(traces_of(study))):
        if path.name in frames and _as_traced(path, study):
            own = {
                op: [[address for name, address in stack if name == path.name] for stack in found]
                for op, found in stacks.items()
            }
            try:
                return other_calls(path, own, [at for name, at in every if name == path.name])
            except (OSError, ValueError):
                return ()
    return ()


def _as_traced(path: Path, study: Study) -> bool:
    traced = traced_ns(traces_of(study))
    return path.is_file() and (traced is None or path.stat().st_mtime_ns <= traced)


def _stacks(model: Model) -> dict[str, list[list[tuple[str, int]]]]:
    """Return the call stacks of the operations that move the data: (module, return address).

    Persistent operations move them where they are started: nothing tells whether a call that only
    makes a request was come to.
    """
    moved: dict[str, float] = defaultdict(float)
    for item in model.items:
        moved[ops.place_of(item.op)] += item.share.bytes if item.share is not None else 0.0
    found: dict[str, list[list[tuple[str, int]]]] = defaultdict(list)
    for item in model.items:
        op = ops.place_of(item.op)
        for name in _STARTS if op in _STARTS else (op,):
            if moved[op] >= _LARGE:
                found[name].append(_frames(model.sites.get(item.site, ())))
    return found


def _frames(frames: Sequence[str]) -> list[tuple[str, int]]:
    parts = (frame.rpartition("+0x") for frame in frames)
    return [
        (module, int(address, 16))
        for module, _, address in parts
        if module and all(digit in "0123456789abcdef" for digit in address)
    ]


#: Nothing is known but times.
NO_MODEL = Facts()


@dataclass(frozen=True)
class Weak:
    """Weak scaling: the study of each count, values of its parameters there, and traced counts."""

    studies: Mapping[int, Study]
    settings: Mapping[int, Mapping[str, str]]
    traced: Sequence[int]


def predict(
    study: Study,
    counts: Sequence[int],
    how: Estimation = AS_FOUND,
    *,
    elsewhere: bool = False,
    commands: Commands | None = None,
    weak: Weak | None = None,
) -> Prediction:
    """Predict time, interval, speedup and efficiency at ``counts``.

    Needs the scaled trace of every count in ``counts``, and what the estimator needs: a replay, or
    the file of a machine. Traced counts among them are compared with what was measured, unless it
    was measured ``elsewhere`` than it is predicted for. ``commands``: those that are proposed, if
    not this study's. Speedup is relative to the smallest count. ``weak``: the input grows with the
    count, ``study`` is that of the largest.
    """
    model = read(study.model_path)
    wanted = sorted(set(counts))
    studies = dict.fromkeys(wanted, study) if weak is None else weak.studies
    # the model of a value that was not traced rests on the counts of other values
    own = {*study.counts(), *(model.counts if model.derived else ())} or model.counts
    traced = sorted(own if weak is None else weak.traced)
    found: dict[int, Mapping[str, Estimate]] = {}
    for at in dict.fromkeys(studies.values()):
        found |= estimates(at, [n for n in wanted if studies[n] is at], how)
    structure = structure_of(study)
    found = dict(structure.in_place(found, how.machine, how.setting))
    choice = choose(found, how.estimator)
    _refuse_no_time(studies, choice.times)
    runs = {
        n: structure.even(run)
        for n, at in studies.items()
        if not elsewhere
        and n in (traced if weak is None else at.counts())
        and (run := measured(at, n)) is not None
    }
    held, runs_beside = model.holdout and model.holdout.comparison, _validations(study)
    checked = {"holdout-missed": [held] if held else [], "validate-missed": runs_beside}
    probes = structure.minded([Reason(code, "") for code in checked], checked)
    timing = [code for code, probe in zip(checked, probes, strict=True) if probe.code != code]
    result = compose(
        choice.times,
        runs,
        traced,
        Facts(
            threshold=how.threshold,
            holdout=model.holdout,
            order=model.order,
            kinds=Kinds(model),
            others=found,
            why=choice.why,
            admits=_admits(model),
            settings={} if weak is None else weak.settings,
            validations=runs_beside,
            commands=commands or of_traces(study),
            totals={} if elsewhere or weak else _totals(study, _not_asked(traced, wanted)),
            network=network_of(study, choice.name, wanted, how.machine, how.setting),
            other=other_ways(study, model),
            calls={called(item.op) for item in model.items},
            allowed={*how.allowed, *timing},  # no rivals in the draws
            requested=how.requested,
            within=how.within,
        ),
    )
    unused = not_used(model.without, of_traces(study).take_back(model.without))
    result = structure.told(result, choice.name, checked)
    around = notes.start_and_end(studies if weak else dict.fromkeys(study.counts(), study))
    return replace(
        result,
        notes=(*result.notes, *filter(None, [unused])),
        not_modelled=(*notes.of_start_and_end(around, result.counts), *result.not_modelled),
        start_and_end=around,
    )


def _refuse_no_time(studies: Mapping[int, Study], times: Mapping[int, PhaseTimes]) -> None:
    """Raise P3SError where a scaled trace leads to a run time of 0: no program takes none."""
    for n, made in times.items():
        if not float((made.own + made.comm).sum()) > 0.0:
            raise P3SError(
                f"{studies[n].scaled_dir(n)}: leads to a run time of 0 s, which no program has: "
                "its rows neither compute nor communicate; make it again: "
                f"p3s scale {quoted(studies[n].root)} -n {n}"
            )


def _validations(study: Study) -> list[Comparison]:
    """Return the comparisons with runs that were made with the model as it is.

    Raises P3SError for one that is damaged: it may be what speaks against the model.
    """
    found, crc = [], crc_of(study.model_path)
    for path in sorted((study.root / "validate").glob("np*.json")):
        of_model, compared = read_comparison(path)
        if of_model == crc:
            found.append(compared)
    return found


def _admits(model: Model) -> Callable[[int], bool] | None:
    known = model.admissible
    return partial(admits, known) if known and known.failed else None


def compose(
    times: Mapping[int, PhaseTimes],
    runs: Mapping[int, Measured],
    traced: Sequence[int],
    facts: Facts = NO_MODEL,
) -> Prediction:
    """Put phase times and measured runs of all counts together.

    ``times``: by the chosen estimator. ``traced``: the counts that the model rests on.
    """
    if not times:
        raise P3SError("nothing to predict: no process count given")
    counts = sorted(times)
    runs = {
        n: replace(run, elsewhere=times[n].estimator == TYPICAL)
        for n, run in runs.items()
        if n in times
    }
    said = {n: facts.others.get(n, {}) for n in counts}
    model_s = {n: total(made.own + made.comm, made.estimator) for n, made in times.items()}
    odd = {} if facts.weak else contradictions(runs, model_s)
    runs = {n: replace(run, contradicts=n in odd) for n, run in runs.items()}
    wrong = {} if facts.weak else _below(times, traced, facts.totals)
    rows = [
        replace(row_of(times[n], runs.get(n), said[n]), below_traced=n in wrong) for n in counts
    ]
    residual = residuals(rows)
    case = Case(
        rows=rows,
        base=baseline(rows),
        times=times,
        runs=runs,
        traced=traced,
        residuals=residual,
        contradicting=odd,
        below=wrong,
        facts=facts,
    )
    found = doubts_of(case)
    rows = _without_empty_ends([_with_interval(row, case, found) for row in rows])
    rows = _related(rows, facts)
    rows = with_efficiencies(rows, times, runs, baseline(rows).n, weak=facts.weak)
    base = baseline(rows)
    case = replace(case, rows=rows, base=base)
    last = times[counts[-1]]
    ratio = counts[-1] / max(traced) if traced else math.inf
    share = doubts.verdict_share(last.head)
    return Prediction(
        counts=tuple(rows),
        baseline_n=base.n,
        baseline_measured=base.time_from == "measured",
        knee=knee(rows, facts.threshold),
        knee_efficiency=facts.threshold,
        recommended=recommended(rows, facts.threshold, facts.admits),
        network=facts.network,
        estimator=last.estimator,
        estimator_why=facts.why,
        residuals=residual,
        phase_laws=phase_laws(rows),
        limits=limits(rows[rows.index(base) :], facts.threshold, weak=facts.weak),
        unknown_share=max(doubts.unknown_share(times[n].head) for n in counts),
        verdict_share=share,
        traced_counts=tuple(traced),
        extrapolation_ratio=ratio if math.isfinite(ratio) else None,
        reasons=tuple(reasons_of(case, found)),
        not_modelled=tuple(notes.not_modelled(last, facts.calls)),
        notes=tuple(notes.notes(rows, times, case.untraced, share, ratio)),
        files=_files(last.head),
        files_from=str(last.head.get("files_from") or ""),
    )


def _files(head: Mapping[str, Any]) -> tuple[FileUseAt, ...]:
    """Return what call sites do to files, as scaled.json says it."""
    return tuple(from_data(FileUseAt, use) for use in head.get("files") or [])


def _below(
    times: Mapping[int, PhaseTimes], traced: Sequence[int], totals: Mapping[int, float]
) -> dict[int, tuple[float, float]]:
    """Return the counts below the traced ones whose computation does not go on from theirs."""
    made = {n: float(each.compute.sum()) for n, each in times.items()}
    return below_traced(made, {**totals, **{n: made[n] for n in traced if n in made}})


def _not_asked(traced: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return the traced counts that are not predicted, where a count below all of them is."""
    below_all = min(wanted, default=math.inf) < min(traced, default=0)
    return [n for n in traced if below_all and n not in wanted]


def _totals(study: Study, counts: Sequence[int]) -> dict[int, float]:
    """Return the computation of all ranks together at traced counts, in s, where it was timed."""
    runs = {n: measured(study, n) for n in counts}
    return {n: statistics.median(run.totals_s) for n, run in runs.items() if run and run.totals_s}


def _with_interval(row: Count, case: Case, found: Sequence[Doubt]) -> Count:
    """Return a row with its interval; none where the model's data runs out."""
    times = case.times[row.n]
    if times.head.get("emptied"):
        none = replace(row, model_low_s=None, model_high_s=None)
        return none if row.time_from == "measured" else replace(none, low_s=None, high_s=None)
    work = row.interval_parts.work or (1.0, 1.0)
    own = max(math.log(work[1]), -math.log(max(work[0], 1e-9)))
    off = case.computes(row.n) * case.work_missed
    beyond = max(math.log2(row.n / max(case.traced, default=row.n)), 0.0)
    runs, checked = missed(case.residuals, case.rows, row.n), math.sqrt(max(off**2 - own**2, 0.0))
    ends = residual_ends(case.talk(row.n), beyond, runs, checked)
    heeded = [each for each in found if each.code not in case.facts.allowed]
    return with_interval(row, times, ends, rivals_at(heeded, row.n))


def _related(rows: Sequence[Count], facts: Facts) -> list[Count]:
    """Return the rows with their speedups, relative to the baseline."""
    base = baseline(rows)
    if not facts.weak:
        return [related(row, base) for row in rows]
    return [
        replace(related(row, base, row.n / base.n), setting=facts.settings.get(row.n))
        for row in rows
    ]


def _without_empty_ends(rows: Sequence[Count]) -> list[Count]:
    """Leave out the start, the end or the rest where it takes no time at any count."""
    parts = [phase for row in rows for phase in row.phases]
    divided = any(phase.phase in (START, END) for phase in parts)
    taken = {phase.phase for phase in parts if phase.time_s > 0}
    gone = {START, END, REST} - taken if divided else set()
    return [
        replace(row, phases=tuple(p for p in row.phases if p.phase not in gone)) for row in rows
    ]
