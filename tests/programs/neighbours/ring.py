"""A ring as a distributed graph from mpi4py: Neighbor_alltoall, Ineighbor_allgatherv, objects."""

from __future__ import annotations

import sys
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
n, me = world.size, world.rank
around = [(me - 1) % n, (me + 1) % n]
ring = world.Create_dist_graph_adjacent(around, around)
out, into = array("d", [1.0] * 20), array("d", [0.0] * 40)
sends = sent = 0
for _ in range(3):
    ring.Neighbor_alltoall([out, 10, MPI.DOUBLE], [into, 10, MPI.DOUBLE])
    counts = ([20, 20], [0, 20])
    ring.Ineighbor_allgatherv([out, MPI.DOUBLE], [into, counts, MPI.DOUBLE]).Wait()
    sends += 4
    sent += 2 * 80 + 2 * 160
sys.stdout.write(f"tally {me} {sends} {sent} {sends} {sent}\n")  # in one piece
sys.stdout.flush()
