"""One estimator at one process count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError
from p3s.base.text import processes, quoted
from p3s.predict.estimated import ESTIMATORS, TYPICAL, Communication
from p3s.predict.estimators.packing import with_packing
from p3s.predict.estimators.settings import Setting

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.program.packing import PackCosts

Say = Callable[[str], None]

#: Estimators that read what the replay has left.
_REPLAYED = ("simulation", "thesis")


def _nothing(_: object) -> None:
    """Say nothing."""


def available(study: Study, n: int, *, machine: Path | None = None) -> dict[str, str]:
    """Return for every estimator "" or, in one sentence, why it cannot be used at ``n``.

    ``machine``: machine file, default the study's own. Reads heads of files only.
    """
    return {name: _why_not(name, study, n, machine) for name in ESTIMATORS}


def lacking(name: str, study: Study, machine: Path | None) -> str:
    """Return "" or what an estimator lacks at any count: costs of messages, a simulator."""
    if name == "machine":
        from p3s.predict.estimators.machine import why_not

        return why_not(study, machine)
    if name in (*_REPLAYED, TYPICAL):
        return ""
    from p3s.predict.estimators.outside import why_not as outside_why_not

    return outside_why_not(name, study, 2, machine)


def _why_not(name: str, study: Study, n: int, machine: Path | None) -> str:
    if not study.scaled_path(n).exists():
        return (
            f"there is no scaled trace of {processes(n)}; run p3s scale {quoted(study.root)} -n {n}"
        )
    if n == 1 or name == TYPICAL:
        return ""  # one process communicates with nobody; published costs are always there
    if name in _REPLAYED:
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
    if name in _REPLAYED:
        from p3s.predict.estimators.replayed import communication

        return _packed_too(communication(name, study, n), study, machine, chosen)
    if name == TYPICAL:
        from p3s.predict.estimators.typical import communication as of_typical

        return of_typical(study, n, chosen, told)
    if name == "machine":
        from p3s.predict.estimators.machine import communication as of_machine

        return of_machine(study, n, machine, chosen, told)
    from p3s.predict.estimators.outside import communication as of_outside

    found = of_outside(name, study, n, machine, chosen, told)
    return _packed_too(found, study, machine, chosen)


def _alone(name: str, study: Study) -> Communication:
    """Return the communication of one process: none."""
    import numpy as np

    from p3s.predict.times import read_head

    phases = tuple(int(phase["phase"]) for phase in read_head(study.scaled_dir(1), 1)["phases"])
    nothing = np.zeros((1, len(phases)))
    return Communication(name, 1, phases, nothing, nothing, nothing, nothing, nothing, nothing)


def _packed_too(
    found: Communication, study: Study, machine: Path | None, setting: Setting
) -> Communication:
    """Return what an estimator said of contiguous bytes with the packing of a study's datatypes."""
    from p3s.predict.times import read_head

    if not read_head(study.scaled_dir(found.n), found.n).get("packed"):
        return found
    from p3s.program.scaled import read_scaled

    return with_packing(
        found, read_scaled(study.scaled_dir(found.n)), _costs(study, machine, setting)
    )


def _costs(study: Study, machine: Path | None, setting: Setting) -> PackCosts:
    """Return the costs of the machine file, where there is one, else usual ones."""
    from p3s.machine.machinefile import Machine
    from p3s.predict.estimators.machine import library_for, machine_path
    from p3s.program.packing import measured, usual

    path = machine_path(study, machine)
    known = Machine.load(path) if path.exists() else None
    found = measured(known.network or {}) if known is not None else None
    return found or usual(library_for(study, known, setting).family)
