"""Laws of threads fitted where out of date, and predictions over threads of a process.

Also what the core asks of threads (``OVER``), and threads in the Python API:
``study.over_threads([64], [1, 4])``. What laws are fitted with is imported when it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import LastRead, as_json, is_stale, write_json
from p3s.base.errors import OtherVersion, P3SError, UsageError
from p3s.base.host.cores import cores
from p3s.base.progress import Once, Progress
from p3s.base.settings import (
    MIN_COUNTS,
    MOST_SETTINGS,
    THREADS,
    Setting,
    alike_in_threads,
    fill_parameters,
    inputs_in,
    parameters,
    parent_of,
    parse_setting,
    setting_name,
    settings_in,
    threads_in,
    threads_of,
    value_study,
    value_text,
    without_threads,
)
from p3s.base.study import Study
from p3s.base.text import plural, processes, quote_word
from p3s.model.stage import load as load_model
from p3s.pipeline.commands import of_value
from p3s.pipeline.parameters import Laws, OverThreads, PredictionRange, node_of, plain_node
from p3s.pipeline.predicting import PredictArguments, ensure_prediction, filled_bytes, write_same
from p3s.pipeline.prediction import AUTO, Request, request_of
from p3s.pipeline.stages import (
    ensure_compute,
    ensure_model,
    ensure_signatures,
    instantiate,
    machine_file,
)
from p3s.predict.what_if.changes import MoreThreads
from p3s.signature.beside import load_teams
from p3s.signature.store import load_table
from p3s.signature.times import load_times

if TYPE_CHECKING:
    from p3s.costs.types import Teams
    from p3s.machine.topology.inside import Node
    from p3s.methods.threads.advise.types import Configuration
    from p3s.methods.threads.law import Measured
    from p3s.methods.threads.runs import Run, Work
    from p3s.methods.threads.stage import Layout, ThreadFile
    from p3s.predict.surface import Surface
    from p3s.signature.tables import PointTable


def check_fits(threads: Sequence[int], node: Node) -> None:
    """Raise UsageError where a process has more threads than a node has cores."""
    most = max(threads)
    if most > node.slots:
        raise UsageError(
            f"--threads {most}: a node has {plural(node.slots, 'core')} ({node.source}); describe "
            "yours with --node, as in --node 2x32, or --cores-per-node"
        )


def base_of(root: Study) -> int:
    """Return the number of threads whose runs the equations of messages are from.

    As :func:`p3s.base.settings.alike_in_threads`; 0 where there are no runs.
    """
    studies = alike_in_threads(root)
    return int(studies[0][0][THREADS]) if studies and THREADS in studies[0][0] else 0


def at_threads(root: Study, rest: str, threads: int) -> Study:
    """Return the study at values of the input and a number of threads; it need not be there."""
    setting = {**(parse_setting(rest) if rest else {}), THREADS: Fraction(threads)}
    return value_study(root, {name: setting[name] for name in parameters(root)})


def runs_of(root: Study) -> list[Run]:
    """Return what was traced, by the values of the input, threads, and count."""
    from p3s.methods.threads.runs import Run

    return [
        Run(rest, threads, n, load_times(at.root, n), load_teams(at.root, n), _shares_cores(at, n))
        for rest in inputs_in(root)
        for threads in threads_in(root)
        for at in [at_threads(root, rest, threads)]
        for n in at.signature_counts()
    ]


def _shares_cores(at: Study, n: int) -> bool:
    """Tell whether processes and threads of a run at a count were more than the cores."""
    return any(run.info.get("oversubscribed", True) for run in at.runs(n))


def tables_of(root: Study, rest: str) -> dict[int, dict[int, PointTable]]:
    """Return the signatures at values of the input, by threads and count."""
    return {
        threads: {n: load_table(at.root, n) for n in at.signature_counts()}
        for threads in threads_in(root)
        for at in [at_threads(root, rest, threads)]
    }


def work_of(at: Study) -> Work:
    """Return what a process computes by the laws of a study with the base's threads."""
    if not at.compute_path.exists():
        raise P3SError(f"{at.compute_path}: not there; run p3s model {quote_word(at.root)}")
    return _last_work(at.compute_path)


def _read_work(path: Path) -> Work:
    from p3s.costs.types import read
    from p3s.methods.threads.runs import Work

    return Work(read(path), load_model(path.parent))


#: A study has as many as its input has values.
_last_work = LastRead(_read_work, files=MOST_SETTINGS)


def ensure_threads(
    root: Study, node: Node | None, progress: Progress, *, again: bool = False
) -> ThreadFile:
    """Fit the models of all traced values, and what threads change, where out of date.

    node: that the laws are for; None: that of an earlier fit, else one of this machine's cores.
    Raises P3SError where there are no runs.
    """
    from p3s.methods.threads import stage
    from p3s.methods.threads.settings import check_messages

    inputs: list[Path] = []
    alike = Once(progress)
    for setting, at in settings_in(root):
        counts = ensure_signatures(at, alike)
        if len(counts) >= MIN_COUNTS:
            progress.start(f"{setting_name(setting)}: fitting the model")
            ensure_model(at, alike, again=again)
            ensure_compute(at, alike, again=again)
            inputs.append(at.compute_path)
        inputs += [at.signature_path(n) for n in counts]
    if (file := machine_file(root)) is not None:
        inputs.append(file)
    path, stored = root.root / stage.NAME, None
    with suppress(OtherVersion):  # of an earlier p3s: fitted again
        stored = None if again or is_stale(path, inputs) else stage.load(root.root)
    if stored is not None and (node is None or stored.node == node):
        return stored
    base = base_of(root)
    if not base:
        raise P3SError(f"{root.root}: holds no runs yet; run p3s characterize --threads first")
    node = node or plain_node(max(cores(), *threads_in(root)))
    progress.start("fitting what threads change")
    bases = {rest: at_threads(root, rest, base) for rest in inputs_in(root)}
    models = {rest: load_model(at.root) for rest, at in bases.items() if at.model_path.exists()}
    checks = [
        check
        for rest, model in models.items()
        for check in check_messages(rest, tables_of(root, rest), base, model)
    ]
    progress.start("fitting the laws of threads")
    work = {rest: work_of(bases[rest]) for rest in models if bases[rest].compute_path.exists()}
    measured = _read_measured(root, node)
    thread_file = stage.build(base, runs_of(root), checks, work, node, cores(), measured)
    write_json(path, stage.THREADS_FILE.data(thread_file))
    progress.done("laws of threads fitted")
    return thread_file


def _read_measured(root: Study, node: Node) -> Measured:
    """Return what p3s machine measure --openmp found on the machine of the runs, if anything."""
    from p3s.machine.machinefile import Machine
    from p3s.methods.threads.law import NOT_MEASURED, measured_of

    file = machine_file(root)
    openmp = Machine.load(file).openmp if file is not None else None
    return NOT_MEASURED if openmp is None else measured_of(openmp, node)


def ensure_base(root: Study, file: ThreadFile, rest: str) -> Study:
    """Return the study at values of the input with the base's threads, derived where not traced."""
    at = at_threads(root, rest, file.base)
    if not at.model_path.exists() or len(at.signature_counts()) < MIN_COUNTS:
        instantiate(root.root, parse_setting(at.root.name))
    return at


def more_threads(study: Study, per_node: int, progress: Progress) -> MoreThreads | str:
    """Return what other numbers of threads do to a study, or why that is not known.

    per_node: its processes of a node, which their threads fill.
    """
    if study.manifest().get("moved_from"):
        return "laws of threads are those of the machine of the runs"
    parent, threads = parent_of(study), threads_of(study)
    if parent is None or not threads:
        return (
            "the study has no runs with several numbers of threads; trace some: p3s characterize "
            "--threads 1,2,4"
        )
    root, setting = parent
    slots = per_node * threads
    try:
        file = ensure_threads(root, None, progress)
        if file.node.slots < slots:  # laws are for nodes as large as those of the runs, or larger
            file = ensure_threads(root, plain_node(slots), progress)
        base = ensure_base(root, file, setting_name(without_threads(setting)))
    except P3SError as error:
        return str(error)
    from p3s.methods.threads.text import doubts

    against = [reason.text for reason in doubts(file) if reason.untrustworthy]
    if against or not file.laws:
        return against[0] if against else "no times of computation were taken"

    @cache
    def law(was: tuple[int, int], now: tuple[int, int]) -> Teams:
        from p3s.methods.threads.stage import Layout, factors

        model = load_model(study.root)
        return factors(model, work_of(base), file, Layout(*was), Layout(*now))

    return MoreThreads(threads, slots, max(file.threads), law)


class _OfThreads(Progress):
    """Steps of the predictions at one number of threads, told in few lines.

    ``once``: says what holds for all numbers of threads.
    """

    def __init__(self, once: Progress, label: str) -> None:
        self._once, self._label = once, label

    def start(self, text: str) -> None:
        """Say which step is being done."""
        self._once.start(f"{self._label}: {text}")

    def say(self, text: str) -> None:
        """Say something once, whatever number of threads it is of."""
        self._once.say(text)


def at_setting(root: Study, setting: Setting, progress: Progress) -> Study:
    """Return the study at values of all parameters, threads among them, on nodes as in the runs."""
    from p3s.methods.threads.stage import Layout

    threads, rest = int(setting[THREADS]), setting_name(without_threads(setting))
    file = ensure_threads(root, None, progress)
    ensure_base(root, file, rest)
    layout = Layout(threads, max(cores() // threads, 1))
    return study_at(root, file, rest, layout, cores())


def study_at(root: Study, file: ThreadFile, rest: str, layout: Layout, usable: int) -> Study:
    """Return the study of a layout: the traced one, or one whose computation is moved to it.

    rest: name of the input's values, whose study with the base's threads must be there; usable:
    cores of the machine of the runs. Raises P3SError where nothing says what threads change.
    """
    from p3s.costs.types import COMPUTE, read
    from p3s.methods.threads.settings import with_threads
    from p3s.methods.threads.stage import Layout, changes_nothing, factors

    base = at_threads(root, rest, file.base)
    own_study = at_threads(root, rest, layout.threads)
    traced = len(own_study.signature_counts()) >= MIN_COUNTS and own_study.model_path.exists()
    source, threads = (own_study, layout.threads) if traced else (base, file.base)
    if not traced and layout.threads != file.base and not file.laws:
        raise P3SError(
            f"{root.root}: nothing says how computation goes with threads: no times were taken; "
            "run p3s characterize --threads again with --work cpu"
        )
    was = Layout(threads, max(usable // threads, 1))
    moved = factors(load_model(source.root), work_of(base), file, was, layout)
    if traced and changes_nothing(moved):
        return own_study
    name = f"{layout.per_node}-a-node" + ("-far" if layout.far else "")
    place = own_study.root / name if traced else own_study.root
    setting = parse_setting(with_threads(rest, layout.threads))
    derived = Study.create(place, fill_parameters(root.command(), setting))
    derived.update(
        derived=True,
        teams={"threads": layout.threads, "per_node": layout.per_node, "far": layout.far},
        traces=os.path.relpath(source.root, place),
        setting={name: value_text(x) for name, x in without_threads(setting).items()},
    )
    compute = replace(read(source.compute_path), teams=moved)
    write_same(derived.model_path, source.model_path.read_bytes())
    write_same(derived.compute_path, as_json(COMPUTE.data(compute)).encode())
    return derived


@dataclass(frozen=True)
class Case:
    """Runs with the base's threads at values of the input, by their laws.

    filled: bytes that a rank has filled, by count where they are known.
    """

    work: Work
    filled: Mapping[int, float]


def case_of(root: Study, rest: str) -> Case | None:
    """Return what is known of the base's threads at values of the input; None without a model."""
    at = at_threads(root, rest, base_of(root))
    if not at.model_path.exists():
        return None
    work = work_of(at)
    return Case(work, filled_bytes(at, list(work.model.counts)))


def trace_next(root: Study, at: Configuration, setting: str) -> str:
    """Return the command that traces a configuration at values of the input."""
    share = ["--oversubscribe"] if at.threads > cores() else []
    return of_value(root, str(at.processes), setting, "--threads", str(at.threads), *share)


def surface(
    root: Study,
    span: PredictionRange,
    request: Request,
    progress: Progress,
    *,
    only: bool = False,
    allowed: Collection[str] = (),
    each: Mapping[int, Sequence[int]] | None = None,
) -> Surface:
    """Predict every number of threads at every count; a surface over both.

    each: other counts for single numbers of threads. Raises UsageError where threads do not fit
    on a node, P3SError as predictions do.
    """
    from p3s.methods.threads.stage import Layout
    from p3s.methods.threads.text import doubts
    from p3s.predict.surface import Column, surface_of

    node = span.node or node_of(at_threads(root, span.rest, base_of(root)), request)
    check_fits(span.threads, node)
    file = ensure_threads(root, node, progress)
    first = min(ensure_base(root, file, span.rest).counts() or span.counts)
    counts = sorted({first, *span.counts})
    columns, once = [], Once(progress)
    progress.expect(len(span.threads))
    for threads in span.threads:
        label = plural(threads, "thread")
        layout = Layout(threads, max(node.slots // threads, 1))
        at = study_at(root, file, span.rest, layout, cores())
        at_counts = counts if each is None else sorted(each[threads])
        packed = replace(request.settings, cores_per_node=layout.per_node)
        arguments = PredictArguments(
            tuple(at_counts),
            replace(request, settings=packed),
            only=only,
            allowed=frozenset(allowed),
        )
        _, result = ensure_prediction(at, arguments, _OfThreads(once, label))
        traced = threads in file.threads
        columns.append(Column(threads, layout.per_node, traced, result))
        progress.done(f"{label}: predicted at {processes(at_counts)}")
    against = doubts(file, messages=_from_others(root, span, file.base))
    return surface_of(columns, counts, span.rest, node.cores, against)


def _from_others(root: Study, span: PredictionRange, base: int) -> bool:
    """Tell whether messages of some numbers of threads are those of the base's."""
    others = [at_threads(root, span.rest, t) for t in span.threads if t != base]
    return any(len(at.signature_counts()) < MIN_COUNTS for at in others)


def over_threads(
    root: Path,
    progress: Progress,
    counts: Iterable[int],
    threads: Iterable[int] = (),
    *,
    node: str = "",
    setting: str = "",
    network: str = "",
) -> Surface:
    """Predict run times at ``counts`` with every number of ``threads`` (those traced).

    ``node``: as of ``--node``, by default with the cores of the network's; ``setting``: values
    of the input's parameters, as ``size=4000``. Raises P3SError, in one line.
    """
    from p3s.machine.topology.inside import read_node
    from p3s.predict.surface import write
    from p3s.replay.settings import ReplaySettings

    study = Study.open(root)
    span = PredictionRange(
        sorted(set(counts)),
        sorted(set(threads)) or threads_in(study),
        setting,
        read_node(node) if node else None,
    )
    request = request_of(AUTO, network, True, ReplaySettings())
    surface_found = surface(study, span, request, progress)
    write(root, surface_found)
    return surface_found


def _laws(root: Study, progress: Progress, again: bool) -> Laws:
    from p3s.methods.threads import text

    file = ensure_threads(root, None, progress, again=again)
    return Laws(text.render(file, runs_of(root)), text.as_data(file), text.doubts(file))


OVER = OverThreads(more_threads, at_setting, _laws, surface)
