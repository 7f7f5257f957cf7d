"""Everything that a prediction needs, made where it is missing, and the prediction."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import as_json, reason, write_bytes
from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.records import Traces
from p3s.base.serialise import to_data
from p3s.base.settings import (
    counts_behind,
    one_setting,
    parameters,
    parse_params,
    setting_name,
    settings_in,
    threads_in,
    traces_of,
    value_text,
)
from p3s.base.staging import alone
from p3s.base.study import Study, write_json
from p3s.base.text import ends, processes, quote_word
from p3s.costs.types import COMPUTE, Moved
from p3s.costs.types import load as load_compute
from p3s.costs.types import read as read_compute
from p3s.machine.filesystem import NAME as FILES
from p3s.machine.filesystem import FileSystem
from p3s.machine.machinefile import MACHINE, NAME, Machine
from p3s.machine.topology.inside import Node
from p3s.pipeline.commands import Commands, of_traces
from p3s.pipeline.parameters import (
    NamedProgress,
    PredictionRange,
    ensure_family,
    fill_node_slots,
    inputs_of,
    over_threads,
    with_threads,
)
from p3s.pipeline.prediction import Inputs, Request, basis_of, predict, told_of
from p3s.pipeline.records import load_study, read_or_none, structure_of
from p3s.pipeline.stages import (
    base_path,
    check_scaled_room,
    check_times,
    doubt_counts,
    earlier_counts,
    ensure_compute,
    ensure_model,
    ensure_replay,
    ensure_scaled,
    instantiate,
    is_missing,
    machine_file,
    replay_is_missing,
    representative,
)
from p3s.predict.estimated import FROM_REPLAY
from p3s.predict.estimates import AS_FOUND, Estimation
from p3s.predict.types import KNEE_EFFICIENCY, PREDICTION, WEAK, Prediction, WeakPrediction
from p3s.predict.what_if.answers import cheap, with_answers
from p3s.predict.what_if.changes import Changes, read_changes
from p3s.predict.what_if.simulated import check_answerable, costs_of
from p3s.program.types import MOST_RANKS
from p3s.signature.times import load_times

if TYPE_CHECKING:
    from p3s.predict.surface import Surface

#: Words for the usual changes in the place of a change: with them, and without.
TABLE, NO_TABLE = "table", "none"
#: In place of a file system: what the traced runs took.
RUNS = "runs"


@dataclass(frozen=True)
class WhatIfs:
    """Which changes are asked for; ``table``: the usual ones as well, None: where that is quick."""

    asked: tuple[Changes, ...] = ()
    table: bool | None = None


#: Nothing is asked for, and the usual changes are not either.
NOTHING = WhatIfs(table=False)


@dataclass(frozen=True)
class PredictArguments:
    """What a prediction is requested for: by the command, the API, or another stage.

    counts: ascending. machine: file of another machine to predict for, base: that of the runs.
    knee: efficiency below which the knee is reached. only: counts predicted before do not stay.
    allowed: codes of reasons that do not speak against the prediction. within: relative half
    width that the intervals must have, None: any. what_if: changes whose effect is asked for.
    files: file system to predict for, None: that which the study holds.
    """

    counts: tuple[int, ...]
    request: Request
    machine: Path | None = None
    base: Path | None = None
    knee: float = KNEE_EFFICIENCY
    only: bool = False
    allowed: frozenset[str] = frozenset()
    within: float | None = None
    what_if: WhatIfs = NOTHING
    files: FileSystem | None = None


def file_system(text: str) -> FileSystem | None:
    """Return the file system that --io names, one without rates for the runs' own times; None
    where it names none, so that what the study holds stays."""
    from p3s.machine.filesystem import names, typical
    from p3s.machine.machinefile import files_of

    if not text:
        return None
    if text == RUNS:
        return FileSystem("", "", ())
    return typical(text) if text in names() else files_of(Path(text))


def what_ifs_of(texts: Sequence[str]) -> WhatIfs:
    """Return the changes of an option's texts; raises UsageError in one line."""
    words = [text.strip().lower() for text in texts]
    if NO_TABLE in words and len(words) > 1:
        raise UsageError(f"--what-if {NO_TABLE}: asks for nothing; leave the others out")
    table = True if TABLE in words else False if NO_TABLE in words else None
    changes = [
        read_changes(text) for text in texts if text.strip().lower() not in (TABLE, NO_TABLE)
    ]
    return WhatIfs(tuple({each.text: each for each in changes}.values()), table)


def ensure_prediction(
    study: Study, arguments: PredictArguments, progress: Progress
) -> tuple[Study, Prediction]:
    """Make what is missing and predict; return the study that holds the prediction, and it.

    With another machine the study returned is the one of that machine. Errors: P3SError, in one
    line.
    """
    wanted, what_if = arguments.counts, arguments.what_if
    path, files = study.root / FILES, arguments.files
    if files is not None and not (path.exists() and FileSystem.load(path) == files):
        files.save(path)
    machine, base = arguments.machine, arguments.base
    _ready(study, progress)
    if machine is not None and base is None and is_own(study, machine):
        machine = None  # nothing moves, and the times of its runs can be compared
    made = None if machine is None else prepare(study, machine, base)
    request, holder = fill_node_slots(study, arguments.request, made), made or study
    with one_at_a_time(holder.prediction_path, progress):
        before = [] if arguments.only else earlier_counts(holder, progress)
        earlier = sorted({*before} - {*wanted})
        if earlier:
            listed = ", ".join(map(str, earlier))
            progress.say(f"predicted again with them: {listed} (--only leaves them out)")
        _doubt(study, wanted, progress)
        asked = sorted({*wanted, *earlier})
        every = sorted({*asked, *counts_behind(study)})
        _scale(study, every, progress, spread=True)
        how = replace(
            estimation(dict.fromkeys(every, study), asked, request, progress, made),
            threshold=arguments.knee,
            allowed=arguments.allowed,
            requested=asked,
            within=arguments.within,
            keep={},
        )
        if what_if.asked:
            whose = costs_of(traces_of(holder), how.estimator, how.machine, how.setting)
            check_answerable(traces_of(study), what_if.asked, asked, whose)
        progress.start("predicting")
        if made is None:
            result = predict_study(study, every, how)
        else:
            for n in every:
                ensure_scaled(made, n, progress, spread=True)
            result = compose(study, made, every, how)
        result = _with_answers(holder, result, how, what_if, progress)
        # Once all of it is known: one that is interrupted leaves the old one.
        write_json(holder.prediction_path, PREDICTION.data(result))
    return holder, result


def predict_study(
    study: Study, counts: Sequence[int], how: Estimation = AS_FOUND, *, elsewhere: bool = False
) -> Prediction:
    """Return the prediction of a study whose scaled traces are there, as ``predict`` makes it."""
    return predict(Inputs(dict.fromkeys(counts, study), of_traces(study), elsewhere), how)


def estimation(
    studies: Mapping[int, Study],
    counts: Sequence[int],
    request: Request,
    progress: Progress,
    made: Study | None = None,
) -> Estimation:
    """Return how times are estimated, with the replays that it takes made.

    studies: by all counts; counts: those that were asked for. made: the study of another machine.
    """
    file = machine_file(made or studies[max(studies)])
    how, replays = basis_of(request, counts, file, lambda n: representative(studies[n], n))
    if told_of(how):
        progress.say(told_of(how))
    if replays and max(studies) > MOST_RANKS:
        raise P3SError(
            f"{processes(max(studies))}: a replay needs the rows of all ranks, which "
            f"{MOST_RANKS:,} have at most; add --network or a machine file"
        )
    for n, at in studies.items() if replays else ():
        ensure_replay(at, n, request.settings, progress)
    return replace(
        how,
        stale=[
            n
            for n, at in studies.items()
            if at.replay_path(n).exists() and replay_is_missing(at, n)
        ],
        say=lambda text: progress.start(f"predicting: {text}"),
        done=lambda name, n: progress.done(f"n={n}: simulated ({name})"),
    )


def one_at_a_time(path: Path, progress: Progress) -> AbstractContextManager[None]:
    """Return what lets one prediction at a time add its counts to those in a file."""
    text = f"another p3s predict is writing {path}; this one goes on when it is done"
    return alone(path, lambda: progress.say(text))


def _with_answers(
    study: Study, result: Prediction, how: Estimation, what_if: WhatIfs, progress: Progress
) -> Prediction:
    """Return a prediction with what changes save.

    Changes that nobody has asked for do not make a prediction fail.
    """
    usual = what_if.table
    if usual is None:
        usual = not result.starts_only and cheap(study.root, [row.n for row in result.counts])
    if not (what_if.asked or usual):
        return result
    try:
        if why := structure_of(study).fixed:
            if what_if.asked or what_if.table:
                raise P3SError(f"{study.root}: {why}")
            return result
        traces = traces_of(study)
        costs = costs_of(traces, result.estimator, how.machine, how.setting)
        costs = replace(costs, found=how.keep or {})
        each = costs.setting.ranks_per_node or costs.messages.cores
        return with_answers(
            traces,
            result,
            what_if.asked,
            costs,
            threads=over_threads().more(study, each, progress),
            table=what_if.table,
            say=progress.start,
        )
    except P3SError as err:
        if what_if.asked or what_if.table:
            raise
        progress.say(f"note: what changes would save is not known: {err}")
        return result


def message_costs(root: Path, counts: Sequence[int], request: Request) -> tuple[Traces, Estimation]:
    """Return what a study has traced, and what costs of messages a prediction takes that replays
    nothing."""
    study = load_study(root)
    alone = replace(request, no_replay=True)
    return traces_of(study), basis_of(alone, counts, machine_file(study), lambda _: False)[0]


def make_scaled_traces(root: Path, counts: Sequence[int], progress: Progress) -> Traces:
    """Make everything up to the scaled traces of all ranks; return what the study has traced."""
    study = load_study(root)
    _ready(study, progress)
    _doubt(study, counts, progress)
    _scale(study, counts, progress)
    return traces_of(study)


def _scale(
    study: Study, counts: Sequence[int], progress: Progress, *, spread: bool = False
) -> None:
    unwritten = [n for n in counts if is_missing(study, "scaled", n)]
    check_scaled_room(study, unwritten)
    progress.expect(len(unwritten) + len(counts))
    for n in counts:
        ensure_scaled(study, n, progress, spread=spread)


def surface_of(
    root: Path,
    arguments: PredictArguments,
    threads: Sequence[int],
    params: Sequence[str],
    node: Node | None,
    bar: Progress,
) -> tuple[Study, Surface]:
    """Predict over processes and threads, by default those that were traced."""
    study = with_threads(root)
    rest = inputs_of(study, params)
    wanted = PredictionRange(arguments.counts, threads or threads_in(study), rest, node)
    request, only, allowed = arguments.request, arguments.only, arguments.allowed
    return study, over_threads().surface(study, wanted, request, bar, only=only, allowed=allowed)


# ---- weak scaling --------------------------------------------------------------------------------
def predicted_weak(
    study: Study, arguments: PredictArguments, law: str, params: Sequence[str], bar: Progress
) -> tuple[WeakPrediction, Path]:
    """Make what is missing, predict times at counts with parameters that grow, and write them;
    return the prediction and its file.

    ``law``: as of --weak, size~n or size~2*n^(1/3). ``params``: values at the smallest count, as
    of --param, by default the smallest traced ones. Counts that were predicted before with the same
    law stay, unless they alone are asked for. Of the arguments those of another machine and of
    changes are not heeded. Raises P3SError, in one line.
    """
    from p3s.costs.parameters.laws import parse_laws, settings_along

    names, laws, traced = parameters(study), parse_laws(law), settings_in(study)
    for each in laws:
        if each.name not in names:
            raise UsageError(
                f"--weak {law}: {each.name} is no parameter of this study, which has "
                f"{', '.join(names)}"
            )
    if not traced:
        raise P3SError(f"{study.root}: holds no runs yet; run p3s characterize --param first")
    path = study.root / f"weak-{'-'.join(each.name for each in laws)}.json"
    growth = ",".join(each.text() for each in laws)
    counts = sorted({n for _, at in traced for n in at.counts()})
    given = parse_params(params)
    least = {name: [min(s[name] for s, _ in traced)] for name in names if name not in given}
    words = [f"{name}={','.join(map(value_text, v))}" for name, v in (given | least).items()]
    whole = {name: all(s[name].denominator == 1 for s, _ in traced) for name in names}
    with one_at_a_time(path, bar):
        old = None if arguments.only else read_or_none(lambda: WEAK.read(path))
        before = [row.n for row in old.counts] if old is not None and old.weak == growth else []
        every = sorted({counts[0], *arguments.counts, *before})
        fixed = one_setting(words, names)
        along, notes = settings_along(laws, fixed, names, every, counts[0], whole)
        for note in notes:
            bar.say(note)
        bar.expect(2 * len(every) + 2)
        ensure_family(study, bar)
        studies: dict[int, Study] = {}
        for n, setting in along.items():
            at = studies[n] = Study(instantiate(study.root, setting))
            step = NamedProgress(bar, setting_name(setting))
            _ready(at, step)
            _doubt(at, [n], bar)
            ensure_scaled(at, n, step)
        how = estimation(studies, every, arguments.request, bar)
        options = [word for each in params for word in ("--param", each)]
        predicting = ["predict", str(study.root), "--weak", law, *options]
        values = {n: {k: value_text(v) for k, v in setting.items()} for n, setting in along.items()}
        last = studies[max(studies)]
        commands = Commands(last, studies, predicting)
        inputs = Inputs(studies, commands, settings=values, traced=counts)
        result = predict(inputs, replace(how, threshold=arguments.knee))
        parts = {each.name: getattr(result, each.name) for each in fields(result)}
        parts["notes"] = (*notes, *result.notes)
        found = WeakPrediction(**parts, weak=growth, base_n=counts[0])
        write_json(path, WEAK.data(found))
    return found, path


def _ready(study: Study, progress: Progress) -> None:
    """Make what every prediction of a study rests on."""
    ensure_model(study, progress)
    ensure_compute(study, progress)
    check_times(study)


def _doubt(study: Study, counts: Sequence[int], progress: Progress) -> None:
    """Say why the program may not run at some counts."""
    for n, why in doubt_counts(study, counts).items():
        progress.say(f"n={n}: {why}")


# ---- on another machine: in STUDY/on/NAME, beside the study's own artefacts ----------------------
def place_of(study: Study, path: Path, target: Machine) -> Path:
    """Return where the prediction for a target is kept: STUDY/on/NAME, by its file or its host."""
    stem = path.stem if path.stem != Path(NAME).stem else target.name
    return study.root / "on" / (re.sub(r"[^\w.=-]+", "-", stem).strip(".-") or "machine")


def filled_bytes(study: Study, counts: Sequence[int]) -> dict[int, float]:
    """Return the memory that a rank has filled, mean over the ranks, by count where it is known."""
    found = {}
    for n in counts:
        times = load_times(study.root, n)
        if times is not None and len(times.resident_bytes) and (times.resident_bytes > 0).all():
            found[n] = float(times.resident_bytes.mean())
    return found


def is_own(study: Study, target_path: Path) -> bool:
    """Tell whether a machine file is the study's own, wherever it lies."""
    own = study.root / NAME
    return own.exists() and own.read_bytes() == _read(Path(target_path))


def prepare(study: Study, target_path: Path, base: Path | None) -> Study:
    """Write the study of a target machine: model, moved compute.json, machine file; return it.

    What is there and the same is left alone. Raises P3SError when the study has no compute.json,
    a machine file is missing or damaged, or nothing carries over.
    """
    from p3s.costs.transfer import move

    target = Machine.load(target_path)
    own = Machine.load(base_path(study, base))
    compute = load_compute(study.root)
    if compute is None:
        raise P3SError(
            f"{study.compute_path}: not there: nothing says how long computation takes on "
            f"{own.name}; run p3s model {quote_word(study.root)} on a study with times"
        )
    moved = move(compute, own, target, filled_bytes(study, compute.counts))
    root = place_of(study, target_path, target)
    try:
        command = study.command()
    except P3SError:  # put together from runs that do not say it
        command = ["mpiexec", "-n", "{np}", "PROGRAM"]
    made = Study.create(root, command)
    made.update(moved_from="../..", machine=target.name)
    for path, text in (
        (made.model_path, _read(study.model_path)),
        (made.compute_path, as_json(COMPUTE.data(moved)).encode()),
        (root / NAME, as_json(MACHINE.data(target)).encode()),
    ):
        write_same(path, text)
    return made


def write_same(path: Path, content: bytes) -> None:
    """Write a file, unless it is there with this content: it stays as old as it is."""
    if not path.exists() or path.read_bytes() != content:
        write_bytes(path, content)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise P3SError(f"{path}: cannot be read: {reason(error)}") from error


def compose(study: Study, made: Study, counts: Sequence[int], how: Estimation) -> Prediction:
    """Put the prediction on the target together.

    The scaled traces of ``made`` are there at all counts; replays of ``study`` are copied, those
    that are not its any more are removed. ``how``: as for p3s.pipeline.prediction.predict.
    """
    for n in counts:
        for path, copy in (
            (study.replay_path(n), made.replay_path(n)),
            (study.replay_table(n), made.replay_table(n)),
        ):
            if not path.exists() or n in how.stale:
                copy.unlink(missing_ok=True)
            else:
                write_same(copy, _read(path))
    result = predict_study(made, counts, how, elsewhere=True)
    about = read_compute(made.compute_path).machine
    if about is None:
        raise P3SError(f"{made.compute_path}: is not of another machine; predict --machine again")
    target = Machine.load(made.root / NAME)
    return replace(
        result,
        machine=to_data(about),
        notes=(*sentences(about), _of_messages(made, result, target), *result.notes),
    )


def sentences(about: Moved) -> list[str]:
    """Return what is to be said of a moved computation: by how much, how sure, what is doubtful."""
    text = f"computation was measured on {about.base.name} and moved to {about.target.name}"
    places = [place for place in about.places if place.factor]
    if places:
        values = [value for place in places for value in place.factor]
        low, high = min(place.low for place in places), max(place.high for place in places)
        text += (
            f" by factors of {ends(min(values), max(values), '.2f')} at the measured "
            f"work per iteration (90 % interval over all places {ends(low, high, '.2f')})"
        )
    said = [text]
    for place in sorted(places, key=lambda place: -place.share)[:3]:
        said.append(
            f"phase {place.phase}, {100 * place.share:.0f} % of the computation: {place.why}"
        )
    return [*dict.fromkeys(said), *about.notes]


def _of_messages(made: Study, result: Prediction, target: Machine) -> str:
    """Say where the costs of messages are from."""
    rested = [row for row in result.counts if row.n > 1]
    if result.network is not None and result.network.published:
        return f"communication is that of {result.network.label}, not of {target.name}"
    if any(row.estimator not in FROM_REPLAY for row in rested):
        return (
            f"communication is simulated with messages measured between two ranks of {target.name}"
        )
    nodes = sorted(
        {str(node) for row in rested for node in made.replay(row.n).get("nodes", []) if node}
    )
    if not nodes:
        return "no communication was measured: none is part of these times"
    if nodes == [target.name]:
        return f"communication was measured on {target.name} itself"
    return (
        f"communication was measured on {', '.join(nodes)} and is not moved: it is not that of "
        f"{target.name}; for that run p3s predict there, or with its nodes in --hosts"
    )
