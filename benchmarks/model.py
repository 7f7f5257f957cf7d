"""How long the model step takes for a program of many call sites.

    python benchmarks/model.py [--sites 400] [--counts 4,8,12,18,27] [--json]

The program is written as event lists (tests/helpers/corpus.py): on a 3-D grid it exchanges with all
neighbours through one call, with those across faces, with one neighbour, and sums up over all
ranks; sizes are blocks of the fields of one domain. It prints processor time with and without the
hold-out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

sys.path.append(str(Path(__file__).resolve().parent))
from corpus import Program, Recorder, block, table
from figures import Figure, Found

from p3s.laws.extents import dims_balanced
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


def processor_time() -> float:
    """Return the processor time of this process and those that it started, in seconds."""
    return sum(os.times()[:4])


def figures(quick: bool) -> Found:
    """Return how long the model of a program of many call sites takes, in processor time."""
    sites = 40 if quick else 400
    tables = [table(many_sites(sites), n) for n in (4, 8, 12, 18, 27)]
    start = processor_time()
    build_model(tables, True)
    name = f"model of {sites} call sites at 5 counts, with hold-out"
    return Found((Figure(name, processor_time() - start, "s", None if quick else 10),))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sites", type=int, default=400)
    parser.add_argument("--counts", default="4,8,12,18,27")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    program = many_sites(args.sites)
    tables = [table(program, int(n)) for n in args.counts.split(",")]
    took = {}
    for name, holdout in (("model", False), ("with hold-out", True)):
        start = processor_time()
        model = build_model(tables, holdout)
        took[name] = processor_time() - start
    if args.json:
        print(json.dumps({"sites": args.sites, "items": len(model.items), "seconds": took}))
        return
    print(f"{args.sites} call sites at {args.counts} processes, {len(model.items)} items")
    for name, seconds in took.items():
        print(f"{name:14} {seconds:6.1f} s of processor time")


if __name__ == "__main__":
    main()
