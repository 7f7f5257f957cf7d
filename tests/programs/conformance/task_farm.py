"""A pool of tasks, as mpi4py.futures would do it: rank 0 hands out work to whoever is idle."""

from conform import did, finish, me, p, poll, say, world
from mpi4py import MPI

TASKS, WORK, STOP = 30, 1, 2

if me == 0:
    status = MPI.Status()
    results: dict[int, int] = {}
    waiting = list(range(TASKS))
    idle = list(range(1, p))
    running = 0
    while waiting or running:
        while waiting and idle:
            world.send(waiting.pop(), idle.pop(), WORK)
            did("Send")
            running += 1
        if p == 1:
            task = waiting.pop()
            results[task] = task * task
        elif running:
            while not world.iprobe(MPI.ANY_SOURCE, WORK, status):
                poll()
            did(("Iprobe", 1))
            task, result = world.recv(source=status.source, tag=WORK)
            did(("Mprobe", 1), "Mrecv")
            results[task] = result
            idle.append(status.source)
            running -= 1
    for rank in range(1, p):
        world.send(None, rank, STOP)
        did("Send")
    say(sorted(results.items()))
else:
    while True:
        task = world.recv(source=0)
        did(("Mprobe", 1), "Mrecv")
        if task is None:
            break
        world.send((task, task * task), 0, WORK)
        did("Send")
finish()
