"""mpi4py's lower-case methods: what each of them calls is part of the test.

A pickled message is received by MPI_Mprobe and MPI_Mrecv; a collective of objects is one of
lengths and one of bytes.
"""

from conform import did, finish, left, me, p, right, say, world
from mpi4py import MPI

status = MPI.Status()
request = world.isend({"rank": me, "list": list(range(me))}, right, 1)
did("Isend")
say(world.recv(source=MPI.ANY_SOURCE, tag=1, status=status), status.source, status.tag)
did(("Mprobe", 1), "Mrecv")
request.wait()
did(("Wait", 1))
if p > 1:
    if me % 2:
        say(world.recv(source=left))
        did(("Mprobe", 1), "Mrecv")
    world.send(("from", me), right)
    did("Send")
    if not me % 2:
        say(world.recv(source=left))
        did(("Mprobe", 1), "Mrecv")
for _turn in range(3):
    say(world.bcast("text" * me if me == p - 1 else None, p - 1))
    did("Bcast", "Bcast")
say(world.gather(me * me, 0))
did("Gather", "Gatherv")
say(world.scatter([str(i) for i in range(p)] if me == 0 else None, 0))
did("Scatter", "Scatterv")
say(world.allgather([me] * me))
did("Allgather", "Allgatherv")
say(world.alltoall([(me, i) for i in range(p)]))
did("Alltoall", "Alltoallv")
receive = world.irecv(bytearray(1000), left, 3)
did(("Irecv", 1000))
request = world.issend("synchronous", right, 3)
did("Issend")
say(receive.wait())
request.wait()
did(("Wait", 1), ("Wait", 1))
message = world.mprobe(MPI.PROC_NULL)
did(("Mprobe", 1))
say(message.recv())
did("Mrecv")
world.barrier()
did(("Barrier", 0))
finish()
