"""What a study holds for a prediction, read, and the prediction from that."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from p3s.base import ops
from p3s.base.artefacts import crc_of
from p3s.base.errors import P3SError
from p3s.base.ops import called
from p3s.base.records import Traces
from p3s.base.settings import traces_of
from p3s.base.study import Study
from p3s.base.text import not_used, quoted
from p3s.capture.other_calls import OtherCall, other_calls
from p3s.capture.sites import programs_of, traced_ns
from p3s.model.comparison import Comparison, read_comparison
from p3s.model.grid.admissible import admits
from p3s.model.order.kinds import Kinds
from p3s.model.stage import read
from p3s.model.types import Model
from p3s.pipeline.commands import Commands, of_traces
from p3s.pipeline.records import structure_of
from p3s.predict import notes
from p3s.predict.case import Facts
from p3s.predict.estimates import AS_FOUND, Estimate, Estimation, choose, estimates
from p3s.predict.estimators.messages import network_of
from p3s.predict.prediction import compose
from p3s.predict.residual import measured
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Prediction, Reason


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
    traces = {at.root: traces_of(at) for at in dict.fromkeys((study, *studies.values()))}
    mine = traces[study.root]
    # the model of a value that was not traced rests on the counts of other values
    own = {*study.counts(), *(model.counts if model.derived else ())} or model.counts
    traced = sorted(own if weak is None else weak.traced)
    found: dict[int, Mapping[str, Estimate]] = {}
    for at in dict.fromkeys(studies.values()):
        found |= estimates(traces[at.root], [n for n in wanted if studies[n] is at], how)
    structure = structure_of(study)
    found = dict(structure.in_place(found, how.machine, how.setting))
    choice = choose(found, how.estimator)
    _refuse_no_time(studies, choice.times)
    runs = {
        n: structure.even(run)
        for n, at in studies.items()
        if not elsewhere
        and n in (traced if weak is None else at.counts())
        and (run := measured(traces[at.root], n)) is not None
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
            totals={} if elsewhere or weak else _totals(mine, _not_asked(traced, wanted)),
            network=network_of(mine, choice.name, wanted, how.machine, how.setting),
            other=other_ways(mine, model),
            calls={called(item.op) for item in model.items},
            allowed={*how.allowed, *timing},  # no rivals in the draws
            requested=how.requested,
            within=how.within,
        ),
    )
    unused = not_used(model.without, of_traces(study).take_back(model.without))
    result = structure.told(result, choice.name, checked)
    by_count = {n: traces[at.root] for n, at in studies.items()}
    around = notes.start_and_end(by_count if weak else dict.fromkeys(study.counts(), mine))
    return replace(
        result,
        notes=(*result.notes, *filter(None, [unused])),
        not_modelled=(*notes.of_start_and_end(around, result.counts), *result.not_modelled),
        start_and_end=around,
    )


def _refuse_no_time(studies: Mapping[int, Study], times: Mapping[int, PhaseTimes]) -> None:
    """Raise P3SError where a scaled trace leads to a run time of 0: no program takes none."""
    for n, made in times.items():
        if not float(made.whole.sum()) > 0.0:
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


def _not_asked(traced: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return the traced counts that are not predicted, where a count below all of them is."""
    below_all = min(wanted, default=math.inf) < min(traced, default=0)
    return [n for n in traced if below_all and n not in wanted]


def _totals(traces: Traces, counts: Sequence[int]) -> dict[int, float]:
    """Return the computation of all ranks together at traced counts, in s, where it was timed."""
    runs = {n: measured(traces, n) for n in counts}
    return {n: statistics.median(run.totals_s) for n, run in runs.items() if run and run.totals_s}


# ---- calls that could take over ------------------------------------------------------------------
#: Share of the bytes that an operation moves from which another way of it counts.
_LARGE = 0.1
_STARTS = ("MPI_Start", "MPI_Startall")


def other_ways(traces: Traces, model: Model) -> tuple[OtherCall, ...]:
    """Return the calls that could take over from those that move the program's data.

    Nothing where the program is not on this machine, or was built again since.
    """
    stacks = _stacks(model)
    frames = {module for found in stacks.values() for stack in found for module, _ in stack}
    every = [frame for frames in model.sites.values() for frame in _frames(frames)]
    for path in map(Path, programs_of(traces)):
        if path.name in frames and _as_traced(path, traces):
            own = {
                op: [[address for name, address in stack if name == path.name] for stack in found]
                for op, found in stacks.items()
            }
            try:
                return other_calls(path, own, [at for name, at in every if name == path.name])
            except (OSError, ValueError):
                return ()
    return ()


def _as_traced(path: Path, traces: Traces) -> bool:
    traced = traced_ns(traces)
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
