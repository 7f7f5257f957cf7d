"""All figures of speed, size and memory beside those of other tools, in one run.

    python benchmarks/all.py [--quick] [--only tracer_cost,simulate,...] [--no-history]
                             [--pictures DIR]

Prints a table; a run is kept in history.jsonl beside this file and compared with the last one of
its kind: ratios to other tools where there are any, as both ran on the same machine. Other tools
are optional, what is missing is said. P3S_BENCH_LOGGOPSIM: directory of LogGOPSim and txt2bin;
P3S_BENCH_EXTRAP: a Python that has Extra-P; P3S_BENCH_MPIP: libmpiP.so. Nothing here passes or
fails.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE),
]

from figures import HISTORY, Figure, Point, keep, last_run, shown  # noqa: E402
from loglog import picture  # noqa: E402

#: Benchmarks with a function figures(quick), in the order in which they run.
BENCHMARKS = ("tracer_cost", "load", "laws", "model", "scale", "simulate", "predict")


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="small sizes, some minutes")
    parser.add_argument("--only", default=",".join(BENCHMARKS), help="benchmarks, by name")
    parser.add_argument("--no-history", action="store_true", help="keep nothing")
    parser.add_argument("--pictures", type=Path, help="where pictures of the growth are written")
    told = parser.parse_args()
    figures: list[Figure] = []
    points: list[Point] = []
    failed: list[str] = []
    for name in told.only.split(","):
        begin = time.perf_counter()
        try:
            found = importlib.import_module(name).figures(told.quick)
        except (Exception, SystemExit) as err:  # the others are still worth their time
            failed.append(f"{name}: {type(err).__name__}: {err}")
            continue
        figures += found.figures
        points += found.points
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    print(shown(figures, last_run(HISTORY, told.quick)))
    for line in failed:
        print(f"failed: {line}")
    if told.pictures:
        told.pictures.mkdir(parents=True, exist_ok=True)
        for axis in dict.fromkeys(point.axis for point in points):
            target = told.pictures / f"growth-{axis.replace(' ', '-')}.svg"
            target.write_text(picture(points, axis))
    if not told.no_history and figures:
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        keep(HISTORY, figures, points, told.quick, when)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
