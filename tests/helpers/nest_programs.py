"""Programs of the fold's corpus as nests (tests/nests.py): what the sources state, without MPI.

They follow tests/programs/phases/*.c and the patterns of real programs; extents are small.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from nests import PROC_NULL, At, Call, Nest, main, nest, sendrecv

from p3s.base.extents import dims_balanced


def next_rank(step: int, loop: str = "") -> Callable[[At], int]:
    """Return the rank that is a step further on the ring, in turn k of a loop k steps more."""
    return lambda at: (at.rank + step * (1 + (at[loop] if loop else 0))) % at.n


def grid(at: At) -> tuple[int, int, int, int]:
    """Return (columns, rows, own column, own row) of the balanced 2-D grid."""
    px, py = dims_balanced(at.n, 2)
    return px, py, at.rank // py, at.rank % py


def near(at: At, dx: int, dy: int) -> int:
    """Return the neighbour in the bordered 2-D grid, or MPI_PROC_NULL."""
    px, py, x, y = grid(at)
    inside = 0 <= x + dx < px and 0 <= y + dy < py
    return (x + dx) * py + y + dy if inside else PROC_NULL


RING = (Call("Isend", peer=next_rank(1)), Call("Recv", peer=next_rank(-1)), Call("Wait"))
SIDES = (("west", -1, 0), ("east", 1, 0), ("south", 0, -1), ("north", 0, 1))


def halo(guards: bool, sites: str = "") -> tuple[Call, ...]:
    """Return a bordered 2-D halo exchange, by guards or by MPI_PROC_NULL."""
    out = []
    for op in ("Irecv", "Isend"):
        for side, dx, dy in SIDES:
            out.append(
                Call(
                    op,
                    sites + op + side,
                    (lambda at, dx=dx, dy=dy: near(at, dx, dy) >= 0) if guards else None,
                    lambda at, dx=dx, dy=dy: near(at, dx, dy),
                )
            )
    return (*out, Call("Waitall", sites + "waitall"))


def jacobi(steps: int = 12, guards: bool = True) -> Nest:
    """A halo and a convergence test per step."""
    return main(
        Call("Bcast"), nest("steps", steps, *halo(guards), Call("Allreduce")), Call("Reduce")
    )


def active(at: At, levels: int = 4) -> int:
    """Return on how many levels a rank works: level k has every 2^k-th rank."""
    return next((k + 1 for k in range(levels) if at.rank % 2 ** (k + 1)), levels)


def vcycle(cycles: int = 5, levels: int = 4) -> Nest:
    """Multigrid: ranks fall idle on the way down; as loops or by recursion, the events agree."""

    def step(k: int, at: At) -> int:
        return (at.rank + 2**k) % at.n

    down = nest(
        "down",
        lambda at: active(at, levels),
        Call("Irecv", "smooth_r", peer=lambda at: step(at["down"], at)),
        Call("Isend", "smooth_s", peer=lambda at: step(at["down"], at)),
        Call("Waitall", "smooth_w"),
        Call(
            "Send",
            "restrict",
            lambda at: at.rank > 0,
            lambda at: at.rank - at.rank % 2 ** (at["down"] + 1),
        ),
    )
    up = nest(
        "up",
        lambda at: active(at, levels),
        Call(
            "Recv",
            "prolong",
            lambda at: at.rank > 0,
            lambda at: at.rank - at.rank % 2 ** (at["up"] + 1),
        ),
        Call("Irecv", "up_r", peer=lambda at: step(at["up"], at)),
        Call("Isend", "up_s", peer=lambda at: step(at["up"], at)),
        Call("Waitall", "up_w"),
    )
    return main(
        Call("Bcast"), nest("cycles", cycles, down, up, Call("Allreduce", "norm")), Call("Reduce")
    )


def levels_of(n: int) -> int:
    """Return how many levels tests/programs/phases/vcycle.c has."""
    return (n - 1).bit_length()


def vcycle_exits(cycles: int = 5) -> Nest:
    """Multigrid as in vcycle.c: a rank leaves the way down by a send, and returns by a receive.

    On its last level it does not take part of another rank, on its first on the way up it does
    not give one back, unless it is rank 0, which works on all levels.
    """

    def mine(at: At) -> int:
        return active(at, levels_of(at.n))

    def exchange(name: str) -> tuple[Call, ...]:
        return (
            Call("Irecv", name + "_r", peer=lambda at: at.rank),
            Call("Isend", name + "_s", peer=lambda at: at.rank),
            Call("Waitall", name + "_w"),
        )

    def keeps(at: At, level: int) -> bool:
        return at.rank % 2 ** (level + 1) == 0 and at.rank + 2**level < at.n

    return main(
        nest(
            "cycles",
            cycles,
            nest(
                "down",
                mine,
                *exchange("down"),
                Call(
                    "Recv",
                    "take",
                    lambda at: keeps(at, at["down"]),
                    lambda at: at.rank + 2 ** at["down"],
                ),
            ),
            Call("Send", "leave", lambda at: at.rank > 0),
            Call("Recv", "return", lambda at: at.rank > 0),
            nest(
                "up",
                mine,
                Call(
                    "Send",
                    "give",
                    lambda at: keeps(at, mine(at) - 1 - at["up"]),
                    lambda at: at.rank + 2 ** (mine(at) - 1 - at["up"]),
                ),
                *exchange("up"),
            ),
            Call("Allreduce", "norm"),
        )
    )


def fft(steps: int = 6) -> Nest:
    """Transposes in row and column communicators, forth and back."""
    return main(
        Call("Comm_split", "row"),
        Call("Comm_split", "column"),
        Call("Alltoall", "warm"),
        nest(
            "steps",
            steps,
            Call("Alltoall", "row_forth"),
            Call("Alltoall", "column_forth"),
            Call("Alltoall", "column_back"),
            Call("Alltoall", "row_back"),
        ),
        Call("Reduce", "checksum"),
    )


def multipartition(steps: int = 7) -> Nest:
    """Block-tridiagonal solver on squares: per direction p - 1 stages forth and p - 1 back."""

    def side(at: At) -> int:
        return round(at.n**0.5)

    def stages(name: str, d: int) -> Nest:
        # Written with p stages, the first of which does not receive and the last not send.
        return nest(
            name,
            lambda at: side(at) - 1,
            Call("Isend", name + "s", peer=lambda at: (at.rank + d) % at.n),
            Call("Wait", name + "ws"),
            Call("Irecv", name + "r", peer=lambda at: (at.rank - d) % at.n),
            Call("Wait", name + "wr"),
        )

    faces = [
        Call(op, f"face{op}{d}", peer=lambda at, d=d: (at.rank + d) % at.n)
        for op in ("Irecv", "Isend")
        for d in (1, -1, 2, -2, 3, -3)
    ]
    solves = [
        part
        for axis, d in (("x", 1), ("y", 2), ("z", 3))
        for part in (stages(axis + "_forth", d), stages(axis + "_back", -d))
    ]
    return main(
        Call("Bcast"),
        *faces_once(faces),
        nest("steps", steps, *faces, Call("Waitall"), *solves),
        Call("Allreduce"),
    )


def faces_once(faces: list[Call]) -> list[Call]:
    """Return the exchange before the timed loop, which is other code."""
    return [Call(c.op, "first" + c.site, c.when, c.peer) for c in faces]


def every_tenth(steps: int = 25, last: bool = True) -> Nest:
    """A halo on a ring with output every tenth step, after the exchange or in its middle."""
    out = Call("Gather", "output", lambda at: at["steps"] % 10 == 9)
    steps_body = (*RING, out) if last else (*RING[:2], out, RING[2])
    return main(nest("steps", steps, *steps_body), Call("Barrier", "end"))


def either_or(steps: int = 100) -> Nest:
    """Molecular dynamics: positions by forward swaps, or every 20th step exchange and borders.

    Then, in every step, forces by reverse swaps. There is no call that all steps begin with.
    """

    def swaps(name: str, when: Callable[[At], bool]) -> Nest:
        return nest(
            name,
            lambda at: 2 * sum(p > 1 for p in grid(at)[:2]) if when(at) else 0,
            Call("Irecv", name + "_r", peer=lambda at: (at.rank + at[name] + 1) % at.n),
            Call("Send", name + "_s", peer=lambda at: (at.rank - at[name] - 1) % at.n),
            Call("Wait", name + "_w"),
            walk="partners",
        )

    def new(at: At) -> bool:
        return at["steps"] % 20 == 19

    return main(
        Call("Bcast"),
        nest(
            "steps",
            steps,
            swaps("forward", lambda at: not new(at)),
            Call("Allreduce", "migrate", new),
            swaps("borders", new),
            swaps("reverse", lambda at: True),
        ),
        Call("Allreduce", "energy"),
    )


def output_nest(rounds: int = 4, steps: int = 5) -> Nest:
    """Rounds of steps with output after each: the inner loop comes first in the outer body."""
    return main(
        nest(
            "rounds",
            rounds,
            nest("steps", lambda at: steps + at["rounds"] % 2, *RING),
            Call("Gather", "output"),
        )
    )


def master_worker(tasks: int = 40) -> Nest:
    """Polling master and workers; who does how many tasks is chance (here: a fixed one)."""

    def mine(at: At) -> int:
        chance = random.Random(at.n)
        who = [chance.randrange(1, at.n) for _ in range(tasks - at.n + 1)]
        return 1 + who.count(at.rank) if at.rank else 0

    def master(at: At) -> bool:
        return at.rank == 0

    return main(
        nest(
            "deal",
            lambda at: at.n - 1 if master(at) else 0,
            Call("Send", "deal", peer=lambda at: 1 + at["deal"]),
            walk="partners",
        ),
        nest(
            "serve",
            lambda at: tasks if master(at) else 0,
            Call("Iprobe"),
            Call("Recv", "result"),
            Call("Send", "next", lambda at: at["serve"] < tasks - at.n + 1),
        ),
        nest(
            "stop",
            lambda at: at.n - 1 if master(at) else 0,
            Call("Send", "stop", peer=lambda at: 1 + at["stop"]),
            walk="partners",
        ),
        nest(
            "work",
            lambda at: 0 if master(at) else mine(at),
            Call("Recv", "task", peer=lambda at: 0),
            Call("Send", "done", peer=lambda at: 0),
        ),
        Call("Recv", "stopped", lambda at: not master(at), lambda at: 0),
        Call("Barrier"),
    )


def ring(steps: int = 3) -> Nest:
    """A ring whose number of shifts depends on the rank, and a reduction."""
    return main(
        nest(
            "steps",
            steps,
            nest("shifts", lambda at: at.n - 1 - at.rank, Call("Send", "right", peer=next_rank(1))),
            nest(
                "takes",
                lambda at: (at.n - at.rank) % at.n,
                Call("Recv", "left", peer=next_rank(-1)),
            ),
            Call("Allreduce"),
        )
    )


#: Directions (x, y) of the octants of a sweep in the order of Sweep3D; z does not communicate.
OCTANTS = ((-1, -1), (-1, -1), (1, -1), (1, -1), (-1, 1), (-1, 1), (1, 1), (1, 1))


def octants(sweeps: int = 3, blocks: int = 4, guards: bool = False) -> Nest:
    """Sweeps over eight octants in blocks: the direction changes inside one site."""

    def there(at: At, axis: int, ahead: int) -> int:
        sign = OCTANTS[at["octants"]][axis] * ahead
        return near(at, sign, 0) if axis == 0 else near(at, 0, sign)

    def call(op: str, axis: int, ahead: int) -> Call:
        return Call(
            op,
            f"{op}_{'xy'[axis]}",
            (lambda at: there(at, axis, ahead) >= 0) if guards else None,
            lambda at: there(at, axis, ahead),
        )

    return main(
        nest(
            "sweeps",
            sweeps,
            nest(
                "octants",
                8,
                nest(
                    "blocks",
                    blocks,
                    call("Recv", 0, -1),
                    call("Recv", 1, -1),
                    call("Send", 0, 1),
                    call("Send", 1, 1),
                ),
            ),
            Call("Allreduce"),
        )
    )


def bisected(steps: int = 6) -> Nest:
    """A neighbour list on a box cut by recursive bisection: partners look like chance."""

    def partners(at: At) -> list[int]:
        """Return the touching parts of [0, 1) cut in turn at 0.4 and 0.6, cyclically."""

        def cut(low: float, high: float, first: int, count: int, depth: int) -> list[float]:
            if count == 1:
                return [low]
            half = count // 2
            middle = low + (high - low) * (0.4 if depth % 2 else 0.6)
            return cut(low, middle, first, half, depth + 1) + cut(
                middle, high, first + half, count - half, depth + 1
            )

        edges = [*cut(0.0, 1.0, 0, at.n, 0), 1.0]
        reach = 0.12
        mine = edges[at.rank] - reach, edges[at.rank + 1] + reach
        return [
            q for q in range(at.n) if q != at.rank and edges[q] < mine[1] and edges[q + 1] > mine[0]
        ]

    def walk(name: str, op: str) -> Nest:
        return nest(
            name,
            lambda at: len(partners(at)),
            Call(op, name, peer=lambda at: partners(at)[at[name]]),
            walk="partners",
        )

    return main(
        nest(
            "steps",
            steps,
            walk("posts", "Irecv"),
            walk("sends", "Isend"),
            Call("Waitall"),
            Call("Allreduce"),
        )
    )


def first_and_last(steps: int = 9) -> Nest:
    """A different first and last turn, inside the body, and an end of all turns but the last."""
    return main(
        Call("Bcast", "before"),
        nest(
            "steps",
            steps,
            *sendrecv("shift", next_rank(1), next_rank(-1)),
            Call("Bcast", "setup", lambda at: at["steps"] == 0),
            Call("Allreduce"),
            Call("Gather", "result", lambda at: at["steps"] == steps - 1),
            Call("Barrier", "between"),
            Call("Scan", when=lambda at: at["steps"] < steps - 1),
        ),
        Call("Reduce", "after"),
    )


def few_trips(steps: int = 8) -> Nest:
    """Inner loops of no turn, one turn and up to three, by rank; and one of one turn always."""
    return main(
        nest(
            "steps",
            steps,
            nest("some", lambda at: at.rank % 4, Call("Isend", peer=next_rank(1))),
            nest("others", lambda at: (at.rank - 1) % at.n % 4, Call("Recv", peer=next_rank(-1))),
            nest("once", 1, Call("Waitall")),
            Call("Barrier"),
        )
    )


def fused(outer: int = 4, inner: int = 3) -> Nest:
    """A perfect nest: no event tells the outer loop from the inner one."""
    return main(
        Call("Barrier", "start"),
        nest(
            "outer",
            outer,
            nest("inner", inner, *sendrecv("shift", next_rank(1, "inner"), next_rank(-1, "inner"))),
        ),
        Call("Barrier", "end"),
    )


def deep(trips: tuple[int, int, int, int] = (2, 3, 4, 5)) -> Nest:
    """Four loops in each other, each ending in a call of its own."""
    body: tuple[Call | Nest, ...] = ()
    for k, t in reversed(list(enumerate(trips))):
        body = (nest(f"loop{k}", t, *body, Call("Allreduce", f"end{k}")),)
    return main(*body)


def waitany(steps: int = 7) -> Nest:
    """An exchange with both neighbours completed one by one, in any order."""
    return main(
        nest(
            "steps",
            steps,
            *halo(True)[:-1],
            nest(
                "completions",
                lambda at: 2 * sum(near(at, dx, dy) >= 0 for _, dx, dy in SIDES),
                Call("Waitany"),
                walk="requests",
            ),
            Call("Allreduce"),
        )
    )


def ping(turns: int = 11) -> Nest:
    """A ping over an intercommunicator of two halves; an odd rank too many stays out."""

    def half(at: At) -> int:
        return at.n // 2

    def low(at: At) -> bool:
        return at.rank < half(at)

    def high(at: At) -> bool:
        return half(at) <= at.rank < 2 * half(at)

    return main(
        Call("Comm_split"),
        Call("Intercomm_create", when=lambda at: low(at) or high(at)),
        nest(
            "turns",
            turns,
            Call("Send", "ping", low, lambda at: at.rank + half(at)),
            Call("Recv", "ping_r", high, lambda at: at.rank - half(at)),
            Call("Send", "pong", high, lambda at: at.rank - half(at)),
            Call("Recv", "pong_r", low, lambda at: at.rank + half(at)),
        ),
        Call("Barrier"),
    )


def exchange_pairs(steps: int = 5) -> Nest:
    """Every rank exchanges with every other, one after the other, in each step."""
    return main(
        nest(
            "steps",
            steps,
            nest(
                "pairs",
                lambda at: at.n - 1,
                *sendrecv("pairs", next_rank(1, "pairs"), next_rank(-1, "pairs")),
                walk="partners",
            ),
            Call("Allreduce"),
        )
    )


def steps_by_count(total: int = 200) -> Nest:
    """A loop whose trips shrink with the count, one that grows with its root and its log."""
    return main(
        nest("shares", lambda at: total // at.n, Call("Allreduce", "a")),
        nest("rows", lambda at: int(at.n**0.5), Call("Allreduce", "b")),
        nest("stages", lambda at: at.n.bit_length() - 1, Call("Allreduce", "c")),
    )


def irregular(seed: int = 1, steps: int = 30) -> Nest:
    """A step loop whose inner trips and guards are chance, different on every rank."""

    def chance(at: At, what: str) -> random.Random:
        return random.Random(f"{seed} {what} {at.n} {at.rank} {at['steps']}")

    return main(
        nest(
            "steps",
            steps,
            Call("Allreduce", "begin"),
            nest(
                "inner",
                lambda at: chance(at, "inner").randrange(4),
                Call("Isend"),
                Call("Irecv", when=lambda at: at["inner"] != 1),
                Call("Wait"),
            ),
            Call("Bcast", when=lambda at: chance(at, "guard").random() < 0.3),
            Call("Allreduce", "end"),
        )
    )


#: name -> (program, counts it runs at).
PROGRAMS: dict[str, tuple[Nest, tuple[int, ...]]] = {
    "jacobi-guards": (jacobi(), (4, 8, 16, 27)),
    "jacobi-null": (jacobi(guards=False), (4, 9, 16, 25)),
    "vcycle": (vcycle(), (4, 8, 16, 27)),
    "vcycle-exits": (vcycle_exits(), (4, 8, 16)),
    "vcycle-exits-27": (vcycle_exits(), (4, 8, 16, 27)),
    "fft": (fft(), (4, 8, 16, 27)),
    "multipartition": (multipartition(), (4, 9, 16, 25)),
    "every-tenth": (every_tenth(), (4, 8, 16, 27)),
    "every-tenth-inside": (every_tenth(40, last=False), (4, 9, 16, 25)),
    "either-or": (either_or(), (4, 8, 16, 27)),
    "output-nest": (output_nest(), (4, 8, 16, 27)),
    "master-worker": (master_worker(), (4, 8, 16, 27)),
    "ring": (ring(), (4, 8, 16, 27)),
    "octants-null": (octants(), (4, 9, 16, 25)),
    "octants-guards": (octants(guards=True), (4, 9, 16, 25)),
    "bisected": (bisected(), (4, 8, 16, 27)),
    "first-and-last": (first_and_last(), (4, 8, 16, 27)),
    "few-trips": (few_trips(), (4, 9, 16, 25)),
    "fused": (fused(), (4, 8, 16, 27)),
    "deep": (deep(), (4, 9)),
    "waitany": (waitany(), (4, 9, 16, 25)),
    "ping": (ping(), (4, 8, 16, 27)),
    "exchange-pairs": (exchange_pairs(), (4, 8, 16, 27)),
    "steps-by-count": (steps_by_count(), (4, 8, 16, 27)),
    "irregular": (irregular(), (4, 9, 16, 25)),
}
