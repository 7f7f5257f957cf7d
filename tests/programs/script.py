"""MPI from Python: each event's call and line, in order, go into lines-RANK.txt.

Lower-case mpi4py calls move pickles by several MPI calls: noted as "*".
"""

import sys
import threading

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
me, p = comm.Get_rank(), comm.Get_size()
right, left = (me + 1) % p, (me - 1) % p
lines = []


def here(*ops):
    """Note the line that is about to call MPI, or has just done so."""
    frame = sys._getframe(1)
    lines.extend(f"{op} {frame.f_code.co_name}:{frame.f_lineno}" for op in ops)


class Solver:
    def exchange(self, values):
        out = np.empty_like(values)
        here("Sendrecv", "Sendrecv_recv"), comm.Sendrecv(values, right, recvbuf=out, source=left)
        return out

    def total(self, x):
        here("Barrier", "Barrier"), comm.Barrier(), comm.Barrier()  # one line, two sites
        return here("*") or comm.allreduce(x)


def recurse(level):
    if level:
        recurse(level - 1)
    else:
        here("Barrier"), comm.Barrier()


def generator(turns):
    for turn in range(turns):
        here("Barrier"), comm.Barrier()
        yield turn


def main():
    requests, into = [], np.empty(3, dtype="i")
    solver = Solver()
    for _ in range(3):
        got = solver.exchange(np.full(4, float(me)))
        assert got[0] == left
        assert solver.total(1) == p
    for level in (1, 2, 7):
        recurse(level)
    assert list(generator(3)) == [0, 1, 2]
    try:
        raise KeyError("x")
    except KeyError:
        here("Barrier"), comm.Barrier()
        assert sys.exc_info()[0] is KeyError
    squares = [here("*") or comm.bcast(i * i) for i in range(3)]
    assert squares == [0, 1, 4]
    worker = threading.Thread(target=recurse, args=(3,))
    worker.start()
    worker.join()
    here("Isend"), requests.append(comm.Isend(np.arange(3, dtype="i"), right, tag=4))
    here("Recv"), comm.Recv(into, MPI.ANY_SOURCE, MPI.ANY_TAG)
    here("Wait"), requests[0].Wait()


class AtExit:
    """Calls MPI while the interpreter goes down."""

    def __del__(self):
        if not MPI.Is_finalized():
            MPI.COMM_SELF.Barrier()


main()
with open(f"lines-{me:06d}.txt", "w") as file:
    file.write("\n".join(lines))
keep = AtExit()
