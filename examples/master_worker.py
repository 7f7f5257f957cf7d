"""Numerical integration with a master and workers: whoever is free gets the next piece.

The number of pieces is fixed and the pieces are added up in their own order, so the result does
not depend on the number of ranks or on who did what. Run with two ranks or more:

    mpiexec -n 4 python master_worker.py --tasks 40 --points 100000
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

import numpy as np
from mpi4py import MPI

TAG_WORK = 1
TAG_RESULT = 2
TAG_STOP = 3


class _Parser(argparse.ArgumentParser):
    """A parser that leaves the talking to rank 0."""

    def print_help(self, file: object = None) -> None:
        if MPI.COMM_WORLD.rank == 0:
            sys.stdout.write(self.format_help())

    def error(self, message: str) -> NoReturn:
        if MPI.COMM_WORLD.rank == 0:
            print(f"master_worker: {message}", file=sys.stderr)
        sys.exit(2)


def positive(text: str) -> int:
    """Return text as a number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is smaller than 1")
    return number


def integrate(first: float, last: float, points: int) -> float:
    """Return the integral of 4 / (1 + x^2) from first to last, by the midpoint rule."""
    step = (last - first) / points
    x = first + (np.arange(points) + 0.5) * step
    return float(np.sum(4.0 / (1.0 + x * x)) * step)


def master(comm: MPI.Intracomm, tasks: int) -> float:
    """Deal the tasks out, one at a time to each worker, and return the sum of the results."""
    results = np.zeros(tasks)
    answer = np.zeros(2)
    status = MPI.Status()
    bounds = np.linspace(0.0, 1.0, tasks + 1)
    sent = 0
    busy = 0
    for worker in range(1, comm.size):
        if sent < tasks:
            comm.Send(np.array([sent, bounds[sent], bounds[sent + 1]]), worker, TAG_WORK)
            sent += 1
            busy += 1
        else:
            comm.Send(np.zeros(3), worker, TAG_STOP)
    while busy > 0:
        comm.Recv(answer, MPI.ANY_SOURCE, TAG_RESULT, status)
        results[int(answer[0])] = answer[1]
        if sent < tasks:
            comm.Send(np.array([sent, bounds[sent], bounds[sent + 1]]), status.source, TAG_WORK)
            sent += 1
        else:
            comm.Send(np.zeros(3), status.source, TAG_STOP)
            busy -= 1
    return float(results.sum())


def worker(comm: MPI.Intracomm, points: int) -> None:
    """Integrate one piece after the other until the master says stop."""
    task = np.zeros(3)
    status = MPI.Status()
    while True:
        comm.Recv(task, 0, MPI.ANY_TAG, status)
        if status.tag == TAG_STOP:
            return
        value = integrate(task[1], task[2], points)
        comm.Send(np.array([task[0], value]), 0, TAG_RESULT)


def main() -> int:
    """Read the command line, integrate, print the result on rank 0."""
    comm = MPI.COMM_WORLD
    parser = _Parser(prog="master_worker.py", description="Integrate 4 / (1 + x^2) in pieces.")
    parser.add_argument("--tasks", type=positive, default=40, help="pieces (default 40)")
    parser.add_argument(
        "--points", type=positive, default=100_000, help="points in one piece (default 100000)"
    )
    options = parser.parse_args()
    if comm.size < 2:
        print("master_worker: one rank cannot be master and worker; use 2 or more", file=sys.stderr)
        return 2
    if comm.rank == 0:
        total = master(comm, options.tasks)
        print(f"master_worker {options.tasks} tasks of {options.points} points: pi {total:.12f}")
    else:
        worker(comm, options.points)
    return 0


if __name__ == "__main__":
    sys.exit(main())
