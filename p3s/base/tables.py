"""Tables beside a head: written with their digest, read back checked, their size known unread."""

from __future__ import annotations

import functools
import io
import math
import struct
import tokenize
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.artefacts import digest_of, file_bytes, plain_file, unusable, write_bytes
from p3s.base.errors import DamagedFile
from p3s.base.serialise import ShapeError, from_data

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_MAGIC = b"PAR1"
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    0, 1, 2, 3, 7, 8, 9, 10, 11, 12,
)  # fmt: skip
_INTEGERS = (4, 5, 6)
#: Fields that lead to the number of values of a column.
_PATH = (4, 1, 3, 5)
_MOST_DEEP, _MOST_BYTES = 32, 10
_SHORT = 15


def values_of(data: bytes) -> int:
    """Return the values of all columns of a Parquet file, entries of lists each for itself.

    Raises ValueError where the footer is none.
    """
    if len(data) < 12 or data[-4:] != _MAGIC:
        raise ValueError("it is no Parquet file")
    size = int.from_bytes(data[-8:-4], "little")
    if size > len(data) - 12:
        raise ValueError("its footer is larger than the file")
    try:
        return _Footer(data[len(data) - 8 - size : -8]).structure(_PATH, 0)
    except IndexError:
        raise ValueError("its footer is cut off") from None


class _Footer:
    """Bytes that are read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def structure(self, path: tuple[int, ...], depth: int) -> int:
        """Read a structure; return the sum of the numbers behind a path of fields."""
        if depth > _MOST_DEEP:
            raise ValueError("its footer is nested too deeply")
        total, field = 0, 0
        while (head := self._byte()) != _STOP:
            field = field + (head >> 4) if head >> 4 else self._number()
            path_below = path[1:] if path and path[0] == field else None
            total += self._value(head & 15, path_below, depth)
        return total

    def _value(self, kind: int, path: tuple[int, ...] | None, depth: int) -> int:
        """Read a value; return the sum behind the rest of a path, 0 where it is on none."""
        if kind in (_TRUE, _FALSE):
            return 0
        if kind in _INTEGERS:
            number = self._number()
            return max(number, 0) if path == () else 0
        if kind == _STRUCT:
            return self.structure(path or (), depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < _SHORT else self._varint()
            return sum(self._element(head & 15, path, depth) for _ in range(self._fits(size)))
        if kind == _MAP:
            size = self._fits(self._varint())
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._element(kinds >> 4, None, depth)
                self._element(kinds & 15, None, depth)
            return 0
        self._skip({_BYTE: 1, _DOUBLE: 8}.get(kind) if kind != _BINARY else self._varint())
        return 0

    def _element(self, kind: int, path: tuple[int, ...] | None, depth: int) -> int:
        if depth > _MOST_DEEP:
            raise ValueError("its footer is nested too deeply")
        if kind in (_TRUE, _FALSE):  # in lists these are bytes
            self._skip(1)
            return 0
        return self._value(kind, path, depth + 1)

    def _fits(self, size: int) -> int:
        """Return how many elements a list has; each takes a byte at least."""
        if size > len(self._data) - self._at:
            raise ValueError("a list of its footer is longer than the footer")
        return size

    def _skip(self, size: int | None) -> None:
        if size is None:
            raise ValueError("its footer has a value of an unknown type")
        if self._fits(size):
            self._at += size

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _varint(self) -> int:
        number = 0
        for k in range(_MOST_BYTES):
            byte = self._byte()
            number |= (byte & 127) << 7 * k
            if byte < 128:
                return number
        raise ValueError("a number of its footer is too long")

    def _number(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)


#: Key of a head under which its tables are.
TABLES = "tables"
#: Memory that the table of a file may ask for: so much, and beyond so many times the file's size.
ROOM, TIMES_ITS_SIZE = 1 << 28, 4096
_CELL_BYTES = 8
#: Of a value as an object of Python, in a list or a dictionary.
_OBJECT_BYTES = 64
#: Rows whose texts are measured at a time.
_TEXT_ROWS = 1 << 16
#: How far sums of real numbers may be off by the order they are added in.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class TableFacts:
    """What a head says of a table: rows, digest of the file, sums over the rows by name."""

    rows: int
    digest: str
    sums: Mapping[str, float] = field(default_factory=dict)


def facts_of(data: bytes, rows: int, sums: Mapping[str, float] | None = None) -> TableFacts:
    """Return what a head is to say of a table; ``data``: its file."""
    return TableFacts(rows, digest_of(data), dict(sums or {}))


def column(values: np.ndarray) -> pa.Array:
    """Return numbers as a column of a table, which uses their memory.

    pyarrow's own function imports pandas where that is installed: half a second.
    """
    import numpy as np
    import pyarrow as pa

    flat = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(flat.dtype)
    return pa.Array.from_buffers(kind, len(flat), [None, pa.py_buffer(flat)])


def whole(values: np.ndarray) -> pa.Array:
    """Return whole numbers as a column of int32; raises ValueError where one does not fit."""
    import numpy as np

    narrow = values.astype(np.int32)
    if not np.array_equal(narrow, values):
        raise ValueError(f"{np.abs(values).max()} does not fit into a column of 32 bits")
    return column(narrow)


def texts(values: Sequence[str], codes: np.ndarray) -> pa.Array:
    """Return a column of texts: of each row that of ``values`` whose number its code is."""
    import numpy as np
    import pyarrow as pa

    each = [value.encode() for value in values]
    ends = np.cumsum([0, *map(len, each)], dtype=np.int32)
    table = pa.StringArray.from_buffers(len(each), pa.py_buffer(ends), pa.py_buffer(b"".join(each)))
    coded = pa.DictionaryArray.from_arrays(column(codes.astype(np.int32)), table)
    return coded.cast(pa.string())


def codes(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a column of texts as numbers and the texts that they stand for.

    Raises ValueError where one is missing.
    """
    import numpy as np
    import pyarrow as pa

    encoded = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not pa.types.is_dictionary(encoded.type):
        encoded = encoded.dictionary_encode()
    if encoded.null_count:
        raise ValueError("a name is missing")
    named = tuple(str(name) for name in encoded.dictionary.to_pylist())
    return numbers(encoded.indices).astype(np.int64), named


def lists(values: Sequence[np.ndarray]) -> pa.Array:
    """Return arrays of int32 as a column of lists."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum([0, *map(len, values)])
    if int(ends[-1]) > np.iinfo(np.int32).max:
        raise ValueError("more numbers than a column of lists can hold")
    flat = np.concatenate(values) if values else np.zeros(0)
    return pa.ListArray.from_arrays(column(ends.astype(np.int32)), column(flat.astype(np.int32)))


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as a Parquet file with checksums."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def write_columns(
    path: Path,
    columns: Mapping[str, np.ndarray | list[np.ndarray]],
    sums: Mapping[str, float] | None = None,
    head: dict[bytes, str] | None = None,
) -> TableFacts:
    """Write numbers, and lists of int32, as a table; return what a head is to say of it.

    head: metadata of the file itself.
    """
    import pyarrow as pa

    arrays = {k: lists(v) if isinstance(v, list) else column(v) for k, v in columns.items()}
    table = pa.table(arrays, metadata=head)
    data = parquet_bytes(table)
    write_bytes(path, data)
    return facts_of(data, table.num_rows, sums)


def read_columns(
    path: Path, columns: Mapping[str, type], facts: Mapping[str, TableFacts] | None = None
) -> dict[str, np.ndarray]:
    """Return columns of numbers of a table, checked as :func:`read_table` does."""
    table = read_table(path, columns, facts)
    return {name: numbers(table.column(name)) for name in columns}


def known_tables(head: Mapping[str, Any]) -> dict[str, TableFacts] | None:
    """Return what a head says of its tables, by file; None where it is older than that.

    Raises ValueError where it is damaged.
    """
    if TABLES not in head:
        return None
    try:
        return dict(from_data(Mapping[str, TableFacts], head[TABLES]))  # type: ignore[type-abstract]
    except ShapeError as err:
        raise ValueError(f"{TABLES}: {err}") from err


class OtherTable(ValueError):
    """A table is not the one that its head was written with."""


def unusable_tables(path: Path, err: Exception, remedy: str) -> DamagedFile:
    """Return the error of an artefact with tables beside it: see p3s.base.artefacts.unusable.

    remedy: what makes them again, where a table is missing or is not the one that the head knows.
    """
    import pyarrow as pa

    if isinstance(err, OSError | pa.ArrowException | OtherTable):
        why = " ".join(str(err).split())[:120] or type(err).__name__
        return DamagedFile(f"{path}: damaged ({why}); {remedy}")
    return unusable(path, err, remedy)


def check_names(paths: Iterable[Path], facts: Mapping[str, TableFacts] | None) -> None:
    """Raise ValueError where tables that a head knows are missing, or there are others."""
    names = {path.name for path in paths}
    if facts is not None and names != set(facts):
        raise ValueError(f"{min(names ^ set(facts))} is missing, or not in the head")


def columns_of(path: Path) -> list[str]:
    """Return the names of a table's columns; OSError where it is no file, pyarrow's errors."""
    import pyarrow.parquet as pq

    with plain_file(path) as file:
        return list(pq.read_schema(file).names)


def open_table(
    path: Path,
    facts: Mapping[str, TableFacts] | None,
    coded: Iterable[str] = (),
    value_bytes: int = _CELL_BYTES,
) -> Any:
    """Return a table's file, opened by pyarrow, checked: digest, rows, the memory it asks for.

    ``coded``: columns of texts that are read as numbers and the texts that they stand for;
    ``value_bytes``: memory that a value takes at least.

    Read it with ``use_threads=False``: Arrow's threads can abort or hang a process that ends while
    they do (apache/arrow 34314 and 50482), after all its work. Raises ValueError for what is
    damaged, pyarrow's errors, OSError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = file_bytes(path)
    if facts is not None and path.name not in facts:
        raise ValueError(f"{path.name} is not in its head")
    if facts is not None and digest_of(data) != facts[path.name].digest:
        raise OtherTable(f"{path.name} is damaged, or another table than its head names")
    read = functools.partial(pq.ParquetFile, page_checksum_verification=True)
    try:
        file = read(pa.BufferReader(data), read_dictionary=list(coded))
    except KeyError:  # it has not all of these columns
        file = read(pa.BufferReader(data))
        known_here = set(file.schema_arrow.names)
        file = read(pa.BufferReader(data), read_dictionary=[c for c in coded if c in known_here])
    rows, groups = file.metadata.num_rows, range(file.metadata.num_row_groups)
    most = ROOM + TIMES_ITS_SIZE * len(data)
    stated = sum(file.metadata.row_group(k).total_byte_size for k in groups)
    room = max(_cells(file.metadata, data) * value_bytes, stated)
    if room <= most:
        room = max(room, _text_bytes(file.schema_arrow, data, most))
    if room > most:
        raise ValueError(f"{path.name}: {len(data):,} bytes ask for {room:,} bytes of memory")
    if facts is not None and rows != facts[path.name].rows:
        raise ValueError(f"{path.name} has {rows:,} rows, its head says {facts[path.name].rows:,}")
    return file


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a table as Python has them, checked as :func:`open_table` does.

    Raises ValueError for what is damaged or asks for too much memory, pyarrow's errors, OSError.
    """
    file = open_table(path, None, value_bytes=_OBJECT_BYTES)
    rows: list[dict[str, Any]] = file.read(use_threads=False).to_pylist()
    return rows


def _cells(metadata: Any, data: bytes) -> int:
    """Return how many values a file has, entries of lists among them; empty ones count, too."""
    return max(values_of(data), int(metadata.num_rows * metadata.num_columns))


def _text_bytes(schema: Any, data: bytes, most: int) -> int:
    """Return the bytes that all texts of a file have once each is written out.

    A file has a text that occurs often once, and says nothing of that. No more are counted than it
    takes to be above ``most``. Raises ValueError for texts in lists or records.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for column in schema:
        if pa.types.is_nested(column.type) and not _is_of_numbers(column.type):
            raise ValueError(f"{column.name} is {column.type}, not lists of numbers")
    names = [column.name for column in schema if not _is_of_numbers(column.type)]
    if not names:
        return 0
    total = 0
    file = pq.ParquetFile(pa.BufferReader(data), read_dictionary=names)
    for batch in file.iter_batches(_TEXT_ROWS, columns=names, use_threads=False):
        for texts in batch.columns:
            if pa.types.is_dictionary(texts.type) and _has_type(texts.type, str):
                total += _bytes_of_texts(texts)
            else:
                total += texts.nbytes
        if total > most:
            break
    return total


def _bytes_of_texts(texts: Any) -> int:
    """Return the bytes of texts that a dictionary has once, each written out."""
    import numpy as np
    import pyarrow as pa

    table = texts.dictionary
    if texts.null_count or table.null_count:
        import pyarrow.compute as pc  # takes long, and texts of most tables are all there

        return int(pc.sum(pc.take(pc.binary_length(table), texts.indices)).as_py() or 0)
    if not len(texts):
        return 0
    kind = np.dtype(np.int64 if pa.types.is_large_string(table.type) else np.int32)
    ends = np.frombuffer(table.buffers()[1], kind, len(table) + 1, table.offset * kind.itemsize)
    times = np.bincount(numbers(texts.indices), minlength=len(table))
    return int((times * np.diff(ends)).sum())


def _is_of_numbers(kind: Any) -> bool:
    """Tell whether a type is one of numbers, or lists and records have nothing else in them."""
    import pyarrow as pa

    if pa.types.is_nested(kind) and not pa.types.is_union(kind):
        return all(_is_of_numbers(kind.field(k).type) for k in range(kind.num_fields))
    return bool(pa.types.is_primitive(kind) or pa.types.is_null(kind))  # null: lists without any


def read_arrays(data: bytes, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return arrays of numbers from the bytes of an NPZ file.

    Nothing is unpickled, and no more memory is asked for than the file has bytes. Raises ValueError
    where an array is missing or damaged, of other things than numbers, or of another size than it
    says.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            return {name: _array(file, name) for name in names}
    except KeyError as err:
        raise ValueError(f"{err.args[0]} is missing") from err
    except _NO_ARRAYS as err:
        raise ValueError(" ".join(str(err).split())[:80] or "it is damaged") from err


#: What the reader of archives, and that of an array's head, raise beside ValueError.
_NO_ARRAYS = (
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OverflowError, SyntaxError),
    *(OSError, struct.error, tokenize.TokenError),
)


def _array(file: zipfile.ZipFile, name: str) -> np.ndarray:
    """Return an array of an archive, which has it without compression."""
    import numpy as np

    info = file.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    member = io.BytesIO(file.read(info))
    if np.lib.format.read_magic(member) != (1, 0):
        raise ValueError(f"{name} is of another version")
    shape, _, kind = np.lib.format.read_array_header_1_0(member)
    content_bytes = info.file_size - member.tell()
    if (
        kind.kind not in "iufb"
        or min(shape, default=0) < 0
        or math.prod(shape) != content_bytes / kind.itemsize
    ):
        raise ValueError(f"{name} is not as large as it says, or no numbers")
    member.seek(0)
    array: np.ndarray = np.lib.format.read_array(member, allow_pickle=False)
    return array


def read_table(
    path: Path, columns: Mapping[str, type], facts: Mapping[str, TableFacts] | None = None
) -> pa.Table:
    """Return columns of a table, checked: digest, rows, memory, types; nothing is missing in them.

    columns: name -> int, float (finite), str (as numbers and the texts that they stand for) or list
    (of whole numbers). Raises ValueError for what is damaged, pyarrow's errors, OSError.
    """
    texts = [name for name, kind in columns.items() if kind is str]
    table = open_table(path, facts, texts).read(list(columns), use_threads=False)
    return checked_columns(table, columns, path.name)


def numbers(column: Any) -> np.ndarray:
    """Return the numbers of a column of a table, or of a part of one; none may be missing.

    pyarrow's own way, to_numpy, imports pandas where there is one, which takes longer than a model.
    """
    import numpy as np

    kind = np.dtype(column.type.to_pandas_dtype())
    parts = [
        np.frombuffer(part.buffers()[1], kind, len(part), part.offset * kind.itemsize)
        for part in (column.chunks if hasattr(column, "chunks") else [column])
        if len(part)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, kind), *parts])


def checked_columns(table: Any, columns: Mapping[str, type], where: str) -> Any:
    """Return a table, or a batch of one; raises ValueError where a column is not of its type."""
    for name, kind in columns.items():
        if name not in table.schema.names:
            raise ValueError(f"{where}: no column {name}")
        column = table.column(table.schema.names.index(name))
        if not _has_type(column.type, kind):
            raise ValueError(f"{where}: {name} is {column.type}, not {_WORDS[kind]}")
        if column.null_count:
            raise ValueError(f"{where}: a value of {name} is missing")
        if kind is list:
            _check_lists(column, name, where)
        if kind is float:
            _check_finite(column, name, where)
    return table


def _check_lists(column: Any, name: str, where: str) -> None:
    for part in column.chunks if hasattr(column, "chunks") else [column]:
        if not len(part):
            continue
        # what flatten() returns, but that imports all of Arrow's functions
        first, end = part.offsets[0].as_py(), part.offsets[-1].as_py()
        if part.values.slice(first, end - first).null_count:
            raise ValueError(f"{where}: a value of {name} is missing")


def _check_finite(column: Any, name: str, where: str) -> None:
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_integer(column.type) and not np.isfinite(numbers(column)).all():
        raise ValueError(f"{where}: a value of {name} is no finite number")


def _has_type(kind: pa.DataType, required_type: type) -> bool:
    import pyarrow as pa

    if required_type is str:
        return bool(
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or (pa.types.is_dictionary(kind) and _has_type(kind.value_type, str))
        )
    if required_type is list:
        return bool(pa.types.is_list(kind) and pa.types.is_integer(kind.value_type))
    if required_type is float:
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
    return bool(pa.types.is_integer(kind) and not pa.types.is_uint64(kind))


_WORDS: Mapping[type, str] = {
    int: "whole numbers",
    float: "numbers",
    str: "text",
    list: "lists of whole numbers",
}


def check_sums(sums: Mapping[str, float], known: Mapping[str, TableFacts] | None) -> None:
    """Raise ValueError where sums over all tables are not those that their head says."""
    for name, value in sums.items() if known else ():
        head = [facts.sums[name] for facts in known.values() if name in facts.sums] if known else []
        if head and not math.isclose(math.fsum(head), value, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            raise ValueError(f"the sum of {name} is {value:g}, the head says {math.fsum(head):g}")


def sums_of_rows(repeat: np.ndarray, nbytes: np.ndarray, work: np.ndarray) -> dict[str, float]:
    """Return the sums over rows that occur several times: events, bytes and work."""
    import numpy as np

    times = np.asarray(repeat, dtype=np.float64)
    with np.errstate(over="ignore"):  # infinite is no sum that a head has
        return {
            "events": float(times.sum()),
            "bytes": float((times * nbytes).sum()),
            "work": float((times * work).sum()),
        }


def check_range(values: Sequence[int] | np.ndarray, least: int, end: int, what: str) -> None:
    """Raise ValueError unless all whole numbers are at least ``least`` and below ``end``."""
    import numpy as np

    array = np.asarray(values)
    if array.size and not least <= int(array.min()) <= int(array.max()) < end:
        wrong = int(array.min()) if int(array.min()) < least else int(array.max())
        raise ValueError(f"{what} is {wrong}, not from {least} to {end - 1}")
