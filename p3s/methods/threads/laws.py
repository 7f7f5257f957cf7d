"""The laws of threads, fitted where out of date, and the node that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import OtherVersion, P3SError, UsageError
from p3s.base.host.cores import cores
from p3s.base.progress import Once, Progress
from p3s.base.settings import (
    MIN_COUNTS,
    parent_of,
    parse_setting,
    setting_name,
    settings_in,
    threads_of,
    without_threads,
)
from p3s.base.study import Study
from p3s.base.text import plural
from p3s.pipeline.stages import (
    ensure_compute,
    ensure_model,
    ensure_signatures,
    is_stale,
    machine_file,
)
from p3s.pipeline.teams import plain_node
from p3s.predict.what_if.changes import MoreThreads, NotKnown

if TYPE_CHECKING:
    from p3s.costs.types import Teams
    from p3s.machine.topology.inside import Node
    from p3s.methods.threads.law import Measured
    from p3s.methods.threads.stage import ThreadFile


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
) -> ThreadFile:
    """Fit the models of all traced values, and what threads change, where out of date.

    node: that the laws are for; None: that of an earlier fit, else one of this machine's cores.
    """
    from p3s.base.settings import threads_in
    from p3s.methods.threads import stage

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
    stale = again or is_stale(stage.threads_path(root), inputs)
    found = None
    with suppress(OtherVersion):  # of an earlier p3s: fitted again
        found = None if stale else stage.load(root)
    if found is not None and (node is None or found.node == node):
        return found
    if node is None:
        node = plain_node(max(cores(), *threads_in(root)))
    progress.start("fitting what threads change")
    made = stage.build(root, node, cores(), _measured(root, node), say=progress.start)
    progress.done("laws of threads fitted")
    return made


def _measured(root: Study, node: Node) -> Measured:
    """Return what p3s machine measure --openmp found on the machine of the runs, if anything."""
    from p3s.machine.machinefile import Machine
    from p3s.methods.threads.law import NOT_MEASURED, measured_of

    file = machine_file(root)
    found = Machine.load(file).openmp if file is not None else None
    return NOT_MEASURED if found is None else measured_of(found, node)


def ensure_base(root: Study, file: ThreadFile, rest: str) -> Study:
    """Return the study at values of the input with the base's threads, derived where not traced."""
    from p3s.costs.parameters.stage import instantiate
    from p3s.methods.threads.settings import at_threads

    at = at_threads(root, rest, file.base)
    if not at.model_path.exists() or len(at.signature_counts()) < MIN_COUNTS:
        instantiate(root.root, parse_setting(at.root.name))
    return at


def more_threads(study: Study, per_node: int, progress: Progress) -> MoreThreads | NotKnown:
    """Return what other numbers of threads do to a study, or why that is not known.

    per_node: its processes of a node, which their threads fill.
    """
    if study.manifest().get("moved_from"):
        return NotKnown("laws of threads are those of the machine of the runs", of_threads=False)
    found, threads = parent_of(study), threads_of(study)
    if found is None or not threads:
        return NotKnown(
            "the study has no runs with several numbers of threads; trace some: p3s characterize "
            "--threads 1,2,4",
            of_threads=False,
        )
    root, setting = found
    slots = per_node * threads
    try:
        file = ensure_threads(root, None, progress)
        if file.node.slots < slots:  # laws are for nodes as large as those of the runs, or larger
            file = ensure_threads(root, plain_node(slots), progress)
        base = ensure_base(root, file, setting_name(without_threads(setting)))
    except P3SError as error:
        return NotKnown(str(error))
    from p3s.methods.threads.text import doubts

    against = [reason.text for reason in doubts(file) if reason.untrustworthy]
    if against or not file.laws:
        return NotKnown(against[0] if against else "no times of computation were taken")

    def law(was: tuple[int, int], now: tuple[int, int]) -> Teams:
        from p3s.methods.threads.stage import Layout, factors

        return factors(study, base, file, Layout(*was), Layout(*now))

    return MoreThreads(threads, slots, max(file.threads), law)
