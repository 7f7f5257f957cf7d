"""Studies whose computation costs what a known curve says, without MPI and without a clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import corpus
import numpy as np

from p3s.base.serialise import to_data
from p3s.base.study import Study, write_json
from p3s.base.tables import TABLES
from p3s.pipeline.stages import fit_model
from p3s.signature.clock import QUANTILES
from p3s.signature.store import SIGNATURE, signature_of, write_tables
from p3s.signature.tables import PointTable, point_table
from p3s.signature.times import RunTimes, Times

COUNTS = (4, 8, 16, 32)
#: Instructions per cell of the two sweeps, and beside them per turn.
FIRST, SECOND, PACK = 40, 24, 300


@corpus.program
def sweeps(rec: corpus.Recorder, cells: int = 1 << 22, iters: int = 10, grows: float = 0.0) -> None:
    """A ring whose ranks sweep twice over their block in every turn.

    grows: work per rank and turn that does not get less with more ranks, as a share of the whole:
    the total grows with n.
    """
    block = cells // rec.n
    rec("Bcast", nbytes=16, root=0, work=5000)
    for _ in range(iters):
        rec.exchange(
            "Sendrecv",
            (rec.rank + 1) % rec.n,
            (rec.rank - 1) % rec.n,
            4096,
            work=FIRST * block + PACK + grows * cells,
            rest=0,
        )
        rec("Allreduce", nbytes=8, work=SECOND * block + PACK)
    rec("Reduce", nbytes=8, root=0, work=700)


def x_of(cells: int, n: int, grows: float = 0.0) -> float:
    """Return the instructions of a rank in one turn of the sweeps."""
    return (FIRST + SECOND) * (cells // n) + 2 * PACK + grows * cells


def cache_step(x: Any, where: float = 1e7, high: float = 0.5, low: float = 0.2) -> Any:
    """Return ns per instruction: low where the working set fits, high where it does not."""
    return low + (high - low) / (1.0 + (where / np.asarray(x, dtype=float)) ** 4)


def counted(program: corpus.Program, n: int, unit: str = "instructions") -> PointTable:
    """Return the table of a program's run whose work is in ``unit``."""
    made = corpus.run(program, n)
    made.work_unit = unit
    return point_table([made])


def times_of(
    table: PointTable, ns: np.ndarray, repeats: int = 3, noise: float = 0.0, seed: int = 0
) -> Times:
    """Return times in which each of the table's segments takes ``ns`` in the run.

    noise: relative; the least of the repeats lies at or above what is true.
    """
    rng = np.random.default_rng(seed + table.np)
    took = ns * (1.0 + noise * np.abs(rng.standard_normal((repeats, len(ns)))))
    seg = table.segments
    count = np.maximum(seg[:, 3], 1)
    return Times(
        np=table.np,
        nodes=table.nodes,
        rank=seg[:, 0],
        from_node=seg[:, 1],
        to_node=seg[:, 2],
        count=seg[:, 3],
        work=seg[:, 4].astype(float),
        least_ns=took.min(axis=0),
        median_ns=np.median(took, axis=0),
        most_ns=took.max(axis=0),
        quantile_ns=np.repeat((took.min(axis=0) / count)[:, None], len(QUANTILES), axis=1),
        work_unit=table.work_unit,
        runs=tuple(
            RunTimes(f"timed/np{table.np:04d}.r{k}", int(t.sum()), 0) for k, t in enumerate(took)
        ),
        resident_bytes=np.zeros(table.np, dtype=np.int64),
    )


def put_study(
    root: Path,
    program: corpus.Program,
    counts: Sequence[int] = COUNTS,
    unit: str = "instructions",
    fit: bool = True,
) -> tuple[Study, list[PointTable]]:
    """Make a study of a program's signatures, with its model."""
    study = Study.create(root, ["mpiexec", "-n", "{np}", "./sweeps"])
    tables = [counted(program, n, unit) for n in counts]
    for table in tables:
        path = study.signature_path(table.np)
        path.parent.mkdir(exist_ok=True)
        facts = to_data(write_tables(table, path))
        write_json(path, {**SIGNATURE.data(signature_of(table)), TABLES: facts})
    if fit:
        fit_model(study)
    return study, tables
