"""All figures of speed, size, memory and error beside those of other tools, in one run.

    python benchmarks/all.py [--quick] [--group speed|error|all] [--only tracer_cost,simulate,...]
                             [--no-history] [--pictures DIR] [--pages FILE...]

A benchmark has a function ``figures(quick)``; some have a table PARTS of more, which are asked for
by name: ``--only load:appends,laws:noisy``.

Prints a table; a run is kept in history.jsonl beside this file and compared with the last one of
its kind: ratios to other tools where there are any, as both ran on the same machine. Other tools
are optional, what is missing is said. P3S_BENCH_LOGGOPSIM: directory of LogGOPSim and txt2bin;
P3S_BENCH_EXTRAP: a Python that has Extra-P; P3S_BENCH_MPIP: libmpiP.so. ``--pages`` puts the
figures of a benchmark between the lines `<!-- figures: NAME -->` and `<!-- end of figures -->` of
a page. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE.parent / "tests" / "helpers"),
    str(HERE),
]

from figures import HISTORY, Figure, Point, keep, last_run, shown, shown_by_case  # noqa: E402
from loglog import picture  # noqa: E402

#: Benchmarks with a function figures(quick), in the order in which they run.
GROUPS = {
    "speed": (
        "tracer_cost",
        "threads_overhead",
        "load",
        "laws",
        "model",
        "scale",
        "simulate",
        "predict",
    ),
    "error": ("grids", "task_queue", "baseline", "trees", "advise", "replay_cost"),
}
_BLOCK = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def put_in(page: Path, found: Mapping[str, Sequence[Figure]]) -> None:
    """Replace the figures of a page by those that were found; other benchmarks' stay."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        return f"{match[1]}{shown_by_case(found[name])}\n{match[3]}" if name in found else match[0]

    page.write_text(_BLOCK.sub(block, page.read_text()))


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="small sizes, some minutes")
    parser.add_argument("--group", choices=(*GROUPS, "all"), default="speed", help="which")
    parser.add_argument("--only", default="", help="benchmarks, by name, instead of a group")
    parser.add_argument("--no-history", action="store_true", help="keep nothing")
    parser.add_argument("--pictures", type=Path, help="where pictures of the growth are written")
    parser.add_argument("--pages", type=Path, nargs="+", default=[], help="pages with figures")
    told = parser.parse_args()
    found: dict[str, tuple[Figure, ...]] = {}
    points: list[Point] = []
    failed: list[str] = []
    everything = [name for group in GROUPS.values() for name in group]
    chosen = everything if told.group == "all" else GROUPS[told.group]
    for name in told.only.split(",") if told.only else chosen:
        begin, before = time.perf_counter(), sum(os.times()[:4])
        try:
            module, _, part = name.partition(":")
            benchmark = importlib.import_module(module)
            seen = (benchmark.PARTS[part] if part else benchmark.figures)(told.quick)
        except (Exception, SystemExit) as err:  # the others are still worth their time
            failed.append(f"{name}: {type(err).__name__}: {err}")
            continue
        found[name] = seen.figures
        points += seen.points
        wall, cpu = time.perf_counter() - begin, sum(os.times()[:4]) - before
        print(f"{name}: {wall:.0f} s, {cpu:.0f} s of CPU time", file=sys.stderr, flush=True)
    figures = [figure for each in found.values() for figure in each]
    print(shown(figures, last_run(HISTORY, told.quick)))
    for line in failed:
        print(f"failed: {line}")
    if told.pictures:
        told.pictures.mkdir(parents=True, exist_ok=True)
        for axis in dict.fromkeys(point.axis for point in points):
            target = told.pictures / f"growth-{axis.replace(' ', '-')}.svg"
            target.write_text(picture(points, axis))
    for page in told.pages:
        put_in(page, found)
    if not told.no_history and figures:
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        keep(HISTORY, figures, points, told.quick, when)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
