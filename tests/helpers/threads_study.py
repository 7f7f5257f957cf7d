"""Studies with several numbers of threads whose computation is known, without MPI and a clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import corpus
import numpy as np
import timed_study as ts

from p3s.base.study import Study, write_json
from p3s.signature.teams import COLUMNS
from p3s.signature.times import save_times

ITERS = 20
#: Nanoseconds of an element in regions, of one outside of them, of a region and a thread.
PARALLEL, SERIAL, FORK = 40.0, 2.0, 1500.0


@dataclass(frozen=True)
class Hybrid:
    """A ring whose ranks update their block in a parallel region and then a part of it alone.

    chatty: threads send messages of their own, so that messages depend on their number.
    longer: iterations that more than one thread takes beyond ITERS.
    """

    cells: int = 1 << 22
    chatty: bool = False
    longer: int = 0

    def parallel_ns(self, n: int) -> float:
        """CPU time of all threads of a rank in one iteration."""
        return PARALLEL * self.cells / n

    def serial_ns(self, n: int) -> float:
        """CPU time of a rank outside of regions in one iteration."""
        return SERIAL * self.cells / n + 2000.0

    def seconds(self, n: int, threads: int) -> float:
        """Computation of a rank in one iteration."""
        fork = FORK * threads
        return 1e-9 * (self.parallel_ns(n) / threads + self.serial_ns(n) + fork)

    def program(self, threads: int) -> corpus.Program:
        """The program with so many threads; its work is in nanoseconds."""

        def made(rec: Any) -> None:
            right, left = (rec.rank + 1) % rec.n, (rec.rank - 1) % rec.n
            work = round(1e9 * self.seconds(rec.n, threads))
            rec("Bcast", nbytes=16, root=0, work=5000)
            for _ in range(ITERS + (self.longer if threads > 1 else 0)):
                for k in range(threads if self.chatty else 1):
                    rec.exchange("Sendrecv", right, left, 8192, work=0 if k else work, rest=0)
                rec("Allreduce", nbytes=8, work=500)

        return made


def put_threads(
    root: Path,
    hybrid: Hybrid | None = None,
    counts: Sequence[int] = (2, 4, 8),
    threads: Sequence[int] = (1, 2, 4),
    seen: bool = True,
    sizes: Sequence[int] = (),
) -> Study:
    """Make a study of runs at all combinations; seen: what threads did is there too.

    sizes: values of a parameter of the input, cells.
    """
    hybrid = hybrid or Hybrid()
    words = ["mpiexec", "-n", "{np}", "./hybrid", *(["{cells}"] if sizes else [])]
    study = Study.create(root, words)
    given = {"cells": [str(s) for s in sizes]} if sizes else {}
    study.update(parameters={**given, "threads": [str(t) for t in threads]})
    for size in sizes or [0]:
        mine = replace(hybrid, cells=size) if size else hybrid
        for t in threads:
            name = f"cells={size},threads={t}" if size else f"threads={t}"
            _put(study.at_dir(name), mine, counts, t, seen)
    return study


def _put(root: Path, hybrid: Hybrid, counts: Sequence[int], threads: int, seen: bool) -> None:
    study, tables = ts.put_study(root, hybrid.program(threads), counts, "cpu_ns", fit=False)
    for table in tables:
        run = study.runs_dir(table.np)
        run.mkdir(parents=True)
        info = {"np": table.np, "status": "complete", "work_unit": "cpu_ns", "oversubscribed": True}
        info["threads"] = {"count": threads, "affinity": "none", "cores": []}
        write_json(run / "run.json", {"schema": "p3s.run", "schema_version": 1, **info})
        os.utime(run / "run.json", (0, 0))
        times = ts.times_of(table, table.segments[:, 4].astype(float), repeats=1)
        named = tuple(replace(each, dir=f"runs/np{table.np:04d}.r0") for each in times.runs)
        save_times(replace(times, runs=named), study.times_path(table.np))
        if seen:
            _put_teams(study, table, hybrid, threads)


def _put_teams(study: Study, table: Any, hybrid: Hybrid, threads: int) -> None:
    """Write what the tracer would have seen: regions before the messages."""
    from types import SimpleNamespace

    from p3s.signature.beside import write_teams

    node = [k for k, (_, op) in enumerate(table.nodes) if op.endswith("Sendrecv")][0]
    busy = hybrid.parallel_ns(table.np)
    each = {
        "rank": np.arange(table.np),
        "node": node,
        "regions": ITERS,
        "serial_ns": ITERS * hybrid.serial_ns(table.np),
        "region_ns": ITERS * (busy / threads + FORK * threads),
        "busy_ns": ITERS * busy,
        "longest_ns": ITERS * busy / threads,
        "overhead_ns": ITERS * FORK * threads,
        "team": threads,
        "worked": threads,
    }
    rows = np.zeros((table.np, len(COLUMNS)), dtype=np.int64)
    for k, name in enumerate(COLUMNS):
        rows[:, k] = each.get(name, 0)
    part = SimpleNamespace(
        teams=rows, nodes=list(table.nodes), segments=table.segments, inside=0, events=1
    )
    write_teams(study.root, table.np, [part])  # type: ignore[list-item]
