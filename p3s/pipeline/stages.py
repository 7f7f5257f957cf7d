"""Make what is missing or older than what it was made from, stage by stage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from p3s.base.artefacts import file_bytes, is_stale, parse_json
from p3s.base.errors import DamagedFile, OtherVersion, P3SError
from p3s.base.progress import Progress
from p3s.base.records import is_old_replay
from p3s.base.settings import (
    MIN_COUNTS,
    MIN_SETTINGS,
    Setting,
    alike_in_threads,
    fill_parameters,
    parameters,
    parent_of,
    parse_setting,
    setting_name,
    settings_in,
    traces_of,
    value_study,
    value_text,
)
from p3s.base.study import SIGNATURE_SCHEMA, SIGNATURE_VERSION, Study, read_json, write_json
from p3s.base.text import join_words, processes, quote_word, size_text
from p3s.machine.machinefile import NAME
from p3s.pipeline.commands import Commands, another_value, counts_to_add
from p3s.pipeline.records import known_of, model_of, read_or_none
from p3s.replay.settings import ReplaySettings

if TYPE_CHECKING:
    from p3s.costs.parameters.laws import Family
    from p3s.costs.types import ComputeModel
    from p3s.model.types import Model
    from p3s.signature.phase_file import Phases


T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """A file of a study: where it is, what it is made from, and of what age.

    The functions take a study and a process count, 0 for what is of all counts. old: whether it is
    out of date though it is newer than its inputs.
    """

    file: Callable[[Study, int], Path]
    inputs: Callable[[Study, int], Iterable[Path]]
    old: Callable[[Study, int], bool] = lambda study, n: False


def is_missing(study: Study, stage: str, n: int = 0) -> bool:
    """Tell whether a file of a study is not there, or out of date."""
    found = STAGES[stage]
    return is_stale(found.file(study, n), found.inputs(study, n)) or found.old(study, n)


def ensure_signatures(study: Study, bar: Progress) -> list[int]:
    """Characterize every count whose signature is missing or older than its runs.

    Counts traced in full come first: they tell how programs go on that were ended.
    """
    ended = {run.np for run in traces_of(study).runs if run.ended}
    for np in sorted(study.counts(), key=lambda np: (np in ended, np)):
        if is_missing(study, "signature", np):
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
        again = Commands(study).trace(study.complete_counts() or counts_to_add(study, 3))
        raise P3SError(f"{study.root}: no phases yet; to trace it, run {again}")
    return load(study.phases_path)


def _ensure_times(study: Study, np: int, bar: Progress) -> None:
    """Make the times of a count again that are missing or older than what they are made from."""
    from p3s.signature.times import make_times, stale

    if stale(traces_of(study), np):
        bar.start(f"np={np}: reading times")
        with suppress(P3SError):  # a damaged signature: reading it says so
            make_times(traces_of(study), np)


def _of_compute(study: Study, _: int) -> list[Path]:
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
    if again or is_missing(study, "compute"):
        from p3s.pipeline.costing import build_compute
        from p3s.signature.times import load_times, make_times

        bar.start("fitting the cost of computation")
        fit, again_at = partial(build_compute, study.root), partial(make_times, traces_of(study))
        made = _make_or_mend(study, fit, DamagedFile, "times were", load_times, again_at, bar)
        if made is not None:
            bar.done(
                f"cost of computation fitted from {', '.join(map(str, made.counts))} "
                f"processes{_of_others(made)}"
            )
            for unused in made.refused:
                bar.say(f"note: {unused.name} is not used: {unused.why}")
            for line in made.unknown_costs():
                bar.say(f"note: {line}")


def check_times(study: Study) -> None:
    """Raise P3SError, before anything is replayed, where nothing says how long the work takes."""
    from p3s.model.stage import read

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


def _is_old(study: Study, np: int) -> bool:
    """Tell whether a signature was written by an older P3S, or from other runs than there are now.

    Of the complete ones it can be made again.
    """
    from p3s.capture.reader import mark_of

    complete = [run.path for run in study.runs(np) if run.status == "complete"]
    try:
        head = parse_json(file_bytes(study.signature_path(np)))
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
    if refresh(study, again):  # a model derived from those of other values of a parameter
        return
    counts = ensure_signatures(study, bar)
    if again or is_missing(study, "model"):
        gone = sorted(set(_rests_on(study.model_path, counts)) & set(study.gone_counts()))
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
        fit, again_at = partial(fit_model, study, holdout), partial(characterize, traces_of(study))
        _make_or_mend(study, fit, P3SError, "signature was", load_table, again_at, bar)
        load_phases(traces_of(study))  # of the same counts
        without = study.left_out()
        less = f", without {join_words(without)}" if without else ""
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
    commands, gone, without = Commands(study), study.gone_counts(), study.left_out()
    text = (
        f"{study.root}: the model needs {MIN_COUNTS} process counts, {len(counts)} "
        f"{'is' if len(counts) == 1 else 'are'} there ({join_words(counts) or 'none'})"
    )
    if without:
        them = "it" if len(without) == 1 else "them"
        text += f"; {join_words(without)} left out: {commands.take_back(without)} takes {them} back"
    if gone:
        return (
            f"{text}; the runs at {processes(gone)} were deleted: to trace them again, run "
            f"{commands.trace(gone)}"
        )
    more = counts_to_add(study, MIN_COUNTS)
    return text if without or not more else f"{text}; to add some, run {commands.trace(more)}"


def _knows_more(study: Study, _: int) -> bool:
    """Tell whether the model rests on other counts, or something else was known of the grid."""
    from p3s.model.stage import grid_changed, read

    counts = study.signature_counts()
    if _rests_on(study.model_path, counts) != counts:
        return True
    try:
        return grid_changed(read(study.model_path), known_of(study))
    except (P3SError, KeyError):
        return False  # damaged: reading it says so


def _make_or_mend(
    study: Study,
    make: Callable[[], T],
    error: type[P3SError],
    what: str,
    read: Callable[[Path, int], object],
    again: Callable[[int], object],
    bar: Progress,
) -> T:
    """Return what is made of all signatures or times; where that fails, those that are damaged are
    made again from their runs first.

    read: raises P3SError where one is damaged; again: makes it.
    """
    try:
        return make()
    except error as problem:
        failed = problem
    repaired = False
    for np in study.signature_counts():
        try:
            read(study.root, np)
        except P3SError:
            if np in study.counts():
                bar.start(f"np={np}: reading its runs again")
                again(np)
                bar.done(f"np={np}: {what} damaged, made again from its runs")
                repaired = True
    if not repaired:
        raise failed
    return make()


def _of_scaled(study: Study, _: int) -> list[Path]:
    """Return the files that scaled traces are made from."""
    from p3s.costs.files import inputs_of_study

    return [study.model_path, study.compute_path, *inputs_of_study(study.root)]


def trace_of(study: Study, n: int, ranks: Sequence[int] | None) -> tuple[dict[str, Any], Path]:
    """Write the logical trace of a count, of all ranks or some; return its head and where it is."""
    from p3s.program.generate import some_dir, write_scaled
    from p3s.program.types import SCALED

    head: dict[str, Any] = SCALED.data(write_scaled(study.root, n, ranks))
    return head, some_dir(study.scaled_dir(n), ranks)


def ensure_scaled(study: Study, n: int, bar: Progress, *, spread: bool = False) -> None:
    """Write the scaled trace at ``n`` when it is missing or older than its laws.

    spread: where all ranks are too many, some that stand for them will do.
    """
    from p3s.program.types import MOST_RANKS

    if is_missing(study, "scaled", n) or (n > MOST_RANKS and not spread):
        from p3s.program.generate import write_scaled

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
    return n > 1 and is_missing(study, "replay", n)


def representative(study: Study, n: int) -> bool:
    """Tell whether there is a replay at a count that tells how fast the program is."""
    return not replay_is_missing(study, n) and bool(study.replay(n).get("representative"))


def ensure_replay(study: Study, n: int, settings: ReplaySettings, bar: Progress) -> None:
    """Measure the communication at ``n`` where it is missing or out of date."""
    if replay_is_missing(study, n):
        run_replay(study, n, settings, bar)


def base_path(study: Study, given: Path | None) -> Path:
    """Return the machine file of the study's runs: ``given``, or that in the study.

    A study inside another one (at/, far/) was run where that one was. Raises P3SError, one line,
    when there is none.
    """
    if given is not None:
        return given
    places = [study.root / NAME]
    if study.root.absolute().parent.name in ("at", "far"):
        places.append(study.root.absolute().parent.parent / NAME)
    for path in places:
        if path.exists():
            return path
    raise P3SError(
        f"{study.root / NAME}: not there, so nothing says what the runs' own machine costs; on "
        f"that machine run p3s machine measure -o {quote_word(study.root / NAME)}, or name its "
        "file with --base"
    )


def machine_file(study: Study) -> Path | None:
    """Return the machine file that belongs to a study, None where there is none."""
    return read_or_none(lambda: base_path(study, None))


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


def doubt_counts(study: Study, counts: Sequence[int]) -> dict[int, str]:
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


# ---- parameters: laws of their values in family.json, studies derived from them ------------------
def family_path(root: Path) -> Path:
    """Return where the laws of the parameters are: family.json."""
    return Path(root) / "family.json"


def build_family(root: Path, say: Callable[[str], None] = lambda text: None) -> Family:
    """Fit the laws of a study's parameters to the models of its settings; write family.json.

    Every setting with at least three counts must have its model.json. Raises P3SError where
    fewer than two settings have one.
    """
    from p3s.costs.parameters.alike import Member, Traced
    from p3s.costs.parameters.fit import fit_family
    from p3s.costs.parameters.laws import FAMILY
    from p3s.signature.store import load_table

    study = Study.open(Path(root))
    settings = alike_in_threads(study)
    able = [setting_name(s) for s, at in settings if len(at.signature_counts()) >= MIN_COUNTS]
    if len(able) < MIN_SETTINGS:
        raise P3SError(
            f"{study.root}: laws of {', '.join(parameters(study))} need at least {MIN_SETTINGS} "
            f"values with {MIN_COUNTS} process counts each, there is {', '.join(able) or 'none'}; "
            f"add one: {another_value(study)}"
        )
    traced: list[Traced] = []
    for setting, at in settings:
        tables = [load_table(at.root, n) for n in at.signature_counts()]
        few = setting_name(setting) not in able
        traced.append(Traced(setting, tables) if few else Member(setting, tables, model_of(at)))
    units = {one.model.work_unit for one in traced if isinstance(one, Member)}
    if len(units) > 1:
        raise P3SError(
            f"{study.root}: work is in {' and in '.join(sorted(units))} at different "
            "values of the parameters; trace all of them with one --work"
        )
    say(f"laws from {', '.join(able)}")
    family = fit_family(parameters(study), traced)
    write_json(family_path(study.root), FAMILY.data(family))
    return family


def _of_family(root: Study, _: int) -> Iterator[Path]:
    """Yield the models that laws of parameters are made from, signatures where there are none."""
    for _setting, at in alike_in_threads(root):
        counts = at.signature_counts()
        modelled = len(counts) >= MIN_COUNTS
        yield from [at.model_path] if modelled else map(at.signature_path, counts)


def load_family(root: Path) -> Family:
    """Return family.json, checked; P3SError where there is none, or it is damaged."""
    from p3s.costs.parameters.laws import FAMILY

    path = family_path(root)
    if not path.exists():
        raise P3SError(f"{path}: not there; run p3s model {quote_word(root)}")
    return FAMILY.read(path)


def instantiate(root: Path, setting: Setting) -> Path:
    """Return the study at a setting: the traced one, or one derived from the laws (written anew).

    The study's family.json must be there and the setting must name all its parameters.
    """
    from p3s.costs.parameters.fit import choose, derive_model
    from p3s.model.stage import write
    from p3s.pipeline.costing import build_compute, times_of

    study = Study.open(Path(root))
    at = value_study(study, setting)
    if len(at.signature_counts()) >= MIN_COUNTS and at.model_path.exists():
        return at.root
    family = load_family(study.root)
    try:
        part = choose(family, setting)
    except P3SError as err:
        raise P3SError(f"{study.root}: {err}") from err
    traced = {name: value_study(study, parse_setting(name)) for name in part.settings}
    models = {name: model_of(at) for name, at in traced.items()}
    times = {name: times_of(at.root, at.signature_counts()) for name, at in traced.items()}
    model, points = derive_model(family, part, models, times, setting)
    made = Study.create(at.root, fill_parameters(study.command(), setting))
    made.update(
        derived=True,
        parent="../..",
        setting={name: value_text(value) for name, value in setting.items()},
    )
    write(made.model_path, model)
    build_compute(made.root, points)
    return made.root


def of_one_value(study: Study) -> None:
    """Raise P3SError for a study with parameters itself: its models are those of its values."""
    names = parameters(study)
    if names:
        raise P3SError(
            f"{study.root}: holds a study for every value of {', '.join(names)}; name a value "
            f"with --param {names[0]}=VALUE, or one of its studies: "
            + ", ".join(str(at.root) for _, at in settings_in(study)[:3])
        )


def refresh(study: Study, again: bool = False) -> bool:
    """Make the model of a derived study again where it is older than its family.

    Returns False for a study that has, or can have, a model of its own. Errors: P3SError, as of
    :func:`of_one_value`.
    """
    of_one_value(study)
    if study.manifest().get("teams") and not study.counts():
        return True  # p3s.threads makes it again
    found = parent_of(study)
    if found is None or not study.manifest().get("derived") or len(study.counts()) >= MIN_COUNTS:
        return False
    root, setting = found
    if again or is_stale(study.model_path, [family_path(root.root)]):
        instantiate(root.root, setting)
    return True


#: All files of a study that are made of others.
STAGES = {
    "signature": Stage(
        Study.signature_path,
        lambda study, n: [run.path / "run.json" for run in study.runs(n)],
        _is_old,
    ),
    "model": Stage(
        lambda study, _: study.model_path,
        lambda study, _: map(study.signature_path, study.signature_counts()),
        _knows_more,
    ),
    "compute": Stage(lambda study, _: study.compute_path, _of_compute),
    "scaled": Stage(Study.scaled_path, _of_scaled),
    "replay": Stage(
        Study.replay_path,
        lambda study, n: [study.scaled_path(n)],
        lambda study, n: is_old_replay(study.replay_path(n)),
    ),
    "family": Stage(lambda study, _: family_path(study.root), _of_family),
}
