"""Compare the dependency simulation with SimGrid's replay of the same trace on a like platform.

    p3s scale STUDY -n 64
    python benchmarks/against_simgrid.py STUDY... -n 64 [--ranks-per-node 4] [--rate 12.5]

Every study's scaled trace becomes the programs of its ranks (collectives as Open MPI's messages),
SimGrid replays them (`smpirun -replay`) on the platform that p3s/formats/simgrid/platform.py makes
of a network of 2 us and 12.5 GB/s (or --rate), and p3s.simulate simulates the same steps on that
network. Prints run times, the share of it that is not computation, and ratios.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [*(path for path in sys.path if Path(path).resolve() != HERE), str(HERE.parent)]


def main() -> None:
    """Print one line per study."""
    from p3s.formats.simgrid.smpirun import replay
    from p3s.program.collectives.choose import library_of
    from p3s.program.collectives.expand import expand
    from p3s.program.order.sections import whole_run
    from p3s.program.scaled import read_order, read_scaled
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path)
    parser.add_argument("-n", type=int, required=True)
    parser.add_argument("--ranks-per-node", type=int, default=1)
    parser.add_argument("--rate", type=float, default=12.5, help="of links, bytes per ns")
    told = parser.parse_args()
    # One cost for all distances, and none for completed requests: SimGrid has no others.
    network = replace(
        rough_network(
            rate=told.rate, inside_latency_ns=2000, inside_rate=told.rate, inside_eager_bytes=16384
        ),
        post=0.0,
    )
    node_of = np.arange(told.n) // told.ranks_per_node
    print(
        f"{'program':14} {'events':>8} {'SimGrid':>9} {'P3S':>9} {'ratio':>7} {'in calls':>9} "
        f"{'ratio':>7} {'wall':>13}"
    )
    for study in told.studies:
        where = study / "scaled" / f"np{told.n:06d}"
        run = whole_run(read_scaled(where), read_order(where))
        steps = expand(run.steps, library_of("openmpi", "4.1")).steps
        clock = [time.perf_counter()]
        theirs = replay(steps, node_of, network)
        clock.append(time.perf_counter())
        ours = simulate(steps, node_of, network)
        clock.append(time.perf_counter())
        ends = [float(x.end_ns.max()) for x in (theirs, ours)]
        calls = [float((x.end_ns - x.begin_ns).sum()) for x in (theirs, ours)]
        share = calls[1] / (calls[1] + float(steps.work_ns.sum()))
        print(
            f"{study.name:14} {len(steps):8} {ends[0] / 1e6:6.3f} ms {ends[1] / 1e6:6.3f} ms "
            f"{ends[1] / ends[0]:7.4f} {100 * share:7.1f} % {calls[1] / calls[0]:7.4f} "
            f"{clock[1] - clock[0]:5.2f}, {clock[2] - clock[1]:4.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
