"""A pipeline of numpy blocks: each rank passes on one element less than it got."""

from __future__ import annotations

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
length, batches = int(sys.argv[1]), int(sys.argv[2])
block = np.zeros(length, dtype=np.float32)
for batch in range(batches):
    if rank > 0:
        comm.Recv(block[: length - rank + 1], source=rank - 1, tag=batch)
    if rank < size - 1:
        comm.Send(block[: length - rank], dest=rank + 1, tag=batch)
comm.Barrier()
