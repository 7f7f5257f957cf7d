"""Studies traced with several numbers of threads: which there are, and the one to rest on."""

from __future__ import annotations

from p3s.base.settings import THREADS, alike_in_threads, parameters, parse_setting, value_study
from p3s.base.study import Study


def base_of(root: Study) -> int:
    """Return the number of threads whose runs the equations of messages are from.

    As :func:`p3s.base.settings.alike_in_threads`; 0 where there are no runs.
    """
    found = alike_in_threads(root)
    return int(found[0][0][THREADS]) if found and THREADS in found[0][0] else 0


def with_threads(rest: str, threads: int) -> str:
    """Return the name of a setting: that of the input's values, and threads."""
    return f"{rest},{THREADS}={threads}" if rest else f"{THREADS}={threads}"


def at_threads(root: Study, rest: str, threads: int) -> Study:
    """Return the study at values of the input and a number of threads; it need not be there."""
    setting = {**(parse_setting(rest) if rest else {}), **parse_setting(f"{THREADS}={threads}")}
    return value_study(root, {name: setting[name] for name in parameters(root)})
