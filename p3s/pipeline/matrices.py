"""Communication matrices of a study: of a traced count from the signature's tables, of a predicted
one from the scaled trace; neither needs a capture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.artefacts import file_bytes, parse_json
from p3s.base.errors import P3SError
from p3s.base.ops import COLLECTIVE, SEND, kind_of
from p3s.base.tables import known_tables, numbers, read_table
from p3s.base.text import visible
from p3s.program.scaled import scaled_head
from p3s.signature.matrix import CommMatrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

#: Rows of a scaled trace above which its matrix is left out: a report is made in seconds.
MAX_ROWS = 20_000_000


def traced_matrix(path: Path, n: int) -> CommMatrix | str | None:
    """Return the matrix of a signature at ``n``, None where its tables cannot be read."""
    import pyarrow as pa

    try:
        head = parse_json(file_bytes(path))  # of any version
        groups = [(group[1], group[3]) for group in head["groups"]]
        wanted = dict.fromkeys(("rank", "group", "nbytes", "count"), int)
        table = read_table(path.with_suffix(".parquet"), wanted, known_tables(head))
        rank, group, nbytes, times = (
            numbers(table.column(k)).astype(np.int64) for k in table.column_names
        )
        ops = [kind_of(str(op)) for op, _ in groups]
        peers = np.array([peer for _, peer in groups], dtype=np.int64)[group]
    except (OSError, P3SError, pa.ArrowException, ValueError, TypeError, IndexError, KeyError):
        return None
    sends = np.array([op == SEND for op in ops], dtype=bool)[group] & (peers >= 0) & (peers < n)
    calls = np.array([op == COLLECTIVE for op in ops], dtype=bool)[group]
    if not _in_range(rank, n):
        return None
    return _matrix(
        n, [(rank[sends], peers[sends], times[sends], nbytes[sends])], int(times[calls].sum())
    )


def scaled_matrix(folder: Path, n: int) -> CommMatrix | str | None:
    """Return the matrix of a scaled trace at ``n``, a sentence where it is too large."""
    import pyarrow as pa

    try:
        head = scaled_head(folder)
        rows, known = int(head.get("rows", 0)), known_tables(head)
        if rows > MAX_ROWS:
            return f"Not drawn: its trace has {rows:,} rows, more than {MAX_ROWS:,}."
        parts, calls = [], 0
        for path in sorted(folder.glob("part-*.parquet")):
            wanted = dict.fromkeys(("rank", "peer", "repeat", "bytes"), int)
            table = read_table(path, {**wanted, "kind": str}, known)
            kind = table.column("kind").combine_chunks().dictionary_encode()
            names = kind.dictionary.to_pylist()
            code = numbers(kind.indices).astype(np.int64)
            rank, peer, repeat, nbytes = (
                numbers(table.column(k)).astype(np.int64) for k in table.column_names[:4]
            )
            if not _in_range(rank, n):
                return None
            calls += int(repeat[_is(names, COLLECTIVE)[code]].sum())
            sends = _is(names, SEND)[code] & (peer >= 0) & (peer < n)
            parts.append((rank[sends], peer[sends], repeat[sends], nbytes[sends]))
    except (OSError, P3SError, pa.ArrowException, ValueError, TypeError, KeyError) as err:
        return (
            None
            if not (folder / "scaled.json").exists()
            else f"Not drawn: {visible(' '.join(str(err).split()), 200)}"
        )
    return _matrix(n, parts, calls)


def _is(names: list[Any], kind: str) -> NDArray[np.bool_]:
    """Return which codes mean a kind; one more for tables without rows."""
    return np.array([name == kind for name in names] or [False], dtype=bool)


def _in_range(rank: Ints, n: int) -> bool:
    return not len(rank) or bool(rank.min() >= 0 and rank.max() < n)


def _matrix(n: int, parts: list[tuple[Ints, Ints, Ints, Ints]], calls: int) -> CommMatrix:
    """Return the matrix of rows (source, destination, messages, bytes of one)."""
    source, destination, times, nbytes = (
        np.concatenate([part[k] for part in parts]) if parts else np.zeros(0, dtype=np.int64)
        for k in range(4)
    )
    pair, place = np.unique(source * n + destination, return_inverse=True)
    messages = np.zeros(len(pair), dtype=np.int64)
    moved = np.zeros(len(pair), dtype=np.int64)
    np.add.at(messages, place, times)
    np.add.at(moved, place, times * nbytes)
    return CommMatrix(n, pair // n, pair % n, messages, moved, calls, 0)
