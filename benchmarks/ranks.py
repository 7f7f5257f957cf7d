"""How much less the busiest rank of ``p3s --mpi`` computes than p3s alone, in CPU time.

    python benchmarks/ranks.py STUDY [--ranks 2,4] [--counts 512,1024,2048] [--scale 65536] [--json]

STUDY holds runs; everything else is made anew in copies, of its runs alone. CPU time, since ranks
here share cores: on as many cores as ranks the wall time follows the busiest one. Alone p3s has one
core. The start of Python and MPI, the polling of ranks that wait, and what rank 0 does by itself
are included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TIMEOUT_S = 3600.0
_OUT = "P3S_BENCHMARK_RANKS"


def one_rank() -> int:
    """Be p3s; leave the CPU time of this process in a file."""
    from p3s.cli.main import main

    code = main()
    Path(os.environ[_OUT], str(os.getpid())).write_text(f"{time.process_time()}")
    return code


def cpu_times(words: list[str], ranks: int, directory: Path) -> list[float]:
    """Return the CPU time of every process of a command, in s; 0 ranks: alone on one core."""
    from figures import chosen_mpi

    launcher = []
    if ranks:
        launcher = [str(chosen_mpi().mpiexec), "-n", str(ranks)]
    with tempfile.TemporaryDirectory() as out:
        core = min(os.sched_getaffinity(0))
        done = subprocess.run(
            [*launcher, sys.executable, __file__, *(["--mpi"] if ranks else []), *words],
            cwd=directory,
            env={**os.environ, _OUT: out, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            preexec_fn=(lambda: os.sched_setaffinity(0, {core})) if not ranks else None,
        )
        if done.returncode not in (0, 3):
            raise SystemExit(done.stderr)
        return [float(path.read_text()) for path in Path(out).iterdir()]


def measured(study: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a row for each stage and number of ranks; the first is that of p3s alone."""
    stages = {
        "signatures": ["phases", "study"],
        "model": ["model", "study"],
        f"scale -n {options.scale}": ["scale", "study", "-n", str(options.scale)],
        f"predict -n {options.counts}": ["predict", "study", "-n", options.counts, "--only"],
    }
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as work:
        for ranks in [0, *(int(word) for word in options.ranks.split(","))]:
            directory = Path(work) / str(ranks)
            (directory / "study").mkdir(parents=True)
            shutil.copytree(study / "runs", directory / "study" / "runs")
            shutil.copy(study / "study.json", directory / "study")
            for stage, words in stages.items():
                spent = max(cpu_times(words, ranks, directory))
                alone = next((r["busiest_s"] for r in rows if r["stage"] == stage), spent)
                rows.append(
                    {"stage": stage, "ranks": ranks, "busiest_s": spent, "speedup": alone / spent}
                )
    return sorted(rows, key=lambda row: list(stages).index(row["stage"]))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description="CPU time of the busiest rank of p3s --mpi.")
    parser.add_argument("study", type=Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--counts", default="512,1024,2048", help="that are predicted")
    parser.add_argument("--scale", type=int, default=65536, help="processes of a scaled trace")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rows = measured(options.study.resolve(), options)
    if options.json:
        print(json.dumps({"rows": rows}, indent=1))
        return
    for row in rows:
        who = f"{row['ranks']} ranks" if row["ranks"] else "alone"
        print(f"{row['stage']:34} {who:8} {row['busiest_s']:7.2f} s {row['speedup']:6.2f}x")


if __name__ == "__main__":
    if os.environ.get(_OUT):
        sys.exit(one_rank())
    main()
