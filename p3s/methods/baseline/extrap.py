"""Run times in Extra-P's JSON Lines.

A line is {"params": {"p": 64}, "callpath": "main", "metric": "time", "value": 1.5}; call path and
metric may be left out, and the value may be a list of repeats (Extra-P's docs/file-formats.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.errors import P3SError
from p3s.base.text import joined

_TIMES = ("time", "runtime", "run time", "wall time", "seconds")
_SEPARATOR = "->"


def rows_of(text: str, path: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (place, row) of each run time: its parameters, seconds, and the call path.

    Of metrics only time is taken; of call paths the one that all others are in, where there is
    one. Errors: P3SError, one line with file and line.
    """
    points = [_point(line, f"{path}: line {k}") for k, line in _lines(text)]
    metrics = list(dict.fromkeys(point["metric"] for _, point in points))
    chosen = next((m for name in _TIMES for m in metrics if m.lower() == name), None)
    if chosen is None and len(metrics) == 1 and not metrics[0]:
        chosen = metrics[0]
    if chosen is None:
        raise P3SError(
            f"{path}: no metric is the time (there are: {joined(metrics)[:120]}); name it time"
        )
    points = [(place, point) for place, point in points if point["metric"] == chosen]
    paths = list(dict.fromkeys(point["callpath"] for _, point in points))
    outermost = [a for a in paths if all(_inside(b, a) for b in paths)]
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for place, point in points:
        if outermost and point["callpath"] != outermost[0]:
            continue
        label = {} if outermost else {"callpath": point["callpath"]}
        for value in point["value"]:
            rows.append((place, {**point["params"], **label, "seconds": value}))
    return rows


def _lines(text: str) -> list[tuple[int, str]]:
    return [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip()]


def _inside(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer + _SEPARATOR)


def _point(line: str, place: str) -> tuple[str, dict[str, Any]]:
    try:
        found = parse_json(line.encode())
    except ValueError as error:
        raise P3SError(f"{place}: is not JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("params"), dict):
        raise P3SError(f'{place}: is no point of Extra-P ({{"params": {{"p": 4}}, "value": 1.5}})')
    value = found.get("value")
    values = value if isinstance(value, list) else [value]
    if not values or not all(type(v) in (int, float) for v in values):
        raise P3SError(f"{place}: value is {value!r:.40}, no number or list of numbers")
    point = {key: str(found.get(key, "")) for key in ("callpath", "metric")}
    return place, {**point, "params": found["params"], "value": values}
