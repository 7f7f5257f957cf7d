"""Tables in files, and their footers."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from p3s.base.artefacts import DEEPEST, add_digest, parse_json, read_json, write_json
from p3s.base.errors import DamagedFile
from p3s.base.tables import (
    TableFacts,
    _bytes_of_texts,
    check_names,
    check_range,
    check_sums,
    checked_columns,
    codes,
    facts_of,
    numbers,
    open_table,
    parquet_bytes,
    read_rows,
    read_table,
    texts,
    values_of,
    whole,
)

_ONE_PAGE = {"write_batch_size": 4_000_000, "max_rows_per_page": 4_000_000}
HEAD = {"schema": "p3s.example", "schema_version": 1}


# ---- JSON --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        b"NaN",
        b"[Infinity]",
        b"1e400",
        b"[-1E+0999]",
        b"1" * 400 + b".0",
        b"9" * 41,
        b"170141183460469231731687303715884105728",
        b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
        b"[" * 200_000 + b"]" * 200_000,
        b'{"a": "\xff"}',
        b'["a\\n", ' + b"[" * 300 + b"]" * 300 + b"]",
    ],
)
def test_what_is_no_number_or_too_deep_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError) as err:
        parse_json(text)
    assert "\n" not in str(err.value) and len(str(err.value)) < 200


@pytest.mark.parametrize(
    "value",
    [
        [1e308, -1e-308, 0.1 + 0.2, 2**127 - 1, -(2**63)],
        {"a": '[[["', "b\\": "{{{", "c": ["\\", '\\"[', "\n"]},
        [[[]] * 300],
    ],
)
def test_what_is_unusual_is_read_as_it_is(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, 0.1], **HEAD, "digest": "of an earlier one"})
    assert read_json(path, "p3s.example") == {**HEAD, "a": [1, 0.1]}
    keys = list(json.loads(path.read_text()))
    assert keys == ["schema", "schema_version", "digest", "a"]
    write_json(tmp_path / "b.json", read_json(path, "p3s.example"))
    assert (tmp_path / "b.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("0.1", "0.2"),
        lambda text: text.replace('"a"', '"b"'),
        lambda text: json.dumps(json.loads(text)),
        lambda text: text + " ",
    ],
)
def test_a_file_that_was_changed_is_refused(change: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {**HEAD, "a": [1, 0.1]})
    path.write_text(change(path.read_text()))
    with pytest.raises(DamagedFile, match="changed since p3s wrote it") as err:
        read_json(path, "p3s.example")
    assert str(path) in str(err.value) and "\n" not in str(err.value)


def test_a_file_without_a_digest_is_read(tmp_path: Path) -> None:
    """Those of earlier versions, and those that people write or change."""
    path = tmp_path / "a.json"
    write_json(path, {**HEAD, "a": 1})
    lines = path.read_text().replace('"a": 1', '"a": 2').splitlines()
    path.write_text("\n".join(line for line in lines if "digest" not in line))
    assert read_json(path, "p3s.example") == {**HEAD, "a": 2}
    path.write_text(json.dumps({**HEAD, "a": 7}))
    assert read_json(path, "p3s.example")["a"] == 7
    path.write_bytes(add_digest(json.dumps({**HEAD, "a": 7}, indent=1).encode()))
    assert read_json(path, "p3s.example")["a"] == 7


# ---- tables ------------------------------------------------------------------------------------
def put(path: Path, **columns: object) -> dict[str, TableFacts]:
    data = parquet_bytes(pa.table(columns))
    path.write_bytes(data)
    rows = pq.ParquetFile(path).metadata.num_rows
    return {path.name: facts_of(data, rows, {"events": 6.0})}


def test_a_table_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    known = put(path, rank=[0, 1, 2], work=[0.5, 1.0, 2.0], op=["a", "b", "a"], l=[[1], [], [2]])
    kinds: dict[str, type] = {"rank": int, "work": float, "op": str, "l": list}
    assert read_table(path, kinds, known) == read_table(path, kinds)
    check_sums({"events": 6.0, "more": 1.0}, known)
    with pytest.raises(ValueError, match="the sum of events is 5, the head says 6"):
        check_sums({"events": 5.0}, known)


@pytest.mark.parametrize(
    "other",
    [
        {"rank": [0, 1], "work": [0.5, 1.0]},
        {"rank": [0, 1, 2], "work": [0.5, 1.0, 1.9]},
        {"rank": [0, 2, 1], "work": [0.5, 1.0, 2.0]},
        {"rank": [], "work": []},
    ],
)
def test_a_table_that_is_another_one_is_refused(other: dict[str, list], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    known = put(path, rank=[0, 1, 2], work=[0.5, 1.0, 2.0])
    put(path, **other)
    with pytest.raises(ValueError, match="damaged, or another table"):
        read_table(path, {"rank": int}, known)
    with pytest.raises(ValueError, match="not in its head"):
        read_table(path, {"rank": int}, {})
    rows = {path.name: facts_of(path.read_bytes(), 7)}
    with pytest.raises(ValueError, match="its head says 7"):
        read_table(path, {"rank": int}, rows)


@pytest.mark.parametrize(
    ("column", "kind", "says"),
    [
        ([1, None], int, "a value of c is missing"),
        ([1.0, 2.0], int, "not whole numbers"),
        (["1", "2"], float, "not numbers"),
        ([1.0, float("nan")], float, "no finite number"),
        ([1.0, float("inf")], float, "no finite number"),
        ([1, 2], str, "not text"),
        ([1, 2], list, "not lists"),
        ([[1], [None]], list, "a value of c is missing"),
    ],
)
def test_columns_are_of_their_type(column: list, kind: type, says: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    put(path, c=column)
    with pytest.raises(ValueError, match=says):
        read_table(path, {"c": kind})
    with pytest.raises(ValueError, match="no column d"):
        read_table(path, {"d": int})


def test_a_small_file_cannot_ask_for_much_memory(tmp_path: Path) -> None:
    """Equal rows take next to nothing, and 40 columns of four million 1.3 GB."""
    if "max_rows_per_page" not in signature(pq.write_table).parameters:
        pytest.skip("this pyarrow writes pages of 20,000 rows at most")
    path = tmp_path / "a.parquet"
    column = pa.array(range(1)).take(pa.array([0] * 4_000_000))
    table = pa.table({f"c{k}": column for k in range(40)})
    pq.write_table(table, path, compression="zstd", data_page_size=1 << 30, **_ONE_PAGE)
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="ask for"):
        open_table(path, None)


def test_tables_are_those_that_the_head_names(tmp_path: Path) -> None:
    known = put(tmp_path / "a.parquet", rank=[0])
    check_names([tmp_path / "a.parquet"], known)
    check_names([tmp_path / "b.parquet"], None)
    for there in ([], [tmp_path / "a.parquet", tmp_path / "b.parquet"]):
        with pytest.raises(ValueError, match="missing, or not in the head"):
            check_names(there, known)


def test_numbers_outside_of_their_range_are_named() -> None:
    check_range([], 0, 0, "a rank")
    check_range([0, 3], 0, 4, "a rank")
    for wrong in ([0, 4], [-1, 3], [10**12]):
        with pytest.raises(ValueError, match="a rank is"):
            check_range(wrong, 0, 4, "a rank")


def test_a_text_that_occurs_often_counts_as_often(tmp_path: Path) -> None:
    """A file has it once: 300,000 rows of 200,000 characters in 300 bytes ask for 60 GB."""
    path = tmp_path / "a.parquet"
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 300_000, pa.int32()), ["x" * 200_000])
    pq.write_table(pa.table({"c": texts}), path, compression="zstd")
    assert path.stat().st_size < 100_000
    for read in (lambda: open_table(path, None), lambda: read_rows(path)):
        with pytest.raises(ValueError, match="ask for"):
            read()


def test_entries_of_lists_count_as_values(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    many = 40_000_000
    entries = pa.array(range(1)).take(pa.array([0] * 1000)).cast(pa.int8())
    entries = pa.concat_arrays([entries] * (many // 1000))
    column = pa.ListArray.from_arrays(pa.array([0, many], pa.int32()), entries)
    pq.write_table(pa.table({"c": column}), path, compression="zstd")
    assert path.stat().st_size < 10_000
    with pytest.raises(ValueError, match="ask for"):
        open_table(path, None)


def test_rows_of_objects_take_more_memory_than_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    column = pa.array(range(1)).take(pa.array([0] * 10_000_000))
    pq.write_table(pa.table({"c": column}), path, compression="zstd")
    assert open_table(path, None).metadata.num_rows == 10_000_000
    with pytest.raises(ValueError, match="bytes ask for"):
        read_rows(path)


@pytest.mark.parametrize("column", [[["a"]], [{"a": "b"}]])
def test_texts_in_lists_and_records_are_refused(column: list, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": column}), path)
    with pytest.raises(ValueError, match="not lists of numbers"):
        open_table(path, None)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"n": 4, "name": "a", "inputs": {"x": 1.0}}, {"n": 8, "name": None, "inputs": None}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    assert read_rows(path) == rows


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.float64(), pa.uint16()])
def test_numbers_of_a_column_are_those_of_its_parts(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array([1, 2, 3], kind), pa.array([], kind), pa.array([4], kind)])
    for each in (column, column.slice(1, 2), column.slice(2), column.chunk(0).slice(1), column[:0]):
        found = numbers(each)
        assert found.dtype == kind.to_pandas_dtype() and found.tolist() == each.to_pylist()


def test_the_numbers_of_a_list_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes(pa.table({"events": [[1, 2], [], [3, 4, 5]]})))
    lists = read_table(path, {"events": list}).column("events")
    assert [numbers(each.values).tolist() for each in lists] == [[1, 2], [], [3, 4, 5]]


@pytest.mark.parametrize("rows", [[[1, None]], [[1], None], [[1, 2], [None], [3]]])
def test_lists_with_a_missing_value_are_refused(tmp_path: Path, rows: list[object]) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet_bytes(pa.table({"events": rows})))
    with pytest.raises(ValueError, match="a value of events is missing"):
        read_table(path, {"events": list})


def test_of_a_part_of_a_column_its_own_lists_are_checked() -> None:
    lists = pa.array([[None], [1, 2], [], [3, None]])
    assert checked_columns(pa.table({"l": lists.slice(1, 2)}), {"l": list}, "x")
    for part in (lists.slice(2), lists.slice(0, 2)):
        with pytest.raises(ValueError, match="x: a value of l is missing"):
            checked_columns(pa.table({"l": part}), {"l": list}, "x")


# ---- columns -----------------------------------------------------------------------------------
def test_texts_come_back_as_their_numbers() -> None:
    column = texts(["MPI_Send", "MPI_Récv", "never"], np.array([1, 0, 1, 1]))
    assert column.type == pa.string()
    assert column.to_pylist() == ["MPI_Récv", "MPI_Send", "MPI_Récv", "MPI_Récv"]
    code, names = codes(pa.chunked_array([column]))
    assert [names[each] for each in code] == column.to_pylist()
    with pytest.raises(ValueError, match="missing"):
        codes(pa.array(["a", None]))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("values", [["a", "bc", "a", "déf"], ["a", None, "bc"], [], [None]])
def test_texts_are_as_many_bytes_as_they_are_written_out(kind, values) -> None:
    column = pa.array(["x", *values, "y"], kind).dictionary_encode().slice(1, len(values))
    assert _bytes_of_texts(column) == sum(len(value.encode()) for value in values if value)


def test_whole_numbers_that_do_not_fit_are_refused() -> None:
    assert whole(np.array([-1, 7])).to_pylist() == [-1, 7]
    with pytest.raises(ValueError, match="32 bits"):
        whole(np.array([1 << 31]))


_ALONE = """
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from p3s.base.tables import (
    codes, numbers, open_table, parquet_bytes, read_rows, read_table, texts, whole
)

path, count = Path(sys.argv[1]), lambda: len(os.listdir("/proc/self/task"))
before = count()
table = read_table(path, {"events": list, "rank": int})
assert numbers(table.column("rank")).tolist() == [0, 1, 2]
assert "pyarrow.compute" not in sys.modules, "lists are checked without all functions of Arrow"
many = np.arange(300_000)
columns = {f"c{k}": whole(many) for k in range(8)}
columns["name"] = texts(("MPI_Send", "MPI_Recv"), many % 2)
path.write_bytes(parquet_bytes(pa.table(columns)))
table = read_table(path, {**dict.fromkeys(columns, int), "name": str})
assert numbers(table.column("c3"))[-1] == many[-1]
assert codes(table.column("name"))[1] == ("MPI_Send", "MPI_Recv")
assert "pandas" not in sys.modules
read_rows(path)
assert count() == before, "Arrow started threads"
open_table(path, None).read()
assert count() > before, "Arrow has none to start"
"""


def test_tables_are_written_and_read_without_threads_and_pandas(tmp_path: Path) -> None:
    """Arrow's own threads can abort or hang a process that ends while they do."""
    path = tmp_path / "table.parquet"
    small = pa.table({"events": [[1, 2], [], [3]], "rank": whole(np.arange(3))})
    path.write_bytes(parquet_bytes(small))
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


TABLE = pa.table(
    {
        "list": [[1, 2], [], None, [3, 4, 5]],
        "text": ["x", "y", None, "z"],
        "bool": [True, False, True, None],
    }
)


def written(table: pa.Table = TABLE, **how: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"compression": "zstd", "write_page_checksum": True},
        {"row_group_size": 2},
        {"store_schema": False},
        {"write_statistics": False, "use_dictionary": False},
    ],
)
def test_values_are_those_that_pyarrow_reads(how: dict[str, object]) -> None:
    data = written(**how)
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    there = sum(group.column(c).num_values for group in groups for c in range(group.num_columns))
    assert values_of(data) == there == 15


def test_columns_of_many() -> None:
    wide = pa.table({f"c{k}": np.arange(7) for k in range(40)})
    assert values_of(written(wide)) == 280


def test_damaged_footers_are_refused_or_read() -> None:
    """Whatever a byte says, there is a number or a ValueError."""
    data, rng, refused = written(), np.random.default_rng(7), 0
    for _ in range(4000):
        changed = bytearray(data)
        for at in rng.integers(len(data) // 2, len(data), rng.integers(1, 4)):
            changed[at] = rng.integers(256)
        try:
            assert values_of(bytes(changed)) >= 0
        except ValueError:
            refused += 1
    assert refused > 500
    for size in range(len(data)):
        with pytest.raises(ValueError, match="Parquet|footer"):
            values_of(data[:size])


def test_a_damaged_footer_does_not_end_the_process() -> None:
    """pyarrow's own way to the number of values does, with SIGABRT, where a histogram of levels is
    too long."""
    code = (
        "import io, sys, tempfile, pathlib\n"
        "import numpy as np, pyarrow as pa, pyarrow.parquet as pq\n"
        "from p3s.base.tables import open_table\n"
        "sink = io.BytesIO()\n"
        "pq.write_table(pa.table({'list': [[1, 2], [], [3]]}), sink)\n"
        "data, rng = sink.getvalue(), np.random.default_rng(3)\n"
        "path = pathlib.Path(tempfile.mkdtemp()) / 't.parquet'\n"
        "for k in range(1200):\n"
        "    changed = bytearray(data)\n"
        "    changed[int(rng.integers(len(data) - 900, len(data)))] = int(rng.integers(256))\n"
        "    path.write_bytes(bytes(changed))\n"
        "    try:\n"
        "        open_table(path, None)\n"
        "    except (ValueError, OSError, pa.ArrowException):\n"
        "        pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
