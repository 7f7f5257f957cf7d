"""Several counts at once, by all who compute (p3s.base.workers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.predict.estimated import FROM_REPLAY, Communication
from p3s.predict.estimators.one import Say, estimate
from p3s.predict.estimators.settings import Setting

#: Two counts of so many ranks are worth a second process: it imports and reads all that one does.
#: Where estimators only read a table it would cost more than it saves.
_WORTH = 512


def _nothing(_: object) -> None:
    """Say nothing."""


def estimate_many(
    name: str,
    study: Study,
    counts: Sequence[int],
    *,
    machine: Path | None = None,
    jobs: int = 0,
    say: Say | None = None,
    setting: Setting | None = None,
    done: Callable[[int], None] | None = None,
) -> dict[int, Communication]:
    """Return ``estimate`` of several counts, on ``jobs`` cores (0: those that may be used,
    where at least two counts are large).

    ``done`` is told every count that is ready. The result does not depend on ``jobs``; the largest
    counts are begun first. Errors as in ``estimate``: of the first count, in the given order, that
    has one.
    """
    say, done, setting = say or _nothing, done or _nothing, setting or Setting()
    wanted = list(dict.fromkeys(counts))
    order = sorted(wanted, reverse=True)
    tasks = [(name, study.root.absolute(), n, machine, setting) for n in order]
    if name in FROM_REPLAY or (not jobs and sorted([0, 0, *wanted])[-2] < _WORTH):
        jobs = 1
    found: dict[int, Communication | P3SError] = {}
    for n, (made, said) in zip(
        order, workers.each(_estimated, tasks, study.manifest_path, jobs), strict=True
    ):
        for line in said:
            say(line)
        if isinstance(made, Communication):
            done(n)
        found[n] = made
    return {n: _whole(found[n]) for n in wanted}


def _estimated(
    name: str, root: Path, n: int, machine: Path | None, setting: Setting
) -> tuple[Communication | P3SError, list[str]]:
    """Return an estimate, or why there is none, and what was said meanwhile."""
    said: list[str] = []
    try:
        made = estimate(
            name, Study.open(root), n, machine=machine, say=said.append, setting=setting
        )
    except P3SError as err:
        return err, said
    return made, said


def _whole(made: Communication | P3SError) -> Communication:
    if isinstance(made, P3SError):
        raise made
    return made
