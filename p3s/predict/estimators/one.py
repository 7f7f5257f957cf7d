"""One estimator at one process count, and at several at once (p3s.base.workers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from p3s.base import workers
from p3s.base.errors import P3SError
from p3s.base.extensions import load
from p3s.base.study import Study
from p3s.base.text import processes, quoted
from p3s.predict.estimated import ESTIMATORS, FROM_REPLAY, Communication
from p3s.predict.estimators.settings import Setting, silent

Say = Callable[[str], None]
#: Two counts of so many ranks are worth a second process: it imports and reads all that one does.
#: Where estimators only read a table it would cost more than it saves.
_WORTH = 512


def available(study: Study, n: int, *, machine: Path | None = None) -> dict[str, str]:
    """Return for every estimator "" or, in one sentence, why it cannot be used at ``n``.

    ``machine``: machine file, default the study's own. Reads heads of files only.
    """
    return {name: _why_not(name, study, n, machine) for name in ESTIMATORS}


def lacking(name: str, study: Study, machine: Path | None) -> str:
    """Return "" or what an estimator lacks at any count: costs of messages, a simulator."""
    where = ESTIMATORS[name].why_not
    return str(load(where)(study, machine)) if where else ""


def _why_not(name: str, study: Study, n: int, machine: Path | None) -> str:
    if not study.scaled_path(n).exists():
        return (
            f"there is no scaled trace of {processes(n)}; run p3s scale {quoted(study.root)} -n {n}"
        )
    if n == 1:
        return ""  # one process communicates with nobody
    if name in FROM_REPLAY:
        from p3s.predict.estimators.replayed import why_not

        return why_not(study, n)
    return lacking(name, study, machine)


def estimate(
    name: str,
    study: Study,
    n: int,
    *,
    machine: Path | None = None,
    say: Say | None = None,
    setting: Setting | None = None,
) -> Communication:
    """Return the communication of ``n`` processes as one estimator says it, of the whole run.

    ``name``: a key of ESTIMATORS. ``machine``: machine file, default the study's own. ``setting``:
    cluster and library, for those that simulate here. Raises P3SError, one line, when the
    estimator cannot be used or what it reads is damaged.
    """
    if name not in ESTIMATORS:
        raise P3SError(f"no estimator {name!r}; known: {', '.join(ESTIMATORS)}")
    why = _why_not(name, study, n, machine)
    if why:
        raise P3SError(f"estimator {name} at {processes(n)}: {why}")
    told, chosen = say or silent, setting or Setting()
    if n == 1:
        return _alone(name, study)
    made: Communication = load(ESTIMATORS[name].communication)(study, n, machine, chosen, told)
    return made


def _alone(name: str, study: Study) -> Communication:
    """Return the communication of one process: none."""
    import numpy as np

    from p3s.predict.times import read_head

    phases = tuple(int(phase["phase"]) for phase in read_head(study.scaled_dir(1), 1)["phases"])
    nothing = np.zeros((1, len(phases)))
    return Communication(name, 1, phases, nothing, nothing, nothing, nothing, nothing, nothing)


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
    say, done, setting = say or silent, done or silent, setting or Setting()
    wanted = list(dict.fromkeys(counts))
    order = sorted(wanted, reverse=True)
    tasks = [(name, study.root.absolute(), n, machine, setting) for n in order]
    if name in FROM_REPLAY or (not jobs and sorted([0, 0, *wanted])[-2] < _WORTH):
        jobs = 1
    found: dict[int, Communication | P3SError] = {}
    result: dict[int, Communication] = {}
    for n, (made, said) in zip(
        order, workers.each(_estimated, tasks, study.manifest_path, jobs), strict=True
    ):
        for line in said:
            say(line)
        if isinstance(made, Communication):
            done(n)
        found[n] = made
    for n in wanted:
        if isinstance(made := found[n], P3SError):
            raise made
        result[n] = made
    return result


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
