"""One estimator at one process count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.extensions import load
from p3s.base.text import processes, quoted
from p3s.predict.estimated import ESTIMATORS, FROM_REPLAY, Communication
from p3s.predict.estimators.settings import Setting

if TYPE_CHECKING:
    from p3s.base.study import Study

Say = Callable[[str], None]


def _nothing(_: object) -> None:
    """Say nothing."""


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
    told, chosen = say or _nothing, setting or Setting()
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
