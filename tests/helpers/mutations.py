"""Changes to files that keep their form: values of JSON, cells and columns of tables, bytes."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

#: What a value of JSON is replaced by; text is taken as it is written, so 1e400 and NaN are there.
WRONG = (
    *("null", "true", "false", "0", "-1", "1", "99", "0.5", "-0.0", "1000000000000", "1e308"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e400", "-1e400"),
    *("NaN", "Infinity", '""', '"x"', '"0"', '"/etc/passwd"', "[]", "{}", "[[]]", "[{}]"),
    *('{"kind": "x"}', "[null]", "[-1]", '["num", 1, 0]', '"\\ud800"', "1" * 400, "[[[[[]]]]]"),
)
#: Levels of lists in one place.
DEEP = (70, 3_000, 200_000)
#: Cells of a table.
NUMBERS = (-1, 0, 1, 2, 10**6, 10**12, -(2**62), 2**31, 2**62)


class Raw(str):
    """Text that stands in a JSON file as it is."""


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, each in inner:
        found += [(*at, key), *_places(each, (*at, key))]
    return found


def _pick(rng: random.Random, value: Any) -> tuple[Any, ...]:
    """Return a random place: first how deep, so that long lists do not take all."""
    at: tuple[Any, ...] = ()
    while isinstance(value, (dict, list)) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        at, value = (*at, key), value[key]
        if rng.random() < 0.25:
            break
    return at


def _get(data: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        data = data[key]
    return data


def text_of(data: Any) -> str:
    """Return JSON text with Raw values as they are."""
    marks: dict[str, str] = {}

    def marked(value: Any) -> Any:
        if isinstance(value, Raw):
            marks[f"<raw {len(marks)}>"] = str(value)
            return f"<raw {len(marks) - 1}>"
        if isinstance(value, dict):
            return {k: marked(v) for k, v in value.items()}
        return [marked(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(marked(data), indent=1)
    for mark, raw in marks.items():
        text = text.replace(f'"{mark}"', raw)
    return text


def mutate_json(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return a JSON file with one or two changes, and what they are."""
    whole = json.loads(data)
    if rng.random() < 0.1:
        return mutate_bytes(rng, data)
    said = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        at = _pick(rng, whole)
        if not at or at == ("digest",):
            continue
        holder, key = _get(whole, at[:-1]), at[-1]
        value = holder[key]
        what = rng.choice(("wrong", "wrong", "wrong", "number", "gone", "more", "other", "deep"))
        if what == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            what = "wrong"
        if what == "wrong":
            holder[key] = Raw(rng.choice(WRONG))
        elif what == "number":
            changed = rng.choice((value + 1, value - 1, -value, value * 10, value * 0.9, value / 3))
            holder[key] = type(value)(changed)
        elif what == "gone":
            del holder[key]
        elif what == "more":
            _more(rng, holder, key)
        elif what == "other":
            holder[key] = copy.deepcopy(_get(whole, rng.choice(_places(whole))))
        else:
            depth = rng.choice(DEEP)
            holder[key] = Raw("[" * depth + "]" * depth)
        said.append(f"{what} {'.'.join(map(str, at))} {str(_seen(holder, key))[:40]}")
    return text_of(whole).encode(), "; ".join(said)


def _seen(holder: Any, key: Any) -> Any:
    try:
        return holder[key]
    except (KeyError, IndexError):
        return "-"


def _more(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[f"{key}s_"] = 1
        return
    what = rng.randrange(4)
    if what == 0:
        holder.insert(key, copy.deepcopy(holder[key]))
    elif what == 1:
        holder.reverse()
    elif what == 2:
        del holder[key:]
    else:
        rng.shuffle(holder)


def mutate_bytes(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return a file with bytes that changed, were lost or came from elsewhere."""
    out, what = bytearray(data), rng.randrange(6)
    at = rng.randrange(max(len(out), 1))
    if what == 0 and out:
        out[at] ^= 1 << rng.randrange(8)
    elif what == 1:
        del out[at:]
    elif what == 2:
        out[at : at + 512] = bytes(len(out[at : at + 512]))
    elif what == 3:
        del out[at : at + rng.randrange(1, 64)]
    elif what == 4:
        out[at:at] = rng.randbytes(rng.randrange(1, 64))
    else:
        out = bytearray(rng.choice((b"", b"\x00" * 64, b"[]", b"{}", b"PAR1", b"\xff\xfe{}")))
    return bytes(out), f"bytes {what} at {at}"


def mutate_table(rng: random.Random, data: bytes) -> tuple[bytes, str]:
    """Return a Parquet file with other cells, rows or columns, and what is other."""
    if rng.random() < 0.15:
        return mutate_bytes(rng, data)
    table = pq.read_table(io.BytesIO(data))
    name = rng.choice(table.column_names)
    change, what = rng.choice(list(_TABLES.items()))[::-1]
    try:
        made = change(rng, table, name)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        made, what = table.slice(0, table.num_rows // 2), "half"
    sink = io.BytesIO()
    pq.write_table(made, sink, compression="zstd")
    return sink.getvalue(), f"{what} {name}"


def _set(table: pa.Table, name: str, values: Any) -> pa.Table:
    at = table.column_names.index(name)
    return table.set_column(at, name, values if isinstance(values, pa.Array) else pa.array(values))


def _cell(rng: random.Random, table: pa.Table, name: str) -> pa.Table:
    values = table.column(name).to_pylist()
    kind = table.schema.field(name).type
    at = rng.randrange(len(values))
    wrong: Any = rng.choice(NUMBERS)
    if pa.types.is_floating(kind):
        wrong = rng.choice((-1.0, 0.0, 1e12, 1e308, float("inf"), float("nan"), 1e-300))
    elif pa.types.is_string(kind):
        wrong = rng.choice(("", "x", "MPI_Send", "send", "x" * 5000, None))
    elif pa.types.is_list(kind):
        wrong = rng.choice(([], None, [-1], [10**6], [2**31 - 1]))
    elif pa.types.is_int32(kind):
        wrong = max(min(wrong, 2**31 - 1), -(2**31))
    values[at] = None if rng.random() < 0.1 else wrong
    return _set(table, name, pa.array(values, kind))


def _less(rng: random.Random, table: pa.Table, name: str) -> pa.Table:
    values = table.column(name).to_numpy().copy()
    some = rng.random()
    chosen = np.random.default_rng(rng.randrange(2**31)).random(len(values)) < some
    values[chosen] = values[chosen] * rng.choice((0.9, 2, 0, -1))
    return _set(table, name, pa.array(values, table.schema.field(name).type))


def _swapped(rng: random.Random, table: pa.Table, name: str) -> pa.Table:
    other = rng.choice(table.column_names)
    return _set(table, name, table.column(other).combine_chunks())


def _shuffled(rng: random.Random, table: pa.Table, name: str) -> pa.Table:
    del name
    order = list(range(table.num_rows))
    rng.shuffle(order)
    return table.take(order)


_TABLES: dict[str, Callable[[random.Random, pa.Table, str], pa.Table]] = {
    "cell": _cell,
    "cell again": _cell,
    "less": _less,
    "swapped": _swapped,
    "shuffled": _shuffled,
    "no column": lambda _, t, name: t.drop_columns([name]),
    "text": lambda _, t, name: _set(t, name, t.column(name).cast(pa.string()).combine_chunks()),
    "real": lambda _, t, name: _set(t, name, t.column(name).cast(pa.float64()).combine_chunks()),
    "half": lambda _, t, name: t.slice(0, t.num_rows // 2),
    "no rows": lambda _, t, name: t.slice(0, 0),
    "twice": lambda _, t, name: pa.concat_tables([t, t]),
    "renamed": lambda _, t, name: t.rename_columns(
        [n + "_" if n == name else n for n in t.column_names]
    ),
    "no metadata": lambda _, t, name: t.replace_schema_metadata({}),
    "metadata": lambda _, t, name: t.replace_schema_metadata(
        {k: v.replace(b"1", b"-1") for k, v in (t.schema.metadata or {}).items()}
    ),
}
