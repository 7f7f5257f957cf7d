"""Communication patterns made up at random, that MPI would bring to their end.

The calls of all ranks are written down in one order in which they can happen: both ends of a
message, or all members of a collective, at the same time; waits come later. Some rings rely on
the library to buffer their sends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from steps_builder import Builder

from p3s.simulate.steps import Steps

_SENDS = (
    "MPI_Send",
    "MPI_Ssend",
    "MPI_Bsend",
    "MPI_Rsend",
    "MPI_Isend",
    "MPI_Issend",
    "MPI_Send_init",
    "MPI_Ssend_init",
)
_RECEIVES = ("MPI_Recv", "MPI_Irecv", "MPI_Recv_init")
_OPEN = ("MPI_Isend", "MPI_Issend", "MPI_Send_init", "MPI_Ssend_init", "MPI_Irecv", "MPI_Recv_init")
_COLLECTIVES = (
    "MPI_Barrier",
    "MPI_Bcast",
    "MPI_Reduce",
    "MPI_Allreduce",
    "MPI_Gather",
    "MPI_Scatter",
    "MPI_Allgather",
    "MPI_Alltoall",
    "MPI_Scan",
    "MPI_Exscan",
    "MPI_Reduce_scatter_block",
    "MPI_Allgatherv",
    "MPI_Gatherv",
)
_ROOTED = ("MPI_Bcast", "MPI_Reduce", "MPI_Gather", "MPI_Scatter", "MPI_Gatherv")
_SIZES = (0, 1, 8, 100, 1000, 4096, 5000, 70_000)


@dataclass(frozen=True)
class Pattern:
    """Steps of all ranks, ranks per node, and what they are made of."""

    seed: int
    steps: Steps
    cores: int
    words: str


class Story:
    """Writes calls down."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.rows, self.columns = rng.randint(1, 4), rng.randint(2, 4)
        self.n = self.rows * self.columns
        self.members = {
            **{
                1 + r: [r * self.columns + c for c in range(self.columns)] for r in range(self.rows)
            },
            **{
                100 + c: [r * self.columns + c for r in range(self.rows)]
                for c in range(self.columns)
            },
            200: sorted(rng.sample(range(self.n), rng.randint(1, self.n))),
        }
        self.builder = Builder(self.n, self.members)
        self.open: list[list[int]] = [[] for _ in range(self.n)]
        self.said: list[str] = []

    def call(self, rank: int, name: str, *args: int, **named: object) -> int:
        """Add a call, with computation before it now and then."""
        work = self.rng.choice((0.0, 0.0, 1e3, 2.5e5))
        return self.builder.add(rank, name, *args, work_ns=work, **named)

    def message(
        self,
        source: int,
        target: int,
        nbytes: int,
        tag: int,
        comm: int = 0,
        send: str = "",
        receive: str = "",
    ) -> None:
        """Add both ends of a message; one of them is nonblocking if it stays on its rank."""
        rng = self.rng
        send = send or rng.choice(_SENDS)
        receive = receive or rng.choice(_RECEIVES)
        if source == target:
            receive = rng.choice(("MPI_Irecv", "MPI_Recv_init"))
        ends = [(target, receive, source), (source, send, target)]
        if send in _OPEN and rng.random() < 0.5:
            ends.reverse()
        for me, name, peer in ends:
            room = nbytes + (rng.choice((0, 0, 40)) if me == target else 0)
            step = self.call(me, name, peer, room, tag=tag, comm=comm)
            if name in _OPEN:
                self.open[me].append(step)

    def complete(self, rank: int, everything: bool = True) -> None:
        """Complete requests of a rank, in one of MPI's ways."""
        rng, left = self.rng, self.open[rank]
        if not left:
            return
        if not everything and rng.random() < 0.5:
            some = rng.sample(left, rng.randint(1, len(left)))
            self.call(rank, rng.choice(("MPI_Waitall", "MPI_Testall")), done=sorted(some))
            self.open[rank] = [step for step in left if step not in some]
            return
        way = rng.choice(("all", "each", "any", "some", "any then all"))
        if way == "all":
            self.call(rank, "MPI_Waitall", done=left)
        elif way == "each":
            for step in rng.sample(left, len(left)):
                self.call(rank, rng.choice(("MPI_Wait", "MPI_Test")), done=[step])
        elif way == "any":
            for _ in left:
                self.call(rank, "MPI_Waitany", done=left)
        elif way == "some":
            number = len(left)
            while number:
                take = rng.randint(1, number)
                self.call(rank, "MPI_Waitsome", done=left, number=take)
                number -= take
        else:
            self.call(rank, "MPI_Waitany", done=left)
            self.call(rank, "MPI_Waitall", done=left)
        self.open[rank] = []

    # ---- what patterns are made of -----------------------------------------------------
    def messages(self) -> None:
        """Messages between anybody; some communicators are smaller than the world."""
        rng = self.rng
        for _ in range(rng.randint(1, 8)):
            comm = rng.choice((0, 0, *self.members))
            members = self.members.get(comm, range(self.n))
            self.message(
                rng.choice(list(members)),
                rng.choice(list(members)),
                rng.choice(_SIZES),
                rng.randint(0, 3),
                comm,
            )
            if rng.random() < 0.3:
                self.complete(rng.randrange(self.n), everything=False)

    def shift(self) -> None:
        """A shift along a dimension of a grid, periodic or not."""
        rng, columns = self.rng, self.columns
        along, step = rng.random() < 0.5, rng.choice((-1, 1, 2))
        periodic, nbytes, tag = rng.random() < 0.5, rng.choice(_SIZES), rng.randint(0, 3)
        extent = columns if along else self.rows

        def near(rank: int, by: int) -> int:
            place = (rank % columns if along else rank // columns) + by
            if not periodic and not 0 <= place < extent:
                return -1
            place %= extent
            return rank // columns * columns + place if along else place * columns + rank % columns

        for rank in range(self.n):
            to, source = near(rank, step), near(rank, -step)
            if to >= 0 and source >= 0:
                self.call(
                    rank, "MPI_Sendrecv", to, nbytes, tag=tag, peer2=source, bytes2=nbytes, tag2=tag
                )
            elif to >= 0:
                self.call(rank, "MPI_Send", to, nbytes, tag=tag)
            elif source >= 0:
                self.call(rank, "MPI_Recv", source, nbytes, tag=tag)

    def halo(self) -> None:
        """Receives, sends, one wait for all with the neighbours of a periodic grid."""
        rng, columns = self.rng, self.columns
        persistent, nbytes = rng.random() < 0.4, rng.choice(_SIZES)
        send, receive = (
            ("MPI_Send_init", "MPI_Recv_init") if persistent else ("MPI_Isend", "MPI_Irecv")
        )
        for _ in range(rng.randint(1, 3)):
            for rank in range(self.n):
                row, column = divmod(rank, columns)
                near = [
                    (row + a) % self.rows * columns + (column + b) % columns
                    for a, b in ((0, 1), (0, -1), (1, 0), (-1, 0))
                ]
                mine = [
                    self.call(rank, receive, peer, nbytes, tag=10 + (d ^ 1))
                    for d, peer in enumerate(near)
                ]
                mine += [
                    self.call(rank, send, peer, nbytes, tag=10 + d) for d, peer in enumerate(near)
                ]
                self.call(rank, "MPI_Waitall", done=mine)

    def ring(self) -> None:
        """Everybody sends and then receives: ends only if the library buffers."""
        nbytes, n = self.rng.choice(_SIZES), self.n
        for rank in range(n):
            self.call(rank, "MPI_Send", (rank + 1) % n, nbytes, tag=20)
            self.call(rank, "MPI_Recv", (rank - 1) % n, nbytes, tag=20)

    def pipeline(self) -> None:
        """Blocks go from rank to rank."""
        nbytes = self.rng.choice(_SIZES)
        for _ in range(self.rng.randint(1, 3)):
            for rank in range(1, self.n):
                self.message(rank - 1, rank, nbytes, 30, send="MPI_Send", receive="MPI_Recv")

    def wildcard(self) -> None:
        """One rank takes a message of every other one in the order in which they happened to
        come, all with one tag, and answers some."""
        rng, master = self.rng, self.rng.randrange(self.n)
        nbytes = rng.choice(_SIZES)
        for worker in rng.sample(range(self.n), self.n):
            if worker != master:
                self.message(worker, master, nbytes, 40, receive="MPI_Recv")
                if rng.random() < 0.5:
                    self.message(master, worker, 8, 41, receive="MPI_Recv")

    def collective(self) -> None:
        """A collective of the world or of a part of it."""
        rng = self.rng
        comm = rng.choice((0, *self.members))
        members = self.members.get(comm, list(range(self.n)))
        name, nbytes = rng.choice(_COLLECTIVES), rng.choice(_SIZES[:6])
        nbytes -= nbytes % (8 * len(members)) if name == "MPI_Alltoall" else 0
        root = rng.choice(members) if name in _ROOTED else -1
        later = rng.random() < 0.25
        called = "MPI_I" + name[4:].lower() if later else name
        for rank in members:
            own = nbytes + (8 * rank if name.endswith("v") else 0)
            step = self.call(rank, called, root, 0 if name == "MPI_Barrier" else own, comm=comm)
            if later:
                self.open[rank].append(step)
        if later and rng.random() < 0.7:
            for rank in members:
                self.complete(rank)

    def write(self) -> None:
        """Write a few parts, one after the other."""
        parts = (
            self.messages,
            self.messages,
            self.shift,
            self.halo,
            self.ring,
            self.pipeline,
            self.wildcard,
            self.collective,
            self.collective,
        )
        for part in self.rng.choices(parts, k=self.rng.randint(2, 6)):
            part()
            self.said.append(part.__name__)
            if self.rng.random() < 0.5:
                for rank in range(self.n):
                    self.complete(rank)
        if self.rng.random() < 0.9:
            for rank in range(self.n):
                self.complete(rank)
        for rank in range(self.n):
            if self.rng.random() < 0.3:
                self.builder.add(rank, "REST", work_ns=1e4)


def pattern(seed: int) -> Pattern:
    """Return a pattern; equal seeds give equal ones."""
    story = Story(seed)
    story.write()
    return Pattern(
        seed,
        story.builder.build(),
        story.rng.randint(1, 4),
        f"{story.rows}x{story.columns}: " + ", ".join(story.said),
    )
