"""Steps of well-known patterns, for tests of plans."""

from __future__ import annotations

from steps_builder import Builder

from p3s.simulate.steps import Steps


def halo(side: int, nbytes: int = 32768, turns: int = 2, work_ns: float = 0.0) -> Steps:
    """Return a periodic 2-D halo exchange, weight 10 each; work before the sends."""
    b = Builder(side * side)
    for turn in range(turns):
        for rank in range(side * side):
            x, y = rank % side, rank // side
            near = [
                (x + 1) % side + y * side,
                (x - 1) % side + y * side,
                x + (y + 1) % side * side,
                x + (y - 1) % side * side,
            ]
            for peer in near:
                b.add(rank, "MPI_Irecv", peer, nbytes, turn=turn, weight=10)
            for k, peer in enumerate(near):
                b.add(
                    rank,
                    "MPI_Isend",
                    peer,
                    nbytes,
                    turn=turn,
                    weight=10,
                    work_ns=0.0 if k else work_ns,
                )
            b.add(rank, "MPI_Waitall", turn=turn, weight=10)
    return b.build()


def ring(n: int, nbytes: int = 1024) -> Steps:
    """Return a ring in which every rank sends to the next one."""
    b = Builder(n)
    for rank in range(n):
        b.add(rank, "MPI_Sendrecv", (rank + 1) % n, nbytes, peer2=(rank - 1) % n, bytes2=nbytes)
    return b.build()
