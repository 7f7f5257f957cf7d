"""Reading and writing run times: CSV, JSON, Parquet, Extra-P's formats, a study's own."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from p3s.base.artefacts import parse_json
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.foreign_formats import EXTRAP_LINES, ReadBy, format_of, refuse_foreign
from p3s.base.tables import read_rows
from p3s.methods.baseline.times import COMPONENTS, TOTAL, RunTime, Times, check_time

TIMES_SCHEMA = "p3s.times"
TIMES_VERSION = 1
#: Runs in a file, at most: more are no run times but a trace.
_MOST = 1_000_000
COUNT = ("n", "np", "q", "p", "count", "nprocs", "procs", "processes", "ranks")
TIME = ("seconds", "time", "t", "run_time", "runtime", "wall", "elapsed")
#: Parameters of Extra-P that are a process count; n is the size of the input there.
_EXTRAP_COUNT = tuple(name for name in ("p", *COUNT) if name != "n")
#: What a unit is in seconds.
UNITS = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "h": 3600.0,
}
_REPEAT = ("repeat", "rep", "r", "repetition")
_LABELS = ("app", "program", "machine", "series", "name")
_TRUE, _FALSE = frozenset({"1", "true", "yes", ""}), frozenset({"0", "false", "no", "x"})
#: Columns that say how a run went; they tell no series apart.
_ABOUT = frozenset(
    {"exit_code", "valid", "started", "start", "date", "kind", "why", "unit", "component", "phase"}
)
_VALUE = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([a-zA-Zµ]*)")
#: Times as batch systems print them: minutes:seconds, hours and days before them.
_CLOCK = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_CLOCK_SECONDS = (86400, 3600, 60, 1)
_HEAD = re.compile(r"(.*?)(?:[\s_]+|\s*[\[(]\s*)(s|sec|seconds|ms|us|µs|ns|min|h)\s*[\])]?")

Row = Mapping[str, Any]


def read(path: Path, processes: str = "") -> Times:
    """Read run times from a study directory or a file, which is CSV where it is nothing else.

    ``processes``: the column, or Extra-P's parameter, of the process count; empty: by its name.

    Errors: P3SError, one line with file and row, for anything that is no list of run times.
    """
    path = Path(path)
    if path.is_dir():
        from p3s.methods.baseline.fromstudy import times_in

        return times_in(path)
    counts: Sequence[str] = (processes,) if processes else COUNT
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return Times(tuple(_runs(_parquet(path), path, counts)))
    try:
        data = path.read_bytes()
        refuse_foreign(path, ReadBy.TIMES, data)
        text = data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise P3SError(f"{path}: not there") from error
    except (OSError, UnicodeDecodeError) as error:
        raise P3SError(f"{path}: is no text that can be read as run times") from error
    form = EXTRAP_LINES if suffix == ".jsonl" else format_of(text.encode())
    if form is not None:
        from p3s.methods.baseline.extrap import rows_of

        counts = (processes,) if processes else _EXTRAP_COUNT
        return Times(tuple(_runs(rows_of(text, path, form), path, counts)))
    if suffix == ".json" or text.lstrip()[:1] in ("{", "["):
        return _json(text, path, counts)
    return Times(tuple(_runs(_csv(text, path), path, counts)))


def _csv(text: str, path: Path) -> list[tuple[str, Row]]:
    lines = _table_lines(text)
    if len(lines) < 2:
        raise P3SError(f"{path}: no run times: a line of column names and one per run are needed")
    try:
        dialect: Any = csv.Sniffer().sniff("\n".join(lines[:20]), ",;\t ")
    except csv.Error:
        dialect = csv.excel
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), dialect, skipinitialspace=True))
    except csv.Error as error:
        raise P3SError(f"{path}: cannot be read as CSV: {error}") from error
    head = [name.strip() for name in rows[0]]
    if len(set(head)) != len(head):
        raise P3SError(f"{path}: two columns have the same name")
    labelled_rows: list[tuple[str, Row]] = []
    for number, cells in enumerate(rows[1:], 2):
        if len(cells) != len(head):
            raise P3SError(
                f"{path}: row {number} has {len(cells)} columns, the first row names {len(head)}"
            )
        labelled_rows.append((f"row {number}", dict(zip(head, cells, strict=True))))
    return labelled_rows


def _table_lines(text: str) -> list[str]:
    """Return the head of a table and its rows; a comment before numbers is their head."""
    every = [line for line in text.splitlines() if line.strip()]
    first = next((k for k, line in enumerate(every) if not line.startswith("#")), len(every))
    lines = [line for line in every[first:] if not line.startswith("#")]
    words = re.split(r"[,;\s]+", every[first - 1].lstrip("# ").lower()) if first else []
    if lines and first and lines[0].lstrip()[:1].isdigit() and set(words) & {*COUNT}:
        lines.insert(0, every[first - 1].lstrip("# "))
    return lines


def _json(text: str, path: Path, counts: Sequence[str]) -> Times:
    try:
        content = parse_json(text.encode())
    except ValueError as error:
        raise DamagedFile(f"{path}: is not JSON ({' '.join(str(error).split())[:100]})") from error
    facts: dict[str, Any] = {}
    if isinstance(content, dict):
        schema = content.get("schema", TIMES_SCHEMA)
        if schema != TIMES_SCHEMA or content.get("schema_version", TIMES_VERSION) != TIMES_VERSION:
            raise P3SError(
                f"{path}: is no {TIMES_SCHEMA} file of version {TIMES_VERSION} "
                f"(schema: {schema!r:.40})"
            )
        facts = {
            key: content[key]
            for key in ("command", "dims", "machine", "created", "stdin")
            if key in content
        }
        content = content.get("runs")
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise P3SError(
            f"{path}: holds no list of runs: "
            '[{"n": 4, "repeat": 0, "seconds": 1.5}, ...], alone or as "runs"'
        )
    rows = [(f"run {i}", _flat(row)) for i, row in enumerate(content, 1)]
    return Times(tuple(_runs(rows, path, counts)), (), facts)


def _flat(row: Row) -> Row:
    inputs = row.get("inputs")
    if not isinstance(inputs, dict):
        return row
    return {**{key: value for key, value in row.items() if key != "inputs"}, **inputs}


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file; P3SError for another one."""
    import pyarrow as arrow

    try:
        return read_rows(path)
    except (OSError, ValueError, arrow.ArrowException) as error:
        raise P3SError(f"{path}: cannot be read as Parquet") from error


def _parquet(path: Path) -> list[tuple[str, Row]]:
    rows = parquet_rows(path)
    if len(rows) > _MOST:
        raise P3SError(f"{path}: {len(rows):,} rows, more than {_MOST:,}")
    labelled_rows = []
    for i, row in enumerate(rows, 1):
        inputs_text = row.get("inputs")
        if isinstance(inputs_text, str) and inputs_text.strip():
            try:
                row["inputs"] = parse_json(inputs_text.encode())
            except ValueError as error:
                raise P3SError(f"{path}: row {i}: inputs is no JSON object") from error
        labelled_rows.append((f"row {i}", _flat(row)))
    return labelled_rows


# ---- rows ----------------------------------------------------------------------------------


def _runs(rows: Sequence[tuple[str, Row]], path: Path, counts: Sequence[str]) -> list[RunTime]:
    """Return the run of each row; ``counts``: names that the column of process counts may have."""
    if not rows:
        raise P3SError(f"{path}: holds no run")
    if len(rows) > _MOST:
        raise P3SError(f"{path}: {len(rows):,} runs, more than {_MOST:,}")
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    count = _count_column(names, counts, path)
    time, factor = _time_column(names, path)
    repeat = next((name for name in names if name.lower() in _REPEAT), None)
    rest = [
        name for name in names if name not in (count, time, repeat) and name.lower() not in _ABOUT
    ]
    inputs, labels = _kinds(rows, rest)
    out: list[RunTime] = []
    units: dict[str, str] = {}
    turns: dict[Any, int] = {}
    for place, row in rows:
        where = f"{path}: {place}"
        n = _count(row.get(count), f"{where}: {count}")
        seconds, why = _seconds(row, time, factor, where, units)
        if len(units) > 1:
            (one, first), (other, _) = list(units.items())[:2]
            raise P3SError(
                f"{where}: the time is in {other}, that of {first} in {one}; "
                "give all run times in one unit"
            )
        why = _invalid(row, where) or why
        component = str(row.get("component") or TOTAL)
        if component not in COMPONENTS:
            raise P3SError(
                f"{where}: component {component!r:.40} is none of " + ", ".join(COMPONENTS)
            )
        values = tuple((name, _number(row.get(name), f"{where}: {name}")) for name in inputs)
        named = tuple((name, str(row.get(name) or "")) for name in labels)
        key = (n, values, named, component)
        turns[key] = turns.get(key, -1) + 1
        turn = turns[key] if repeat is None else _count(row.get(repeat), f"{where}: {repeat}", 0)
        out.append(
            RunTime(
                n,
                seconds,
                turn,
                values,
                named,
                component,
                why,
                _code(row.get("exit_code")),
                str(row.get("started") or ""),
            )
        )
    return out


def _count_column(names: Sequence[str], accepted: Sequence[str], path: Path) -> str:
    columns = [name for name in names if name.lower() in accepted or name in accepted]
    if not columns:
        raise P3SError(
            f"{path}: no column for the process count; name it: --processes COLUMN "
            f"(there are: {', '.join(names)[:120]})"
        )
    if len(columns) > 1:
        raise P3SError(
            f"{path}: columns {columns[0]} and {columns[1]} are both the process count; choose "
            f"one: --processes {columns[0]}"
        )
    return columns[0]


def _time_column(names: Sequence[str], path: Path) -> tuple[str, float | None]:
    """Return the column of times and what one of it is in seconds, None where it does not say."""
    units_of: dict[str, float | None] = {}
    for name in names:
        low = name.lower()
        if low in UNITS and low not in ("h", "min"):
            units_of[name] = UNITS[low]
        elif low in TIME:
            units_of[name] = None
        elif (match := _HEAD.fullmatch(low)) and match[1] in TIME:
            units_of[name] = UNITS[match[2]]
    if not units_of:
        raise P3SError(
            f"{path}: no column for the time; name it seconds (there are: {', '.join(names)[:120]})"
        )
    if len(units_of) > 1:
        one, other = list(units_of)[:2]
        mixed = ", in different units" if len(set(units_of.values())) > 1 else ""
        raise P3SError(f"{path}: columns {one} and {other} are both times{mixed}; leave one out")
    return next(iter(units_of.items()))


def _seconds(
    row: Row, time: str, factor: float | None, where: str, units: dict[str, str]
) -> tuple[float | None, str]:
    """Return the time in seconds, or None and why there is none; notes its unit in ``units``."""
    value = row.get(time)
    place = where.rpartition(": ")[2]
    if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
        return None, f"no time in {place}"
    unit = str(row.get("unit") or "").strip()
    clock = _CLOCK.fullmatch(value.strip()) if isinstance(value, str) else None
    if clock is not None:
        parts = zip(clock.groups("0"), _CLOCK_SECONDS, strict=True)
        value, unit = sum(float(number) * size for number, size in parts), unit or "s"
    elif isinstance(value, str):
        match = _VALUE.fullmatch(value.strip())
        if match is None:
            raise P3SError(f"{where}: {value.strip()!r:.40} is no time")
        value, unit = float(match[1]), match[2] or unit
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise P3SError(f"{where}: {value!r:.40} is no time")
    if unit and unit not in UNITS:
        raise P3SError(f"{where}: {unit!r:.20} is no unit of time; one of {', '.join(UNITS)}")
    if unit and factor is not None and UNITS[unit] != factor:
        raise P3SError(f"{where}: the column {time} says another unit than the time ({unit})")
    size = UNITS[unit] if unit else factor or 1.0
    name = next(name for name, each in UNITS.items() if each == size)
    units.setdefault(name, place)
    seconds = float(value) * size
    check_time(seconds, where)
    return seconds, ""


_MISSING = frozenset({"", "x", "-", "nan", "na", "n/a", "none", "null"})


def _invalid(row: Row, where: str) -> str:
    """Return why a row says that its run does not count, or nothing."""
    if row.get("why"):
        return str(row["why"])
    code = _code(row.get("exit_code"))
    if code:
        return f"exit code {code}"
    valid = str(row.get("valid", "")).strip().lower()
    if valid in _FALSE:
        return "marked as not valid"
    if valid not in _TRUE:
        raise P3SError(f"{where}: valid is {valid!r:.20}, neither true nor false")
    return ""


def _code(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _count(value: Any, where: str, least: int = 1) -> int:
    number = _number(value, where)
    if number != int(number) or not least <= number <= 1 << 24:
        raise P3SError(f"{where} is {value!r:.40}, no whole number of at least {least}")
    return int(number)


def _number(value: Any, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise P3SError(f"{where} is {value!r:.40}, no number") from error
    if not math.isfinite(number):
        raise P3SError(f"{where} is {value!r:.40}, no number")
    return number


def _kinds(rows: Sequence[tuple[str, Row]], names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which other columns are numbers (inputs), and which tell series apart (labels)."""
    inputs: list[str] = []
    labels: list[str] = []
    for name in names:
        values = [row.get(name) for _, row in rows]
        numeric = name.lower() not in _LABELS and all(map(_is_number, values))
        (inputs if numeric else labels).append(name)
    return inputs, labels


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


# ---- writing -------------------------------------------------------------------------------


def as_json(times: Times) -> dict[str, Any]:
    """Return run times as a JSON object (p3s.times)."""
    return {
        "schema": TIMES_SCHEMA,
        "schema_version": TIMES_VERSION,
        **times.facts,
        "runs": [_as_row(run) for run in times.runs],
    }


def write(path: Path, times: Times) -> None:
    """Write run times, whole or not at all: CSV where the name says so, else JSON (p3s.times)."""
    from p3s.base.artefacts import write_bytes, write_json

    if Path(path).suffix.lower() == ".csv":
        rows = [_as_row(run) for run in times.runs]
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_bytes(path, text.getvalue().encode())
        return
    write_json(path, as_json(times))


def _as_row(run: RunTime) -> dict[str, Any]:
    return {
        **dict(run.labels),
        **dict(run.inputs),
        "n": run.n,
        "repeat": run.repeat,
        "seconds": run.seconds,
        "exit_code": run.exit_code,
        "started": run.started,
        "why": run.why,
        **({"component": run.component} if run.component != TOTAL else {}),
    }
