"""How long `p3s report` takes for many phases at many counts, and how large the page is.

    python benchmarks/report.py [--phases 500] [--counts 10] [--calls 6] [--repeats 5]

The study is made: a prediction, and a model whose phases have that many calls, each with a rule of
its own. The command runs in a process of its own, pictures included. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path[0:1] = [
    str(HERE.parent),
    *(str(HERE.parent / "tests" / name) for name in ("helpers", "unit")),
]

from made_predictions import made_prediction  # noqa: E402
from report_studies import put_study  # noqa: E402
from test_report_size import model_of  # noqa: E402

TIMEOUT_S = 300.0


def main() -> None:
    """Make the study, run the command some times, print seconds and bytes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--phases", type=int, default=500)
    parser.add_argument("--counts", type=int, default=10)
    parser.add_argument("--calls", type=int, default=6, help="calls of each phase")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        study = put_study(
            Path(folder) / "study",
            made_prediction(tuple(2**k for k in range(1, args.counts + 1)), args.phases),
            model=model_of(args.phases, args.calls),
        )
        wall, cpu = [], []
        for _ in range(args.repeats):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            begin = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "p3s", "report", str(study.root)],
                timeout=TIMEOUT_S,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
                env={**os.environ, "PYTHONPATH": str(HERE.parent)},
            )
            if done.returncode not in (0, 3):
                sys.exit(done.stderr.strip())
            wall.append(time.perf_counter() - begin)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        size = study.report_path.stat().st_size
    print(
        f"{args.phases} phases, {args.counts} counts: {statistics.median(wall):.2f} s "
        f"({statistics.median(cpu):.2f} s CPU), median of {args.repeats}; "
        f"report.html {size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
