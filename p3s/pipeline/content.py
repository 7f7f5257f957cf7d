"""What a report shows of a study, as values: read, resolved and evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.ops import COLLECTIVE, SEND
from p3s.base.records import Traces, phases_path, read_replay, scaled_dir
from p3s.base.tables import known_tables, numbers, read_table
from p3s.base.text import visible
from p3s.capture.callpath import stack
from p3s.capture.quoted import SourceQuote, Sources
from p3s.capture.sites import resolve_sites, traced_ns
from p3s.costs.types import ComputeModel
from p3s.costs.types import load as load_compute
from p3s.model.types import Model
from p3s.model.work.scic import InstructionTable, instruction_table, larger_counts
from p3s.pipeline.records import ModelRecord, Places, Program, read_or_none
from p3s.predict.types import Prediction
from p3s.program.scaled import scaled_head
from p3s.signature.matrix import CommMatrix
from p3s.signature.phase_file import Phases, load
from p3s.signature.store import load_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from p3s.costs.types import Row

    Ints = NDArray[np.int64]

#: Calls of a model above which the instruction table takes too long for a report.
MAX_CALLS = 500


@dataclass(frozen=True)
class ComputeTable:
    """The laws of computation time, and their rows at the counts of a prediction."""

    model: ComputeModel
    rows: Sequence[Row]


@dataclass(frozen=True)
class StudyContent:
    """What a report of a prediction shows of its study.

    phases: None where there are none that can be read. places: of the frames of all calls. quotes:
    the line of source that makes the calls of a site, by site; foreign: none are quoted, since this
    user has not run the program. replays: by process count. unknown: calls without a rule in the
    scaled trace. matrices: (process count, whether traced, matrix or why it is not drawn).
    instructions: None where the model has too many calls, or admits no other count.
    """

    program: Program
    model: Model
    prediction: Prediction
    phases: Phases | None
    places: Places
    quotes: Mapping[str, SourceQuote]
    foreign: bool
    replays: Mapping[int, Mapping[str, Any]]
    unknown: Sequence[Any]
    matrices: Sequence[tuple[int, bool, CommMatrix | str]]
    instructions: InstructionTable | None
    compute: ComputeTable | None


def content_of(record: ModelRecord, prediction: Prediction, *, source: bool = True) -> StudyContent:
    """Return what a report of this prediction shows; ``source``: lines of the program's source."""
    model, traces, foreign = record.model, record.traces, source and record.foreign
    phases = read_or_none(lambda: load(phases_path(traces.root)))
    sites = {} if phases is None else phases.sites
    places, _ = resolve_sites(traces, {**sites, **model.sites})
    largest, counts = prediction.last.n, [row.n for row in prediction.counts]
    return StudyContent(
        record.program,
        model,
        prediction,
        phases,
        places,
        _quotes(traces, model, places, foreign) if source else {},
        foreign,
        # The prediction rests on none that cannot be read.
        {
            n: replay
            for n in counts
            if (replay := read_or_none(partial(read_replay, traces.root, n))) is not None
        },
        _unknown(scaled_dir(traces.root, largest)),
        list(_matrices(traces, largest)),
        read_or_none(lambda: instruction_table(model, larger_counts(model)))
        if len(model.items) <= MAX_CALLS
        else None,
        _compute(traces.root, model, counts),
    )


def _quotes(traces: Traces, model: Model, places: Places, foreign: bool) -> dict[str, SourceQuote]:
    """Return the innermost line of source of each site that can be read."""
    sources = Sources(traced_ns(traces), traces.root if foreign else None)
    lines = {site: sources.quoted(stack(frames, places)) for site, frames in model.sites.items()}
    return {site: line for site, line in lines.items() if line is not None}


def _unknown(folder: Path) -> Sequence[Any]:
    there = (folder / "scaled.json").exists()
    found = scaled_head(folder).get("unknown") if there else ()
    return found if isinstance(found, list) else ()


def _matrices(traces: Traces, largest: int) -> Iterator[tuple[int, bool, CommMatrix | str]]:
    """Yield the matrices of the largest traced count and of ``largest``, those that can be had."""
    traced = traces.counts
    for n in [*traced[-1:], *({largest} - {*traced})]:
        if (found := matrix_of(traces, n)) is not None:
            yield n, n in traced, found


def matrix_of(traces: Traces, n: int) -> CommMatrix | str | None:
    """Return the matrix of a count: of its signature where there is one, else as scaled."""
    if n in traces.counts:
        return traced_matrix(traces.root, n)
    return scaled_matrix(scaled_dir(traces.root, n), n)


def _compute(root: Path, model: Model, counts: Sequence[int]) -> ComputeTable | None:
    """Return the times of computation at the counts of a prediction; None without times."""
    from p3s.costs.apply import compute_table

    found = read_or_none(lambda: load_compute(root))
    if found is None:
        return None
    asked = [n for n in counts if n not in model.counts]
    return read_or_none(lambda: ComputeTable(found, compute_table(model, found, asked)))


#: Rows of a scaled trace above which its matrix is left out: a report is made in seconds.
MAX_ROWS = 20_000_000


def traced_matrix(root: Path, n: int) -> CommMatrix | None:
    """Return the matrix of a study's signature at ``n``, None where it cannot be read."""
    table = read_or_none(lambda: load_table(root, n))
    if table is None:
        return None
    kinds = np.array([group.kind for group in table.groups])[table.group]
    peers = np.array([group.peer for group in table.groups], dtype=np.int64)[table.group]
    sends = (kinds == SEND) & (peers >= 0) & (peers < n)
    rows = (table.rank[sends], peers[sends], table.count[sends], table.nbytes[sends])
    return _matrix(n, [rows], int(table.count[kinds == COLLECTIVE].sum()))


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
            if len(rank) and not (rank.min() >= 0 and rank.max() < n):
                return None
            calls += int(repeat[_mask_kind(names, COLLECTIVE)[code]].sum())
            sends = _mask_kind(names, SEND)[code] & (peer >= 0) & (peer < n)
            parts.append((rank[sends], peer[sends], repeat[sends], nbytes[sends]))
    except (OSError, P3SError, pa.ArrowException, ValueError, TypeError, KeyError) as err:
        return (
            None
            if not (folder / "scaled.json").exists()
            else f"Not drawn: {visible(' '.join(str(err).split()), 200)}"
        )
    return _matrix(n, parts, calls)


def _mask_kind(names: list[Any], kind: str) -> NDArray[np.bool_]:
    """Return which codes mean a kind; one more for tables without rows."""
    return np.array([name == kind for name in names] or [False], dtype=bool)


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
