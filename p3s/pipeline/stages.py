"""Make what is missing or older than what it was made from, stage by stage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.artefacts import file_bytes, is_stale, parse_json
from p3s.base.errors import Damaged, OtherVersion, P3SError
from p3s.base.progress import Progress
from p3s.base.records import is_old_replay
from p3s.base.settings import traces_of
from p3s.base.study import SIGNATURE_SCHEMA, SIGNATURE_VERSION, Study, read_json
from p3s.base.text import joined, processes, size_text
from p3s.pipeline.records import known_of, model_of
from p3s.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from p3s.base.study import RunRecord
    from p3s.costs.types import ComputeModel
    from p3s.model.types import Model
    from p3s.signature.phase_file import Phases

#: Fewer counts leave none for a hold-out.
MIN_COUNTS = 3


def ensure_signatures(study: Study, bar: Progress) -> list[int]:
    """Characterize every count whose signature is missing or older than its runs."""
    for np in study.counts():
        runs = study.runs(np)
        path = study.signature_path(np)
        if is_stale(path, [run.path / "run.json" for run in runs]) or _is_old(path, runs):
            from p3s.signature.signature import characterize

            bar.start(f"np={np}: characterizing")
            characterize(traces_of(study), np)
            bar.done(f"np={np}: characterized")
        else:
            _ensure_times(study, np, bar)
    return study.signature_counts()


def ensure_phases(study: Study, bar: Progress) -> Phases:
    """Return the phases, made when they are missing or older than what they are made from."""
    from p3s.signature.phase_file import load
    from p3s.signature.store import load_phases

    ensure_signatures(study, bar)
    if study.signature_counts():
        load_phases(traces_of(study))
    elif not study.phases_path.exists():
        from p3s.pipeline.commands import Commands, counts_to_add

        again = Commands(study).trace(study.complete_counts() or counts_to_add(study, 3))
        raise P3SError(f"{study.root}: no phases yet; to trace it, run {again}")
    return load(study.phases_path)


def _ensure_times(study: Study, np: int, bar: Progress) -> None:
    """Make the times of a count again that are missing or older than what they are made from."""
    from contextlib import suppress

    from p3s.signature.times import make_times, stale

    if stale(traces_of(study), np):
        bar.start(f"np={np}: reading times")
        with suppress(P3SError):  # a damaged signature: reading it says so
            make_times(traces_of(study), np)


def compute_inputs(study: Study) -> list[Path]:
    """Return the files that the laws of computation time are made from."""
    inputs = [study.model_path, *(study.times_path(np) for np in study.signature_counts())]
    for other in study.others():
        inputs += [
            other.manifest_path,
            *(other.signature_path(np) for np in other.counts()),
            *(other.times_path(np) for np in other.counts()),
        ]
    return inputs


def ensure_compute(study: Study, bar: Progress, *, again: bool = False) -> None:
    """Fit the cost of computation when there are times and its laws are missing or out of date.

    A study without times of its own keeps the laws that it was given.
    """
    if not any(study.times_path(np).exists() for np in study.signature_counts()):
        return
    for other in study.others():
        ensure_signatures(other, bar)
    if again or is_stale(study.compute_path, compute_inputs(study)):
        from p3s.costs.table import unknown_costs
        from p3s.pipeline.costing import build_compute, reference_of, write_far
        from p3s.signature.times import load_times, make_times

        bar.start("fitting the cost of computation")
        try:
            made = build_compute(study.root)
        except Damaged:
            counts, what = study.signature_counts(), "times were"
            if not _repaired(
                study, counts, what, load_times, partial(make_times, traces_of(study)), bar
            ):
                raise
            made = build_compute(study.root)
        if made is not None:
            bar.done(
                f"cost of computation fitted from {', '.join(map(str, made.counts))} "
                f"processes{_of_others(made)}"
            )
            if study.others():
                write_far(study, reference_of(study, model_of(study)))
            for unused in made.refused:
                bar.say(f"note: {unused.name} is not used: {unused.why}")
            for line in unknown_costs(made):
                bar.say(f"note: {line}")


def check_times(study: Study) -> None:
    """Raise P3SError, before anything is replayed, where nothing says how long the work takes."""
    from p3s.model.stage import read
    from p3s.pipeline.commands import Commands

    model = read(study.model_path)
    if model.work_unit in ("cpu_ns", "wall_ns") or study.compute_path.exists():
        return
    native = Commands(study).trace(list(model.counts), work="cpu")
    raise P3SError(
        f"{study.root}: work is in {model.work_unit}, and nothing says how long "
        f"it takes; add native runs: {native}"
    )


def _of_others(made: ComputeModel) -> str:
    """Return which other workloads the laws rest on besides the study's own runs."""
    names = sorted({t.source for p in made.phases for t in p.turns if t.source != "own"})
    return f" and from {', '.join(names)}" if names else ""


def _is_old(path: Path, runs: Sequence[RunRecord]) -> bool:
    """Tell whether a signature was written by an older P3S, or from other runs than there are now.

    ``runs``: those of its count; of the complete ones it can be made again.
    """
    from p3s.capture.reader import mark_of

    complete = [run.path for run in runs if run.status == "complete"]

    try:
        head = parse_json(file_bytes(path))
        version = head["schema_version"]
        if head["schema"] == SIGNATURE_SCHEMA and version < SIGNATURE_VERSION:
            return True
        if head["repeats"] + len(head["left_out"]) != len(complete):
            return True
        then = head.get("captures", {})
        return any(then.get(each.name, now) != now for each in complete if (now := mark_of(each)))
    except (OSError, ValueError, KeyError, TypeError):
        return False  # damaged: reading it says so


def ensure_model(study: Study, bar: Progress, *, holdout: bool = True, again: bool = False) -> None:
    """Fit the model when it is missing or older than a signature, or when told to."""
    from p3s.pipeline.family import refresh

    if refresh(study, again):  # a model derived from those of other values of a parameter
        return
    counts = ensure_signatures(study, bar)
    rested = _rests_on(study.model_path, counts)
    if (
        again
        or rested != counts
        or is_stale(study.model_path, [study.signature_path(np) for np in counts])
        or _knows_more(study)
    ):
        gone = sorted(set(rested) & set(study.gone_counts()))
        if len(counts) < MIN_COUNTS:
            raise P3SError(too_few(study, counts))
        if gone:
            bar.say(
                f"note: {study.root}: the runs at {processes(gone)} were deleted; the model "
                "no longer rests on them"
            )
        from p3s.signature.signature import characterize
        from p3s.signature.store import load_phases, load_table

        bar.start("fitting the model")
        try:
            fit_model(study, holdout)
        except P3SError:
            made_again = partial(characterize, traces_of(study))
            if not _repaired(study, counts, "signature was", load_table, made_again, bar):
                raise
            fit_model(study, holdout)
        load_phases(traces_of(study))  # of the same counts
        without = study.left_out()
        less = f", without {joined(without)}" if without else ""
        bar.done(f"model fitted from {processes(counts)}{less}")


def fit_model(study: Study, holdout: bool = True) -> Model:
    """Fit the model of a study from all its signatures and write model.json; return it."""
    from p3s.model import stage
    from p3s.signature.store import load_table

    counts = study.signature_counts()
    captures = {run.np: run.path for run in reversed(study.runs()) if run.status == "complete"}
    tables = [load_table(study.root, n) for n in counts]
    model = stage.build(tables, known_of(study), captures, study.manifest_path, holdout)
    stage.write(study.model_path, model, [study.signature_path(n) for n in counts])
    return model


def _rests_on(path: Path, counts: list[int]) -> list[int]:
    """Return the counts that a model was fitted from; ``counts`` where there is none to read.

    A model of another version of P3S counts as one of none.
    """
    try:
        return [int(n) for n in read_json(path, "p3s.model")["counts"]]
    except OtherVersion:
        return []
    except (P3SError, OSError, ValueError, KeyError, TypeError):
        return counts  # missing, so it is made; damaged, so reading it says so


def too_few(study: Study, counts: Sequence[int]) -> str:
    """Return that a study has too few counts for a model, where the others are, and what to do."""
    from p3s.pipeline.commands import Commands, counts_to_add

    commands, gone, without = Commands(study), study.gone_counts(), study.left_out()
    text = (
        f"{study.root}: the model needs {MIN_COUNTS} process counts, {len(counts)} "
        f"{'is' if len(counts) == 1 else 'are'} there ({joined(counts) or 'none'})"
    )
    if without:
        them = "it" if len(without) == 1 else "them"
        text += f"; {joined(without)} left out: {commands.take_back(without)} takes {them} back"
    if gone:
        return (
            f"{text}; the runs at {processes(gone)} were deleted: to trace them again, run "
            f"{commands.trace(gone)}"
        )
    more = counts_to_add(study, MIN_COUNTS)
    return text if without or not more else f"{text}; to add some, run {commands.trace(more)}"


def _knows_more(study: Study) -> bool:
    """Tell whether something else is known of the grid than when the model was fitted."""
    from p3s.model.stage import grid_changed, read

    try:
        return grid_changed(read(study.model_path), known_of(study))
    except (P3SError, KeyError):
        return False  # damaged: reading it says so


def _repaired(
    study: Study,
    counts: Sequence[int],
    what: str,
    read: Callable[[Path, int], object],
    make: Callable[[int], object],
    bar: Progress,
) -> bool:
    """Make what is damaged at some counts again where their runs are there; tell whether any was.

    read: raises P3SError where it is damaged.
    """
    repaired = False
    for np in counts:
        try:
            read(study.root, np)
        except P3SError:
            if np in study.counts():
                bar.start(f"np={np}: reading its runs again")
                make(np)
                bar.done(f"np={np}: {what} damaged, made again from its runs")
                repaired = True
    return repaired


def scaled_is_missing(study: Study, n: int) -> bool:
    """Tell whether there is no scaled trace at ``n``, or one that is older than its laws."""
    from p3s.costs.files.places import inputs_of_study

    inputs = [study.model_path, study.compute_path, *inputs_of_study(study.root)]
    return is_stale(study.scaled_path(n), inputs)


def write_scaled(study: Study, n: int, ranks: Sequence[int] | None) -> tuple[dict[str, Any], Path]:
    """Write the scaled trace of some ranks (None: all) at ``n``; return scaled.json, its folder."""
    from p3s.program import generate, types

    head = generate.write_scaled(study.root, n, ranks)
    return types.SCALED.data(head), generate.some_dir(study.scaled_dir(n), ranks)


def ensure_scaled(study: Study, n: int, bar: Progress, *, spread: bool = False) -> None:
    """Write the scaled trace at ``n`` when it is missing or older than its laws.

    spread: where all ranks are too many, some that stand for them will do.
    """
    from p3s.program.generate import write_scaled
    from p3s.program.types import MOST_RANKS

    if scaled_is_missing(study, n) or (n > MOST_RANKS and not spread):
        bar.start(f"n={n}: scaling")
        write_scaled(study.root, n, spread=spread)
        bar.done(f"n={n}: scaled trace written")


def run_replay(study: Study, n: int, settings: ReplaySettings, bar: Progress) -> dict[str, Any]:
    """Measure the communication of the scaled trace at ``n``."""
    from p3s import replay

    bar.start(f"n={n}: measuring communication")
    result = replay.run(
        study.scaled_dir(n),
        study.replay_path(n),
        settings,
        machine=study.root / "machine.json",
        progress=lambda text: bar.start(f"n={n}: {text}"),
    )
    bar.done(f"n={n}: communication measured")
    return result


def replay_is_missing(study: Study, n: int) -> bool:
    """Tell whether there is no replay at ``n``, or one that is not of the scaled trace."""
    path = study.replay_path(n)
    return n > 1 and (is_stale(path, [study.scaled_path(n)]) or is_old_replay(path))


def representative(study: Study, n: int) -> bool:
    """Tell whether there is a replay at a count that tells how fast the program is."""
    return not replay_is_missing(study, n) and bool(study.replay(n).get("representative"))


def stale_replays(study: Study, counts: Sequence[int]) -> list[int]:
    """Return the counts with a replay that is older than the scaled trace."""
    return [n for n in counts if study.replay_path(n).exists() and replay_is_missing(study, n)]


def ensure_replays(
    study: Study, counts: Sequence[int], settings: ReplaySettings, bar: Progress
) -> None:
    """Measure the communication where it is missing or out of date."""
    for n in counts:
        if replay_is_missing(study, n):
            run_replay(study, n, settings, bar)


def machine_file(study: Study) -> Path | None:
    """Return the machine file that belongs to a study, None where there is none."""
    from p3s.pipeline.other_machine import base_path

    try:
        return base_path(study, None)
    except P3SError:
        return None


def earlier_counts(study: Study, bar: Progress) -> list[int]:
    """Return the counts beside the traced ones that the study's prediction has already."""
    from p3s.pipeline.saved import read_prediction

    if not study.prediction_path.exists():
        return []
    try:
        found = read_prediction(study.prediction_path)
    except P3SError as err:
        bar.say(f"note: {err}; its counts are not predicted again")
        return []
    return [row.n for row in found.counts if row.n not in found.traced_counts]


def doubted(study: Study, counts: Sequence[int]) -> dict[int, str]:
    """Return why the program may not run at some counts, where what it was traced at tells."""
    from p3s.model.grid.admissible import doubt
    from p3s.model.stage import as_of_now, read

    model = as_of_now(read(study.model_path), known_of(study))
    return {n: why for n in counts if (why := doubt(model.admissible, n))}


#: Bytes of a row of a scaled trace; packed they are fewer.
ROW_BYTES = 32
#: Ranks whose rows are counted to tell how many all have.
_SAMPLE = 64


def check_room(root: Path, needed: int, what: str = "a study") -> None:
    """Raise P3SError where a directory cannot be written or has no room."""
    place = next(path for path in (root.absolute(), *root.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise P3SError(f"{root}: {place} cannot be written; name another study directory")
    free = shutil.disk_usage(place).free
    if free < needed:
        raise P3SError(
            f"{root}: {size_text(free)} are free, {what} needs {size_text(needed)}; make room, "
            "or name a directory on another disk"
        )


def check_scaled_room(study: Study, counts: Sequence[int]) -> None:
    """Raise P3SError where the scaled traces of ``counts`` do not fit on the disk."""
    needed = sum(scaled_bytes(study, n) for n in counts)
    named = ", ".join(map(str, counts))
    check_room(study.root, max(needed, 1), f"the scaled trace of {named} processes")


def scaled_bytes(study: Study, n: int) -> int:
    """Return how large the scaled trace of ``n`` processes becomes at most, from some ranks."""
    import numpy as np

    from p3s.model.evaluate import SPREAD, SPREAD_RUN, Evaluator
    from p3s.program.types import MOST_RANKS

    some = np.unique(np.linspace(0, n - 1, min(n, _SAMPLE)).astype(np.int64))
    rows = len(Evaluator(model_of(study), n).rows(some).rank)
    written = n if n <= MOST_RANKS else SPREAD * SPREAD_RUN
    return int(rows / len(some) * written * ROW_BYTES)
