"""A session instead of MPI_Init, from Python."""

import sys

import mpi4py

mpi4py.rc.initialize = False
from mpi4py import MPI  # noqa: E402

session = MPI.Session.Init()
group = session.Create_group("mpi://WORLD")
world = MPI.Intracomm.Create_from_group(group, "conformance")
group.Free()
me, p = world.Get_rank(), world.Get_size()
for _ in range(4):
    got = world.sendrecv(me, (me + 1) % p, source=(me - 1) % p)
    assert got == (me - 1) % p
total = bytearray(4)
world.Allreduce([me.to_bytes(4, sys.byteorder), MPI.INT], [total, MPI.INT])
world.Free()
session_calls = {"Init": 1, "Finalize": 1, "Comm_create_from_group": 1, "Comm_free": 1}
# A pickled message is found before it is received.
calls = {**session_calls, "Allreduce": 1, "Isend": 4, "Mprobe": 4, "Mrecv": 4, "Wait": 4}
with open(f"output-{me:06d}.txt", "w") as file:
    words = [f"MPI_{name}={n}/-" for name, n in calls.items()]
    file.write("counts " + " ".join(words) + f"\npolls 0\nsum {total.hex()}\n")
sys.stdout.write(f"rank {me} of {p}\n")
session.Finalize()
