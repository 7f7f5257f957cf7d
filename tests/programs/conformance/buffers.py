"""mpi4py's upper-case methods on buffers: every mode, completion, in place, errors."""

import numpy as np
from conform import did, finish, left, me, p, poll, right, say, world
from mpi4py import MPI

a = np.arange(10, dtype="i") + me * 100
b = np.zeros((4, 10), dtype="i")
status = MPI.Status()

for tag, send in enumerate((world.Isend, world.Issend, world.Irsend)):
    receive = world.Irecv(b[0], MPI.ANY_SOURCE if tag == 1 else left, tag)
    did(("Irecv", 40))
    world.Barrier()
    did(("Barrier", 0))
    request = send(a[: tag + 3], right, tag)
    did((f"I{('send', 'ssend', 'rsend')[tag]}", 4 * (tag + 3)))
    receive.Wait(status)
    request.Wait()
    did(("Wait", 1), ("Wait", 1))
    say(status.source, status.tag, status.Get_count(MPI.INT), *b[0])

requests = [world.Irecv(b[i], left, i) for i in range(4)]
requests += [world.Isend(a[: i + 1], right, i) for i in range(4)]
did(*[("Irecv", 40)] * 4, *[("Isend", 4 * (i + 1)) for i in range(4)])
statuses = [MPI.Status() for _ in requests]
MPI.Request.Waitall(requests, statuses)
did(("Waitall", 8))
say(*[(s.source, s.tag, s.Get_count(MPI.INT)) for s in statuses[:4]])

request = world.Isend(a, right, 9)
did(("Isend", 40))
while not world.Iprobe(left, 9, status):
    poll()
did(("Iprobe", 1))
say(status.Get_count(MPI.INT))
world.Recv([b, 10, MPI.INT], left, 9, status)
did(("Recv", 40))
while not request.Test():
    poll()
did(("Test", 1))

world.Sendrecv([a, 10, MPI.INT], right, 1, b[1], left, 1)
did(("Sendrecv", 40), ("Sendrecv_recv", 40))
world.Sendrecv_replace(a, right, 2, left, MPI.ANY_TAG, status)
did(("Sendrecv_replace", 40), ("Sendrecv_recv", 40))
say(status.tag, a[0])
world.Send([None, 0, MPI.INT], MPI.PROC_NULL)
did(("Send", 0))

start = world.Recv_init(b[2], left, 5)
give = world.Send_init(a, right, 5)
for _turn in range(3):
    MPI.Prequest.Startall([start, give])
    did(("Recv_init", 40), ("Send_init", 40))
    MPI.Request.Waitall([start, give])
    did(("Waitall", 2))
start.Free()
give.Free()
say(*b[2])

total = np.zeros(10, dtype="i")
world.Allreduce(a, total, MPI.SUM)
world.Allreduce(MPI.IN_PLACE, a)
did(("Allreduce", 40), ("Allreduce", 40))
say(*total, *a)
x = np.full(3, float(me))
world.Bcast(x, p - 1)
did(("Bcast", 24))
everything = np.zeros((p, 3))
world.Allgather(x, everything)
did(("Allgather", 24))
counts = [i + 1 for i in range(p)]
parts = np.zeros(sum(counts), dtype="i")
world.Allgatherv(a[: me + 1], [parts, counts])
did(("Allgatherv", 4 * (me + 1)))
world.Gatherv(a[: me + 1], [parts, counts], 0)
did(("Gatherv", 4 * (me + 1)))
mine = np.zeros(me + 1, dtype="i")
world.Scatterv([parts, counts], mine, 0)
did(("Scatterv", 4 * (me + 1)))
say(*mine)
swapped = np.zeros(p, dtype="i")
world.Alltoall(np.arange(p, dtype="i") + me * p, swapped)
did(("Alltoall", 4 * p))
say(*swapped)
request = world.Iallreduce(MPI.IN_PLACE, x, MPI.MAX)
did(("Iallreduce", 24))
request.Wait()
did(("Wait", 1))
say(*x)

half = world.Split(me % 2, me)
did(("Comm_split", 0))
half.Barrier()
did(("Barrier", 0))
half.Free()
did(("Comm_free", 0))
vector = MPI.INT.Create_vector(5, 1, 2).Commit()
world.Sendrecv([a, 1, vector], right, 6, b[3], left, 6)
did(("Sendrecv", 20), ("Sendrecv_recv", 40))
vector.Free()
say(*b[3][:5])

# mpi4py turns error codes into exceptions: the library must return them as always.
for call in (lambda: world.Send(a, p + 4), lambda: world.Bcast(a, -3)):
    try:
        call()
    except MPI.Exception as error:
        say(error.Get_error_class() in (MPI.ERR_RANK, MPI.ERR_ROOT))
request = world.Isend(a, right, 7)
did(("Isend", 40))
try:
    world.Recv(b[0][:2], left, 7)
except MPI.Exception as error:
    say(error.Get_error_class() == MPI.ERR_TRUNCATE)
request.Wait()
did(("Wait", 1))


def own_sum(one: MPI.buffer, other: MPI.buffer, kind: MPI.Datatype) -> None:
    """An operation that calls MPI while MPI calls it."""
    kind.Get_size()
    np.frombuffer(other, dtype="i")[:] += np.frombuffer(one, dtype="i")


op = MPI.Op.Create(own_sum, commute=True)
world.Allreduce(a, total, op)
did(("Allreduce", 40))
op.Free()
say(*total)
finish()
