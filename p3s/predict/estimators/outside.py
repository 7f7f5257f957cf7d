"""Estimators that are programs outside of P3S: SimGrid's replay of the exported trace."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.predict.estimated import Communication
from p3s.predict.estimators.settings import Setting

if TYPE_CHECKING:
    from p3s.base.study import Study


def why_not(name: str, study: Study, n: int, machine: Path | None) -> str:
    """Return "" or why the simulator cannot be used."""
    module = _module(name)
    return (
        "it is not part of this installation"
        if module is None
        else str(module.why_not(study, n, machine))
    )


def communication(
    name: str,
    study: Study,
    n: int,
    machine: Path | None,
    setting: Setting,
    say: Callable[[str], None],
) -> Communication:
    """Return what the simulator says; see estimators.estimate."""
    found: Communication = _module(name).communication(study, n, machine, setting, say)
    return found


def _module(name: str) -> Any:
    """Return p3s.predict.estimators.NAME, None where there is none."""
    path = f"p3s.predict.estimators.{name}"
    return importlib.import_module(path) if importlib.util.find_spec(path) else None
