"""Predictions over threads of a process: what is missing made, one prediction for each number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from p3s.errors import UsageError
from p3s.host.cores import cores
from p3s.machine.openmp import load as load_openmp
from p3s.pipeline.basis import Request, basis_of
from p3s.pipeline.predicting import predicted
from p3s.pipeline.stages import (
    ensure_compute,
    ensure_model,
    ensure_signatures,
    is_stale,
    machine_file,
)
from p3s.predict.surface import Column, Surface, surface_of
from p3s.progress import Progress
from p3s.report.teams import doubts
from p3s.settings import (
    MIN_COUNTS,
    THREADS,
    Setting,
    parse_setting,
    setting_name,
    settings_in,
    without_threads,
)
from p3s.study import Study
from p3s.text import plural, processes
from p3s.threads import stage
from p3s.threads.law import NOT_MEASURED, Measured, measured_of
from p3s.threads.settings import at_threads, base_of, threads_in
from p3s.topology.node import Node


@dataclass(frozen=True)
class Wanted:
    """What is to be predicted: process counts, numbers of threads, and the values of the input.

    rest: name of the values of the input's own parameters. node: of the run, None: as many cores as
    those of the network.
    """

    counts: Sequence[int]
    threads: Sequence[int]
    rest: str = ""
    node: Node | None = None


def plain_node(cores: int, source: str = "") -> Node:
    """Return a node of which only the number of cores is known."""
    return Node(source or plural(cores, "core"), (cores,), (1,), (cores,))


def node_of(study: Study, request: Request) -> Node:
    """Return the node of a run: as measured, or with the cores of the typical cluster's."""
    from p3s.machine.cluster import cluster_of
    from p3s.machine.machinefile import Machine

    if request.settings.cores_per_node:
        return plain_node(request.settings.cores_per_node)
    file = machine_file(study)
    basis = basis_of(request, {1: study}, [1], file)
    if basis.network:
        return plain_node(cluster_of(basis.network).cores_per_node, basis.network)
    known = Machine.load(file).facts.get("cores") if file is not None else None
    return plain_node(known if isinstance(known, int) and known > 0 else cores())


def check_fits(threads: Sequence[int], node: Node) -> None:
    """Raise UsageError where a process has more threads than a node has cores."""
    most = max(threads)
    if most > node.slots:
        raise UsageError(
            f"--threads {most}: a node has {plural(node.slots, 'core')} ({node.source}); describe "
            "yours with --node, as in --node 2x32, or --cores-per-node"
        )


def ensure_threads(
    root: Study, node: Node | None, progress: Progress, *, again: bool = False
) -> stage.ThreadFile:
    """Fit the models of all traced values, and what threads change, where out of date.

    node: that the laws are for; None: that of an earlier fit, else one of this machine's cores.
    """
    inputs: list[Path] = []
    for setting, at in settings_in(root):
        counts = ensure_signatures(at, progress)
        if len(counts) >= MIN_COUNTS:
            progress.start(f"{setting_name(setting)}: fitting the model")
            ensure_model(at, progress, again=again)
            ensure_compute(at, progress, again=again)
            inputs.append(at.compute_path)
        inputs += [at.signature_path(n) for n in counts]
    if (file := machine_file(root)) is not None:
        inputs.append(file)
    stale = again or is_stale(stage.checks_path(root), inputs)
    found = None if stale else stage.load(root)
    if found is not None and (node is None or found.node == node):
        return found
    if node is None:
        node = plain_node(max(cores(), *threads_in(root)))
    progress.start("fitting what threads change")
    made = stage.build(root, node, cores(), _measured(root, node), say=progress.start)
    progress.done("laws of threads fitted")
    return made


class _OfThreads(Progress):
    """Steps of the predictions at one number of threads, told in few lines."""

    def __init__(self, of: Progress, label: str, told: set[str]) -> None:
        self._of, self._label, self._told = of, label, told

    def start(self, text: str) -> None:
        """Say which step is being done."""
        self._of.start(f"{self._label}: {text}")

    def say(self, text: str) -> None:
        """Say something once, whatever number of threads it is of."""
        if text not in self._told:
            self._told.add(text)
            self._of.say(text)


def _measured(root: Study, node: Node) -> Measured:
    """Return what p3s machine measure --openmp found on the machine of the runs, if anything."""
    file = machine_file(root)
    found = load_openmp(file) if file is not None else None
    return NOT_MEASURED if found is None else measured_of(found, node)


def at_setting(root: Study, setting: Setting, progress: Progress) -> Study:
    """Return the study at values of all parameters, threads among them, on nodes as in the runs."""
    threads, rest = int(setting[THREADS]), setting_name(without_threads(setting))
    file = ensure_threads(root, None, progress)
    ensure_base(root, file, rest)
    layout = stage.Layout(threads, max(cores() // threads, 1))
    return stage.study_at(root, file, rest, layout, cores())


def ensure_base(root: Study, file: stage.ThreadFile, rest: str) -> Study:
    """Return the study at values of the input with the base's threads, derived where not traced."""
    from p3s.parameters import instantiate

    at = at_threads(root, rest, file.base)
    if not at.model_path.exists() or len(at.signature_counts()) < MIN_COUNTS:
        instantiate(root.root, parse_setting(at.root.name))
    return at


def surface(
    root: Study,
    wanted: Wanted,
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
    node = wanted.node or node_of(at_threads(root, wanted.rest, base_of(root)), request)
    check_fits(wanted.threads, node)
    file = ensure_threads(root, node, progress)
    first = min(ensure_base(root, file, wanted.rest).counts() or wanted.counts)
    counts = sorted({first, *wanted.counts})
    columns, told = [], set[str]()
    progress.expect(len(wanted.threads))
    for threads in wanted.threads:
        label = plural(threads, "thread")
        layout = stage.Layout(threads, max(node.slots // threads, 1))
        at = stage.study_at(root, file, wanted.rest, layout, cores())
        here = counts if each is None else sorted(each[threads])
        packed = replace(request.settings, cores_per_node=layout.per_node)
        _, found = predicted(
            at,
            here,
            replace(request, settings=packed),
            _OfThreads(progress, label, told),
            only=only,
            allowed=allowed,
        )
        traced = threads in file.threads
        unsure = 1.0 if traced else stage.open_at(at, max(here))
        columns.append(Column(threads, layout.per_node, traced, found, unsure))
        progress.done(f"{label}: predicted at {processes(here)}")
    against = doubts(file, messages=_from_others(root, wanted, file.base))
    return surface_of(columns, counts, wanted.rest, node.cores, against)


def _from_others(root: Study, wanted: Wanted, base: int) -> bool:
    """Tell whether messages of some numbers of threads are those of the base's."""
    others = [threads for threads in wanted.threads if threads != base]
    runs = (at_threads(root, wanted.rest, threads).signature_counts() for threads in others)
    return any(len(counts) < MIN_COUNTS for counts in runs)
