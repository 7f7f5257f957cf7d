"""A prediction from what was traced, its scaled traces, and the model."""

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
from p3s.base.ops import resolve_function
from p3s.base.records import Traces, scaled_dir
from p3s.base.text import not_used, quote_word
from p3s.capture.other_calls import OtherCall, other_calls
from p3s.capture.sites import programs_of, traced_ns
from p3s.model.comparison import Comparison, read_comparison
from p3s.model.grid.admissible import admits
from p3s.model.order.kinds import Kinds
from p3s.model.stage import NAME as MODEL
from p3s.model.stage import read
from p3s.model.types import Model
from p3s.pipeline.commands import Commands
from p3s.predict import notes
from p3s.predict.case import Facts
from p3s.predict.estimates import Estimate, Estimation, Structure, choose, estimates
from p3s.predict.estimators.messages import network_of
from p3s.predict.prediction import compose
from p3s.predict.residual import read_measurement
from p3s.predict.times import PhaseTimes
from p3s.predict.types import Prediction, Reason


@dataclass(frozen=True)
class Weak:
    """Weak scaling: the runs behind each count, values of its parameters, and traced counts."""

    behind: Mapping[int, Traces]
    settings: Mapping[int, Mapping[str, str]]
    traced: Sequence[int]


def predict(
    mine: Traces,
    counts: Sequence[int],
    how: Estimation,
    commands: Commands,
    structure: Structure,
    *,
    elsewhere: bool = False,
    weak: Weak | None = None,
) -> Prediction:
    """Predict time, interval, speedup and efficiency at ``counts``.

    Needs the scaled trace of every count in ``counts``, and what the estimator needs: a replay, or
    the file of a machine. Traced counts among them are compared with what was measured, unless it
    was measured ``elsewhere`` than it is predicted for. ``commands``: those that are proposed.
    ``structure``: what is known of the program beside its model. Speedup is relative to the
    smallest count. ``weak``: the input grows with the count, ``mine`` is that of the largest.
    """
    model = read(mine.root / MODEL)
    wanted = sorted(set(counts))
    behind = dict.fromkeys(wanted, mine) if weak is None else weak.behind
    # the model of a value that was not traced rests on the counts of other values
    own = {*mine.ran, *(model.counts if model.derived else ())} or model.counts
    traced = sorted(own if weak is None else weak.traced)
    found: dict[int, Mapping[str, Estimate]] = {}
    for root, traces in {each.root: each for each in behind.values()}.items():
        found |= estimates(traces, [n for n in wanted if behind[n].root == root], how)
    found = dict(structure.in_place(found, how.machine, how.setting))
    choice = choose(found, how.estimator)
    _refuse_no_time(behind, choice.times)
    runs = {
        n: structure.even(run)
        for n, at in behind.items()
        if not elsewhere
        and n in (traced if weak is None else at.ran)
        and (run := read_measurement(at, n)) is not None
    }
    held, runs_beside = model.holdout and model.holdout.comparison, _validations(mine.root)
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
            commands=commands,
            totals={} if elsewhere or weak else _totals(mine, _not_asked(traced, wanted)),
            network=network_of(mine, choice.name, wanted, how.machine, how.setting),
            other=other_ways(mine, model),
            calls={resolve_function(item.op) for item in model.items},
            allowed={*how.allowed, *timing},  # no rivals in the draws
            requested=how.requested,
            within=how.within,
        ),
    )
    unused = not_used(model.without, commands.take_back(model.without))
    result = structure.told(result, choice.name, checked)
    around = notes.start_and_end(behind if weak else dict.fromkeys(mine.ran, mine))
    return replace(
        result,
        notes=(*result.notes, *filter(None, [unused])),
        not_modelled=(*notes.of_start_and_end(around, result.counts), *result.not_modelled),
        start_and_end=around,
    )


def _refuse_no_time(behind: Mapping[int, Traces], times: Mapping[int, PhaseTimes]) -> None:
    """Raise P3SError where a scaled trace leads to a run time of 0: no program takes none."""
    for n, made in times.items():
        if not float(made.whole.sum()) > 0.0:
            root = behind[n].root
            raise P3SError(
                f"{scaled_dir(root, n)}: leads to a run time of 0 s, which no program has: "
                "its rows neither compute nor communicate; make it again: "
                f"p3s scale {quote_word(root)} -n {n}"
            )


def _validations(root: Path) -> list[Comparison]:
    """Return the comparisons with runs that were made with the model as it is.

    Raises P3SError for one that is damaged: it may be what speaks against the model.
    """
    found, crc = [], crc_of(root / MODEL)
    for path in sorted((root / "validate").glob("np*.json")):
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
    runs = {n: read_measurement(traces, n) for n in counts}
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
