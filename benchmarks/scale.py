"""What scaling out costs: seconds and peak memory of `p3s scale` at large counts.

    python benchmarks/scale.py [--counts 4096,32768] [--million 1000000] [--only NAME] [--timed]
                               [--json]

The programs are event lists (tests/helpers/corpus), modelled at small counts. Each line is
measured in a process of its own, which does what `p3s scale` does from reading the model on. With
--timed the study has laws of computation time (every unit of work costs 1 ns), which the trace then
holds too. Nothing here passes or fails."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "helpers"))
sys.path.append(str(Path(__file__).resolve().parent))

from figures import P3S, Figure, Found, Point, resident_mib, whole

TIMEOUT_S = 1800.0
#: Ranks asked for of the largest count.
SOME = [0, 4096, 4097, 4098, 4099]
#: Program, counts it is modelled at; all admit powers of four.
PROGRAMS = {
    "jacobi2d": (4, 8, 9, 16),
    "ring": (4, 8, 16),
    "halo3d": (8, 12, 18, 27),
    "cg": (2, 4, 8, 16),
    "wavefront": (4, 8, 9, 16),
    "fft2d": (4, 8, 16),
    "hypercube": (4, 8, 16),
    "dissemination": (4, 8, 11, 16),
    "gather_to_root": (4, 8, 16),
    "every_tenth": (4, 8, 16),
    "binomial_broadcast": (4, 8, 11, 16),
}


def make_study(name: str, root: Path, timed: bool = False) -> None:
    """Model a program of the corpus."""
    import corpus

    from p3s.base.study import Study, write_json
    from p3s.model import build
    from p3s.signature.store import SIGNATURE, signature_of, write_tables

    study = Study.create(root, ["mpiexec", "-n", "{np}", "./" + name])
    for n in PROGRAMS[name]:
        table = corpus.table(getattr(corpus, name)(), n)
        study.signature_path(n).parent.mkdir(exist_ok=True)
        write_tables(table, study.signature_path(n))
        write_json(study.signature_path(n), SIGNATURE.data(signature_of(table)))
        if timed:
            from timed_study import times_of

            from p3s.signature.times import save_times

            save_times(times_of(table, table.segments[:, 4].astype(float)), study.times_path(n))
    build(study.root)
    if timed:
        from p3s.pipeline.costing import build_compute

        build_compute(study.root)


def measure(root: Path, n: int, some: bool) -> dict[str, Any]:
    """Scale to ``n`` processes in this process; return rows, seconds and peak memory."""
    begin, cpu = time.perf_counter(), time.process_time()
    from p3s.base.errors import P3SError
    from p3s.program.generate import write_scaled

    try:
        head = write_scaled(root, n, SOME if some else None)
    except P3SError as err:
        return {"n": n, "ranks": "all", "why": str(err)}
    peak = resident_mib(True)
    return {
        "n": n,
        "ranks": len(SOME) if some else "all",
        "rows": head.rows,
        "wall_s": time.perf_counter() - begin,
        "cpu_s": time.process_time() - cpu,
        "peak_mib": peak,
    }


def apart(root: Path, n: int, some: bool) -> dict[str, Any]:
    """Do the same in a process of its own."""
    words = [sys.executable, __file__, "--measure", str(root), str(n), "some" if some else "all"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def figures(quick: bool) -> Found:
    """Return what scaled traces cost, in a whole process that writes all ranks."""
    points, last = [], None
    counts = (1024, 4096) if quick else (1024, 8192, 1 << 16, 1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "jacobi2d"
        make_study("jacobi2d", root)
        for n in counts:
            last = whole([*P3S, "scale", root, "-n", str(n)])
            points.append(Point("ranks", "p3s scale", n, last.cpu_s, last.peak_mib))
    of = f"p3s scale of jacobi2d to {counts[-1]:,} ranks"
    goal = None if quick else 36.0
    time_and_memory = (
        Figure(f"{of}: CPU time", last.cpu_s, "s", goal),
        Figure(f"{of}: peak memory", last.peak_mib, "MiB"),
    )
    return Found(time_and_memory, tuple(points))


def main() -> None:
    """Measure all programs, print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", default="4096,32768")
    parser.add_argument("--million", type=int, default=1 << 20)
    parser.add_argument("--only", choices=sorted(PROGRAMS))
    parser.add_argument("--timed", action="store_true", help="with times of computation")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        root, n, which = args.measure
        print(json.dumps(measure(Path(root), int(n), which == "some")))
        return
    lines = []
    for name in [args.only] if args.only else PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / name
            make_study(name, root, args.timed)
            for n in map(int, args.counts.split(",")):
                lines.append({"program": name, **apart(root, n, False)})
            lines.append({"program": name, **apart(root, args.million, True)})
        if not args.json:
            for line in lines[-len(args.counts.split(",")) - 1 :]:
                print(f"{line['program']:20} {line['n']:>9,} {line['ranks']!s:>5} ", end="")
                print(
                    line["why"]
                    if "why" in line
                    else f"{line['rows']:>10,} rows "
                    f"{line['wall_s']:7.2f} s {line['cpu_s']:7.2f} s CPU "
                    f"{line['peak_mib']:7.0f} MiB",
                    flush=True,
                )
    if args.json:
        print(json.dumps(lines))


if __name__ == "__main__":
    main()
