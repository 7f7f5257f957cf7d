"""Programs of the fold's corpus, whose loops have names: what the sources state, without MPI.

They follow tests/programs/phases/*.c and the patterns of real programs; extents are small. They
keep to what trees.py asks of a program whose true tree can be seen in its events.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Concatenate

from corpus.language import Program, Recorder, Settings
from p3s.base.extents import dims_balanced

PROC_NULL = -3
SIDES = (("west", -1, 0), ("east", 1, 0), ("south", 0, -1), ("north", 0, 1))


def nest(body: Callable[Concatenate[Recorder, Settings], None]) -> Callable[Settings, Program]:
    """Return a function from settings to a program; its calls carry 8 bytes unless they say."""

    @wraps(body)
    def with_settings(*args: Settings.args, **more: Settings.kwargs) -> Program:
        def run(rec: Recorder) -> None:
            rec.usual = 8
            body(rec, *args, **more)
            rec.usual = 0

        return run

    return with_settings


def near(rec: Recorder, dx: int, dy: int) -> int:
    """Return the neighbour in the bordered balanced 2-D grid, or MPI_PROC_NULL."""
    px, py = dims_balanced(rec.n, 2)
    x, y = rec.rank // py + dx, rec.rank % py + dy
    return x * py + y if 0 <= x < px and 0 <= y < py else PROC_NULL


def further(rec: Recorder, step: int) -> int:
    """Return the rank that is a step further on the ring."""
    return (rec.rank + step) % rec.n


def each(rec: Recorder, *ops: str) -> None:
    """Record calls that say nothing but their names."""
    for op in ops:
        rec(op)


def halo(rec: Recorder, guards: bool = True) -> None:
    """Record the posts of a bordered 2-D halo, by guards or by MPI_PROC_NULL."""
    for op in ("Irecv", "Isend"):
        for side, dx, dy in SIDES:
            peer = near(rec, dx, dy)
            if peer >= 0 or not guards:
                rec(op, op + side, peer)


def posts(rec: Recorder, name: str, receive: int, send: int) -> None:
    """Record a receive, a send, and a wait for both."""
    rec("Irecv", name + "_r", receive)
    rec("Isend", name + "_s", send)
    rec("Waitall", name + "_w")


@nest
def jacobi(rec: Recorder, steps: int = 12, guards: bool = True) -> None:
    """A halo and a convergence test per step."""
    rec("Bcast")
    for _ in rec.loop("steps", steps):
        halo(rec, guards)
        rec("Waitall", "waitall")
        rec("Allreduce")
    rec("Reduce")


def active(rec: Recorder, levels: int) -> int:
    """Return on how many levels a rank works: level k has every 2^k-th rank."""
    return next((k + 1 for k in range(levels) if rec.rank % 2 ** (k + 1)), levels)


@nest
def vcycle(rec: Recorder, cycles: int = 5, levels: int = 4) -> None:
    """Multigrid: ranks fall idle on the way down; as loops or by recursion, the events agree."""
    mine = active(rec, levels)
    rec("Bcast")
    for _ in rec.loop("cycles", cycles):
        for k in rec.loop("down", mine):
            posts(rec, "smooth", further(rec, 2**k), further(rec, 2**k))
            if rec.rank:
                rec("Send", "restrict", rec.rank - rec.rank % 2 ** (k + 1))
        for k in rec.loop("up", mine):
            if rec.rank:
                rec("Recv", "prolong", rec.rank - rec.rank % 2 ** (k + 1))
            posts(rec, "up", further(rec, 2**k), further(rec, 2**k))
        rec("Allreduce", "norm")
    rec("Reduce")


@nest
def vcycle_exits(rec: Recorder, cycles: int = 5) -> None:
    """Multigrid as in vcycle.c: a rank leaves the way down by a send, and returns by a receive.

    On its last level it does not take part of another rank, on its first on the way up it does
    not give one back, unless it is rank 0, which works on all levels.
    """
    rank = rec.rank
    mine = active(rec, (rec.n - 1).bit_length())

    def keeps(level: int) -> bool:
        return rank % 2 ** (level + 1) == 0 and rank + 2**level < rec.n

    for _ in rec.loop("cycles", cycles):
        for k in rec.loop("down", mine):
            posts(rec, "down", rank, rank)
            if keeps(k):
                rec("Recv", "take", rank + 2**k)
        if rank:
            rec("Send", "leave")
            rec("Recv", "return")
        for k in rec.loop("up", mine):
            level = mine - 1 - k
            if keeps(level):
                rec("Send", "give", rank + 2**level)
            posts(rec, "up", rank, rank)
        rec("Allreduce", "norm")


@nest
def fft(rec: Recorder, steps: int = 6) -> None:
    """Transposes in row and column communicators, forth and back."""
    rec("Comm_split", "row")
    rec("Comm_split", "column")
    rec("Alltoall", "warm")
    for _ in rec.loop("steps", steps):
        for site in ("row_forth", "column_forth", "column_back", "row_back"):
            rec("Alltoall", site)
    rec("Reduce", "checksum")


@nest
def multipartition(rec: Recorder, steps: int = 7) -> None:
    """Block-tridiagonal solver on squares: per direction p - 1 stages forth and p - 1 back."""

    def faces(before: str) -> None:
        for op in ("Irecv", "Isend"):
            for d in (1, -1, 2, -2, 3, -3):
                rec(op, f"{before}face{op}{d}", further(rec, d))

    def stages(name: str, d: int) -> None:
        # Written with p stages, the first of which does not receive and the last not send.
        for _ in rec.loop(name, round(rec.n**0.5) - 1):
            rec("Isend", name + "s", further(rec, d))
            rec("Wait", name + "ws")
            rec("Irecv", name + "r", further(rec, -d))
            rec("Wait", name + "wr")

    rec("Bcast")
    faces("first")  # before the timed loop, which is other code
    for _ in rec.loop("steps", steps):
        faces("")
        rec("Waitall")
        for axis, d in (("x", 1), ("y", 2), ("z", 3)):
            stages(axis + "_forth", d)
            stages(axis + "_back", -d)
    rec("Allreduce")


@nest
def every_tenth(rec: Recorder, steps: int = 25, last: bool = True) -> None:
    """A halo on a ring with output every tenth step, after the exchange or in its middle."""
    for k in rec.loop("steps", steps):
        rec("Isend", peer=further(rec, 1))
        rec("Recv", peer=further(rec, -1))
        if last:
            rec("Wait")
        if k % 10 == 9:
            rec("Gather", "output")
        if not last:
            rec("Wait")
    rec("Barrier", "end")


@nest
def either_or(rec: Recorder, steps: int = 100) -> None:
    """Molecular dynamics: positions by forward swaps, or every 20th step exchange and borders.

    Then, in every step, forces by reverse swaps. There is no call that all steps begin with.
    """
    turns = 2 * sum(p > 1 for p in dims_balanced(rec.n, 2))

    def swaps(name: str, when: bool) -> None:
        for k in rec.loop(name, turns if when else 0, "partners"):
            rec("Irecv", name + "_r", further(rec, k + 1))
            rec("Send", name + "_s", further(rec, -k - 1))
            rec("Wait", name + "_w")

    rec("Bcast")
    for step in rec.loop("steps", steps):
        new = step % 20 == 19
        swaps("forward", not new)
        if new:
            rec("Allreduce", "migrate")
        swaps("borders", new)
        swaps("reverse", True)
    rec("Allreduce", "energy")


@nest
def output_nest(rec: Recorder, rounds: int = 4, steps: int = 5) -> None:
    """Rounds of steps with output after each: the inner loop comes first in the outer body."""
    for k in rec.loop("rounds", rounds):
        for _ in rec.loop("steps", steps + k % 2):
            rec("Isend", peer=further(rec, 1))
            rec("Recv", peer=further(rec, -1))
            rec("Wait")
        rec("Gather", "output")


@nest
def master_worker(rec: Recorder, tasks: int = 40) -> None:
    """Polling master and workers; who does how many tasks is chance (here: a fixed one)."""
    chance = random.Random(rec.n)
    who = [chance.randrange(1, rec.n) for _ in range(tasks - rec.n + 1)]
    if not rec.rank:
        for k in rec.loop("deal", rec.n - 1, "partners"):
            rec("Send", "deal", 1 + k)
        for k in rec.loop("serve", tasks):
            rec("Iprobe")
            rec("Recv", "result")
            if k < tasks - rec.n + 1:
                rec("Send", "next")
        for k in rec.loop("stop", rec.n - 1, "partners"):
            rec("Send", "stop", 1 + k)
    else:
        for _ in rec.loop("work", 1 + who.count(rec.rank)):
            rec("Recv", "task", 0)
            rec("Send", "done", 0)
        rec("Recv", "stopped", 0)
    rec("Barrier")


@nest
def ring(rec: Recorder, steps: int = 3) -> None:
    """A ring whose number of shifts depends on the rank, and a reduction."""
    for _ in rec.loop("steps", steps):
        for _ in rec.loop("shifts", rec.n - 1 - rec.rank):
            rec("Send", "right", further(rec, 1))
        for _ in rec.loop("takes", -rec.rank % rec.n):
            rec("Recv", "left", further(rec, -1))
        rec("Allreduce")


#: Directions (x, y) of the octants of a sweep in the order of Sweep3D; z does not communicate.
OCTANTS = ((-1, -1), (-1, -1), (1, -1), (1, -1), (-1, 1), (-1, 1), (1, 1), (1, 1))


@nest
def octants(rec: Recorder, sweeps: int = 3, blocks: int = 4, guards: bool = False) -> None:
    """Sweeps over eight octants in blocks: the direction changes inside one site."""
    for _ in rec.loop("sweeps", sweeps):
        for k in rec.loop("octants", 8):
            x, y = OCTANTS[k]
            for _ in rec.loop("blocks", blocks):
                for op, ahead in (("Recv", -1), ("Send", 1)):
                    for axis, step in (("x", (x * ahead, 0)), ("y", (0, y * ahead))):
                        peer = near(rec, *step)
                        if peer >= 0 or not guards:
                            rec(op, f"{op}_{axis}", peer)
        rec("Allreduce")


def touching(rec: Recorder, reach: float = 0.12) -> list[int]:
    """Return the ranks whose parts of [0, 1), cut in turn at 0.4 and 0.6, touch the own one."""

    def cut(low: float, high: float, count: int, depth: int) -> Iterator[float]:
        if count == 1:
            yield low
            return
        half = count // 2
        middle = low + (high - low) * (0.4 if depth % 2 else 0.6)
        yield from cut(low, middle, half, depth + 1)
        yield from cut(middle, high, count - half, depth + 1)

    edges = [*cut(0.0, 1.0, rec.n, 0), 1.0]
    low, high = edges[rec.rank] - reach, edges[rec.rank + 1] + reach
    others = (q for q in range(rec.n) if q != rec.rank)
    return [q for q in others if edges[q] < high and edges[q + 1] > low]


@nest
def bisected(rec: Recorder, steps: int = 6) -> None:
    """A neighbour list on a box cut by recursive bisection: partners look like chance."""
    partners = touching(rec)
    for _ in rec.loop("steps", steps):
        for name, op in (("posts", "Irecv"), ("sends", "Isend")):
            for k in rec.loop(name, len(partners), "partners"):
                rec(op, name, partners[k])
        each(rec, "Waitall", "Allreduce")


@nest
def first_and_last(rec: Recorder, steps: int = 9) -> None:
    """A different first and last turn, inside the body, and an end of all turns but the last."""
    rec("Bcast", "before")
    for k in rec.loop("steps", steps):
        rec.exchange("shift", further(rec, 1), further(rec, -1), 8)
        if k == 0:
            rec("Bcast", "setup")
        rec("Allreduce")
        if k == steps - 1:
            rec("Gather", "result")
        rec("Barrier", "between")
        if k < steps - 1:
            rec("Scan")
    rec("Reduce", "after")


@nest
def few_trips(rec: Recorder, steps: int = 8) -> None:
    """Inner loops of no turn, one turn and up to three, by rank; and one of one turn always."""
    for _ in rec.loop("steps", steps):
        for _ in rec.loop("some", rec.rank % 4):
            rec("Isend", peer=further(rec, 1))
        for _ in rec.loop("others", further(rec, -1) % 4):
            rec("Recv", peer=further(rec, -1))
        for _ in rec.loop("once", 1):
            rec("Waitall")
        rec("Barrier")


@nest
def fused(rec: Recorder, outer: int = 4, inner: int = 3) -> None:
    """A perfect nest: no event tells the outer loop from the inner one."""
    rec("Barrier", "start")
    for _ in rec.loop("outer", outer):
        for k in rec.loop("inner", inner):
            rec.exchange("shift", further(rec, 1 + k), further(rec, -1 - k), 8)
    rec("Barrier", "end")


@nest
def deep(rec: Recorder, turns: Sequence[int] = (2, 3, 4, 5)) -> None:
    """Loops in each other, each ending in a call of its own."""

    def inside(k: int) -> None:
        if k < len(turns):
            for _ in rec.loop(f"loop{k}", turns[k]):
                inside(k + 1)
                rec("Allreduce", f"end{k}")

    inside(0)


@nest
def waitany(rec: Recorder, steps: int = 7) -> None:
    """An exchange with both neighbours completed one by one, in any order."""
    there = sum(near(rec, dx, dy) >= 0 for _, dx, dy in SIDES)
    for _ in rec.loop("steps", steps):
        halo(rec)
        for _ in rec.loop("completions", 2 * there, "requests"):
            rec("Waitany")
        rec("Allreduce")


@nest
def ping(rec: Recorder, turns: int = 11) -> None:
    """A ping over an intercommunicator of two halves; an odd rank too many stays out."""
    half = rec.n // 2
    low = rec.rank < half
    rec("Comm_split")
    if rec.rank < 2 * half:
        rec("Intercomm_create")
        for _ in rec.loop("turns", turns):
            for name, sends in (("ping", low), ("pong", not low)):
                op, site = ("Send", name) if sends else ("Recv", name + "_r")
                rec(op, site, rec.rank + half if low else rec.rank - half)
    rec("Barrier")


@nest
def exchange_pairs(rec: Recorder, steps: int = 5) -> None:
    """Every rank exchanges with every other, one after the other, in each step."""
    for _ in rec.loop("steps", steps):
        for k in rec.loop("pairs", rec.n - 1, "partners"):
            rec.exchange("pairs", further(rec, 1 + k), further(rec, -1 - k), 8)
        rec("Allreduce")


@nest
def steps_by_count(rec: Recorder, total: int = 200) -> None:
    """A loop whose trips shrink with the count, one that grows with its root and its log."""
    loops = (
        ("shares", total // rec.n, "a"),
        ("rows", int(rec.n**0.5), "b"),
        ("stages", rec.n.bit_length() - 1, "c"),
    )
    for name, turns, site in loops:
        for _ in rec.loop(name, turns):
            rec("Allreduce", site)


@nest
def irregular(rec: Recorder, seed: int = 1, steps: int = 30) -> None:
    """A step loop whose inner trips and guards are chance, different on every rank."""
    for k in rec.loop("steps", steps):

        def chance(what: str, k: int = k) -> random.Random:
            return random.Random(f"{seed} {what} {rec.n} {rec.rank} {k}")

        rec("Allreduce", "begin")
        for turn in rec.loop("inner", chance("inner").randrange(4)):
            rec("Isend")
            if turn != 1:
                rec("Irecv")
            rec("Wait")
        if chance("guard").random() < 0.3:
            rec("Bcast")
        rec("Allreduce", "end")


EVEN, SQUARES = (4, 8, 16, 27), (4, 9, 16, 25)
#: name -> (program, counts it runs at).
PROGRAMS: dict[str, tuple[Program, tuple[int, ...]]] = {
    "jacobi-guards": (jacobi(), EVEN),
    "jacobi-null": (jacobi(guards=False), SQUARES),
    "vcycle": (vcycle(), EVEN),
    "vcycle-exits": (vcycle_exits(), (4, 8, 16)),
    "vcycle-exits-27": (vcycle_exits(), EVEN),
    "fft": (fft(), EVEN),
    "multipartition": (multipartition(), SQUARES),
    "every-tenth": (every_tenth(), EVEN),
    "every-tenth-inside": (every_tenth(40, last=False), SQUARES),
    "either-or": (either_or(), EVEN),
    "output-nest": (output_nest(), EVEN),
    "master-worker": (master_worker(), EVEN),
    "ring": (ring(), EVEN),
    "octants-null": (octants(), SQUARES),
    "octants-guards": (octants(guards=True), SQUARES),
    "bisected": (bisected(), EVEN),
    "first-and-last": (first_and_last(), EVEN),
    "few-trips": (few_trips(), SQUARES),
    "fused": (fused(), EVEN),
    "deep": (deep(), (4, 9)),
    "waitany": (waitany(), SQUARES),
    "ping": (ping(), EVEN),
    "exchange-pairs": (exchange_pairs(), EVEN),
    "steps-by-count": (steps_by_count(), EVEN),
    "irregular": (irregular(), SQUARES),
}
