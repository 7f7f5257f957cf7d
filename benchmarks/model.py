"""How long the model step takes: studies of programs that are traced, and of many call sites.

    python benchmarks/model.py [--only jacobi2d,lu,sites,commands] [--json]
                               [--sites 400] [--counts 4,8,12,18,27] [--large 1000]
                               [--lu PROGRAM] [--folder DIR]

jacobi2d: the example at 2, 4 and 8 processes, `p3s model` from start to end. lu: the same of LU of
the NAS Parallel Benchmarks, class W, built before, at 4, 8 and 16. commands: `p3s model` of
captures that are written without a program (tests/helpers/load_captures.py), of 400 and of --large
call sites at 2, 4 and 8.

sites: a program written as event lists (tests/helpers/corpus): on a 3-D grid it exchanges with
all neighbours through one call, with those across faces, with one neighbour, and sums up over all
ranks; sizes are blocks of the fields of one domain. Fitted by this process and those that it starts
beside itself, as `p3s model` does, with and without the hold-out.

Told are the seconds from start to end on the cores that this process may use, which the goals are
of, on two cores, and beside them the processor time of all processes. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

sys.path.append(str(Path(__file__).resolve().parent))
from corpus import Program, Recorder, block, table  # noqa: E402
from figures import P3S, Figure, Found, whole  # noqa: E402

from p3s.base.extents import dims_balanced  # noqa: E402

DOMAIN = (157, 211, 133)


@dataclass(frozen=True)
class Row:
    """A figure: seconds from start to end, processor time in seconds, peak resident memory of one
    process, the goal of the first."""

    case: str
    elapsed_s: float
    cpu_s: float
    peak_mib: float | None = None
    goal_s: float | None = None


def many_sites(sites: int, turns: int = 3) -> Program:
    """Return a program of so many call sites, half of them of messages sent."""
    steps = [v for v in product((-1, 0, 1), repeat=3) if any(v)]
    faces = [v for v in steps if sum(map(abs, v)) == 1]

    def program(rec: Recorder) -> None:
        dims = dims_balanced(rec.n, 3)
        here = np.unravel_index(rec.rank, dims)
        own = [block(e, p, int(c)) for e, p, c in zip(DOMAIN, dims, here, strict=True)]
        for _ in range(turns):
            for k in range(sites // 4):
                partners = steps if k % 4 == 0 else faces if k % 4 < 3 else faces[k // 4 % 6 :][:1]
                for v in partners:
                    to = [int(c) + s for c, s in zip(here, v, strict=True)]
                    if all(0 <= c < p for c, p in zip(to, dims, strict=True)):
                        peer = int(np.ravel_multi_index(to, dims))
                        face = [x for x, s in zip(own, v, strict=True) if not s]
                        size = 8 * (1 + k % 5) * int(np.prod(face))
                        for op in ("Irecv", "Isend"):
                            rec(op, site=f"{k}{op}", peer=peer, nbytes=size)
                rec("Waitall", site=f"{k}w")
                rec("Allreduce", site=f"{k}a", nbytes=8 * (1 + k % 7))

    return program


def processor_time() -> float:
    """Return the processor time of this process and those that it started, in seconds."""
    return sum(os.times()[:4])


def of_command(words: list[str]) -> tuple[float, float, float]:
    """Return seconds, processor time and peak resident memory (MiB) of a command."""
    used = whole(words, ok=(0, 3))
    return used.elapsed_s, used.cpu_s, used.peak_mib


def model_of(study: Path, case: str, goal: float | None) -> Row:
    """Return what `p3s model` takes; the second of two runs, with what Python compiles there."""
    words = [*P3S, "model", str(study)]
    of_command(words)
    return Row(case, *of_command(words), goal)


def traced(folder: Path, case: str, counts: str, program: str, goal: float) -> Row:
    """Return what the model of a traced program takes."""
    study = folder / case.split()[0]
    words = ["characterize", "-n", counts, "-o", str(study), "--timeout", "600", "--"]
    of_command([*P3S, *words, "mpiexec", "-n", "{np}", program])
    return model_of(study, f"{case}, from {counts}", goal)


def jacobi2d(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """The example."""
    built = folder / "bin"
    subprocess.run(["make", "-sC", str(ROOT / "examples"), f"BIN={built}"], check=True)
    yield traced(folder, "jacobi2d", "2,4,8", str(built / "jacobi2d"), 1.0)


def lu(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """LU, where there is one."""
    if options.lu:
        yield traced(folder, "LU class W", "4,8,16", str(Path(options.lu).resolve()), 4.0)


def sites(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Many call sites at five counts, fitted as the command does it."""
    from p3s.__main__ import rarely_collect
    from p3s.model.holdout import build_model

    program = many_sites(options.sites)
    tables = [table(program, int(n)) for n in options.counts.split(",")]
    rarely_collect()
    for name, holdout in (("model", False), ("with hold-out", True)):
        start, begin = processor_time(), time.perf_counter()
        model = build_model(tables, holdout, shared=ROOT)
        elapsed, cpu = time.perf_counter() - begin, processor_time() - start
        case = f"{options.sites} call sites at {options.counts}, {len(model.items)} items, {name}"
        yield Row(case, elapsed, cpu, None, 10.0 if options.sites == 400 else None)


def commands(folder: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Many call sites, the whole command."""
    from load_captures import many_sites as written
    from load_captures import write_study

    for size in (400, options.large):
        study = folder / f"written-{size}"
        write_study(study, [2, 4, 8], written(size), 3)
        of_command([*P3S, "phases", str(study)])
        yield Row(f"{size} call sites at 2,4,8", *of_command([*P3S, "model", str(study)]))


CASES = {"jacobi2d": jacobi2d, "lu": lu, "sites": sites, "commands": commands}


def figures(quick: bool) -> Found:
    """Return what the models of jacobi2d and of a program of many call sites take."""
    many = 40 if quick else 400
    given = argparse.Namespace(sites=many, counts="4,8,12,18,27")
    with tempfile.TemporaryDirectory() as folder:
        (small,) = jacobi2d(Path(folder), given)
    *_, held_out = sites(Path(folder), given)
    named = {
        "p3s model of jacobi2d from 2,4,8": small,
        f"model of {many} call sites at 5 counts, with hold-out": held_out,
    }
    cores = len(os.sched_getaffinity(0))
    return Found(
        tuple(
            figure
            for name, row in named.items()
            for figure in (
                Figure(f"{name}: elapsed on {cores} cores", row.elapsed_s, "s", row.goal_s),
                Figure(f"{name}: CPU time", row.cpu_s, "s"),
            )
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--sites", type=int, default=400)
    parser.add_argument("--counts", default="4,8,12,18,27")
    parser.add_argument("--large", type=int, default=1000)
    parser.add_argument("--lu", default="", help="the program lu.W.x")
    parser.add_argument("--folder", type=Path, help="where studies are made, and removed again")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for case in options.only.split(","):
            for row in CASES[case](Path(folder), options):
                rows.append(row)
                if not options.json:
                    goal = "" if row.goal_s is None else f" (goal {row.goal_s:g} s)"
                    memory = "" if row.peak_mib is None else f"  {row.peak_mib:.0f} MiB"
                    took = f"{row.elapsed_s:.2f} s{goal}, {row.cpu_s:.2f} s of CPU time{memory}"
                    print(f"{row.case}: {took}", flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
