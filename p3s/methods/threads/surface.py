"""Predictions over threads of a process: what is missing made, one prediction for each number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from p3s.base.host.cores import cores
from p3s.base.progress import Once, Progress
from p3s.base.settings import MIN_COUNTS, THREADS, Setting, setting_name, without_threads
from p3s.base.study import Study
from p3s.base.text import plural, processes
from p3s.methods.threads import stage
from p3s.methods.threads.laws import check_fits, ensure_base, ensure_threads
from p3s.methods.threads.settings import at_threads, base_of
from p3s.methods.threads.text import doubts
from p3s.pipeline.basis import Request
from p3s.pipeline.predicting import PredictArguments, predicted
from p3s.pipeline.teams import Wanted, node_of
from p3s.predict.surface import Column, Surface, surface_of


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
    threads, rest = int(setting[THREADS]), setting_name(without_threads(setting))
    file = ensure_threads(root, None, progress)
    ensure_base(root, file, rest)
    layout = stage.Layout(threads, max(cores() // threads, 1))
    return stage.study_at(root, file, rest, layout, cores())


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
    columns, once = [], Once(progress)
    progress.expect(len(wanted.threads))
    for threads in wanted.threads:
        label = plural(threads, "thread")
        layout = stage.Layout(threads, max(node.slots // threads, 1))
        at = stage.study_at(root, file, wanted.rest, layout, cores())
        here = counts if each is None else sorted(each[threads])
        packed = replace(request.settings, cores_per_node=layout.per_node)
        arguments = PredictArguments(
            tuple(here), replace(request, settings=packed), only=only, allowed=frozenset(allowed)
        )
        _, found = predicted(at, arguments, _OfThreads(once, label))
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
