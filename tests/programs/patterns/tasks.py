"""A master deals pickled lists of uneven length, and takes what comes back in order."""

from __future__ import annotations

import sys

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
items = int(sys.argv[1])
for _ in range(int(sys.argv[2])):
    if rank == 0:
        for worker in range(1, size):
            mine = items // (size - 1) + (worker <= items % (size - 1))
            comm.send([1.5 * k for k in range(mine)], dest=worker, tag=1)
        results = [comm.recv(source=worker, tag=2) for worker in range(1, size)]
        assert len(results) == size - 1
    else:
        work = comm.recv(source=0, tag=1)
        comm.send({"rank": "some", "sum": 0.5 * len(work)}, dest=0, tag=2)
