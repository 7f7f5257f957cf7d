"""A file of all processes through mpi4py, one of each through numpy; prints what it does."""

import os
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
data = np.full(1000 + comm.rank, 1.0)
offset = comm.exscan(data.nbytes) or 0
for _ in range(4):
    file = MPI.File.Open(comm, "shared.dat", MPI.MODE_CREATE | MPI.MODE_WRONLY)
    file.Write_at_all(offset, data)
    file.Close()
    data.tofile(f"own.{comm.rank}")
sys.stdout.write(
    f"place {comm.rank} MPI_File_write_at_all {offset} {data.nbytes} {data.nbytes}\n"
)  # in one piece
sys.stdout.flush()
os.unlink(f"own.{comm.rank}")
