"""How long messages take to be routed on networks of 1,024 nodes, and their loads to be summed.

    python benchmarks/routing.py [--messages 1048576] [--seed 0]

Random pairs of nodes, each message of its own size. Prints wall time and CPU time of the routes,
the distances and the bytes on links, and the peak of memory. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

# This directory has modules named as some of the package are.
HERE = Path(__file__).resolve().parent
sys.path = [*(path for path in sys.path if Path(path).resolve() != HERE), str(HERE.parent)]

from p3s.text import table  # noqa: E402
from p3s.topology.read import read_fabric  # noqa: E402

NODES = 1024
NETWORKS = (
    "fat-tree:16,8,16,8,4",
    "torus:16x8x8",
    "torus:4x4x4x4x4",
    "mesh:32x32",
    "dragonfly:16,8,8",
)


def timed(work: Callable[[], object]) -> str:
    """Return wall and CPU seconds of some work."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return f"{time.perf_counter() - wall:.2f} / {time.process_time() - cpu:.2f}"


def main() -> None:
    """Route, and print a row for each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1 << 20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    first, second = rng.integers(0, NODES, (2, args.messages))
    nbytes = rng.integers(8, 1 << 20, args.messages)
    rows = []
    for told in NETWORKS:
        fabric = read_fabric(told, NODES)
        works: tuple[Callable[[], object], ...] = (
            lambda fabric=fabric: fabric.routes(first, second),
            lambda fabric=fabric: fabric.distances(first, second),
            lambda fabric=fabric: fabric.loads(first, second, nbytes),
        )
        rows.append([told, *map(timed, works)])
    head = ["network", "routes, wall / CPU s", "distances", "bytes on links"]
    print(f"{args.messages:,} messages on {NODES:,} nodes")
    print(table(rows, head))
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


if __name__ == "__main__":
    main()
