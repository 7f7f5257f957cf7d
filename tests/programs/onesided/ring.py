"""A ring of windows in mpi4py: puts between fences, fetches without the target."""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
me, p = world.Get_rank(), world.Get_size()
right = (me + 1) % p
mine, memory = np.full(100, me, dtype="f8"), np.zeros(200)
one, old = np.ones(1, dtype="f8"), np.zeros(1)
win = MPI.Win.Create(memory, 8, comm=world)
for _ in range(6):
    win.Fence()
    win.Put(mine, right, 0)
    win.Fence()
    win.Lock(right)
    win.Fetch_and_op(one, old, right, 150, op=MPI.SUM)
    win.Unlock(right)
    world.Barrier()
win.Free()
# 6 of 800 bytes one way, 6 of 8 bytes both ways; each has one neighbour before and one behind.
sys.stdout.write(f"tally {me} 18 {6 * 816} 18 {6 * 816}\n")  # in one piece
sys.stdout.flush()
