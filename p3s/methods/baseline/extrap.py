"""Run times in Extra-P's formats: text, JSON and JSON Lines (its docs/file-formats.md).

A line of JSON Lines is {"params": {"p": 64}, "callpath": "main", "metric": "time", "value": 1.5};
call path and metric may be left out, and the value may be a list of repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.errors import P3SError
from p3s.base.foreign_formats import EXTRAP_JSON, EXTRAP_LINES, EXTRAP_TEXT, Format
from p3s.base.text import join_words

_TIMES = ("time", "runtime", "run time", "wall time", "seconds")
_SEPARATOR = "->"


@dataclass(frozen=True)
class _Point:
    """Repeated values of a metric of a call path at a point of the parameters."""

    place: str
    params: Mapping[str, Any]
    callpath: str
    metric: str
    values: Sequence[float]


def rows_of(text: str, path: Path, form: Format) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (place, row) of each run time: its parameters, seconds, and the call path.

    Of metrics only time is taken; of call paths the one that all others are in, where there is
    one. Errors: P3SError, one line with file and line or measurement.
    """
    points = list(_READERS[form](text, path))
    metrics = list(dict.fromkeys(point.metric for point in points))
    time = next((m for name in _TIMES for m in metrics if m.lower() == name), None)
    if time is None and len(metrics) == 1 and not metrics[0]:
        time = metrics[0]
    if time is None:
        raise P3SError(
            f"{path}: no metric is the time (there are: {join_words(metrics)[:120]}); name it time"
        )
    points = [point for point in points if point.metric == time]
    paths = list(dict.fromkeys(point.callpath for point in points))
    outermost = [a for a in paths if all(_inside(b, a) for b in paths)]
    rows: list[tuple[str, Mapping[str, Any]]] = []
    for point in points:
        if outermost and point.callpath != outermost[0]:
            continue
        label = {} if outermost else {"callpath": point.callpath}
        rows += [(point.place, {**point.params, **label, "seconds": v}) for v in point.values]
    return rows


def _inside(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith(outer + _SEPARATOR)


def _of_lines(text: str, path: Path) -> Iterator[_Point]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            point = parse_json(line.encode())
        except ValueError as error:
            raise P3SError(f"{place}: is not JSON") from error
        if not isinstance(point, dict) or not isinstance(point.get("params"), dict):
            raise P3SError(
                f'{place}: is no point of Extra-P ({{"params": {{"p": 4}}, "value": 1.5}})'
            )
        callpath, metric = (str(point.get(key, "")) for key in ("callpath", "metric"))
        yield _Point(
            f"line {number}", point["params"], callpath, metric, _values(point.get("value"), place)
        )


def _values(value: Any, place: str) -> list[float]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(type(v) in (int, float) for v in values):
        raise P3SError(f"{place}: value is {value!r:.40}, no number or list of numbers")
    return values


def _of_text(text: str, path: Path) -> Iterator[_Point]:
    """Yield the points of the text format: DATA lines stand in the order of POINTS."""
    names: list[str] = []
    points: list[list[float]] = []
    metric = callpath = ""
    row = 0
    for number, line in enumerate(text.splitlines(), 1):
        key, _, rest = line.strip().partition(" ")
        rest = " ".join(rest.split())
        place = f"{path}: line {number}"
        if not key or line.startswith("#"):
            continue
        if key == "PARAMETER":
            names += rest.split()
        elif key == "POINTS":
            points += _coordinates(rest, len(names), place)
        elif key == "METRIC":
            metric, row = rest, 0
        elif key == "REGION":
            callpath, row = rest, 0
        elif key == "DATA":
            if row >= len(points):
                raise P3SError(f"{place}: more DATA lines than the {len(points)} POINTS")
            params = dict(zip(names, points[row], strict=True))
            yield _Point(f"line {number}", params, callpath, metric, _floats(rest, place))
            row += 1
        else:
            raise P3SError(
                f"{place}: {key[:20]!r} is none of PARAMETER, POINTS, METRIC, REGION, DATA"
            )


def _coordinates(text: str, parameters: int, place: str) -> list[list[float]]:
    """Return the points of a line: (4 10) (8 10), or plain numbers of a single parameter."""
    groups = re.findall(r"\(([^()]*)\)", text) if "(" in text else text.split()
    points = [_floats(group, place) for group in groups]
    if not parameters or any(len(point) != parameters for point in points):
        raise P3SError(f"{place}: POINTS need a value for each of {parameters} parameters")
    return points


def _floats(text: str, place: str) -> list[float]:
    try:
        values = [float(word) for word in text.replace(",", " ").split()]
    except ValueError as error:
        raise P3SError(f"{place}: {text[:40]!r} are no numbers") from error
    if not values:
        raise P3SError(f"{place}: has no numbers")
    return values


def _of_json(text: str, path: Path) -> Iterator[_Point]:
    """Yield the measurements of Extra-P's JSON, of the present or the older form."""
    try:
        data = parse_json(text.encode())
        yield from (_of_tables if "callpaths" in data else _of_tree)(data, path)
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        raise P3SError(
            f"{path}: is no JSON of Extra-P ({type(error).__name__}: {str(error)[:60]})"
        ) from error


def _of_tree(data: Mapping[str, Any], path: Path) -> Iterator[_Point]:
    names = [str(name) for name in data["parameters"]]
    for callpath, metrics in data["measurements"].items():
        for metric, measurements in metrics.items():
            for number, each in enumerate(measurements, 1):
                place = f"{callpath}, {metric}, measurement {number}"
                params = dict(zip(names, each["point"], strict=True))
                values = _values(each["values"], f"{path}: {place}")
                yield _Point(place, params, callpath, metric, values)


def _of_tables(data: Mapping[str, Any], path: Path) -> Iterator[_Point]:
    """Yield the measurements of the older form: tables of which each row has an id."""
    names, callpaths, metrics = (
        {row["id"]: str(row["name"]) for row in data[key]}
        for key in ("parameters", "callpaths", "metrics")
    )
    points = {
        row["id"]: {
            names[pair["parameter_id"]]: float(pair["parameter_value"])
            for pair in row["parameter_value_pairs"]
        }
        for row in data["coordinates"]
    }
    for number, each in enumerate(data["measurements"], 1):
        place = f"measurement {number}"
        yield _Point(
            place,
            points[each["coordinate_id"]],
            callpaths[each["callpath_id"]],
            metrics[each["metric_id"]],
            _values(each["value"], f"{path}: {place}"),
        )


_READERS = {EXTRAP_TEXT: _of_text, EXTRAP_LINES: _of_lines, EXTRAP_JSON: _of_json}
