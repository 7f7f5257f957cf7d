"""How long the model step takes: studies of programs that are traced, and of many call sites.

    python benchmarks/all.py --only model

jacobi2d: the example at 2, 4 and 8 processes, `p3s model` from start to end.

sites: a program written as event lists (tests/helpers/corpus): on a 3-D grid it exchanges with
all neighbours through one call, with those across faces, with one neighbour, and sums up over all
ranks; sizes are blocks of the fields of one domain. Fitted by this process and those that it starts
beside itself, as `p3s model` does, with the hold-out.

Told are the seconds from start to end on the cores that this process may use, which the goals are
of, on two cores, and beside them the processor time of all processes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
from corpus import Program, Recorder, block, table
from figures import P3S, ROOT, Figure, Found, whole

from p3s.__main__ import rarely_collect
from p3s.base.extents import dims_balanced
from p3s.model.holdout import build_model

DOMAIN = (157, 211, 133)


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


def jacobi2d() -> tuple[float, float]:
    """Return seconds and processor time of `p3s model` of the example, when run again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(["make", "-sC", str(ROOT / "examples"), f"BIN={folder / 'bin'}"], check=True)
        words = ["characterize", "-n", "2,4,8", "-o", folder / "study", "--timeout", "600", "--"]
        whole([*P3S, *words, "mpiexec", "-n", "{np}", folder / "bin" / "jacobi2d"], ok=(0, 3))
        *_, used = (whole([*P3S, "model", folder / "study"], ok=(0, 3)) for _ in range(2))
    return used.elapsed_s, used.cpu_s


def sites(many: int) -> tuple[float, float]:
    """Return seconds and processor time of many call sites at five counts, with hold-out."""
    program = many_sites(many)
    tables = [table(program, n) for n in (4, 8, 12, 18, 27)]
    rarely_collect()
    start, begin = sum(os.times()[:4]), time.perf_counter()
    build_model(tables, True, shared=ROOT)
    return time.perf_counter() - begin, sum(os.times()[:4]) - start


def figures(quick: bool) -> Found:
    """Return what the models of jacobi2d and of a program of many call sites take."""
    many, cores = 40 if quick else 400, len(os.sched_getaffinity(0))
    out = []
    for name, goal, (elapsed, cpu) in (
        ("p3s model of jacobi2d from 2,4,8", 1.0, jacobi2d()),
        (
            f"model of {many} call sites at 5 counts, with hold-out",
            None if quick else 10.0,
            sites(many),
        ),
    ):
        out.append(Figure(f"{name}: elapsed on {cores} cores", elapsed, "s", goal))
        out.append(Figure(f"{name}: CPU time", cpu, "s"))
    return Found(tuple(out))
