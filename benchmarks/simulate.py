"""How fast the dependency simulation is: calls per second and memory of a halo and of others.

    python benchmarks/all.py --only simulate

``halo``: per turn four Irecv, four Isend, one Waitall on a periodic grid; ``sweep``: two receives
and two sends of a wavefront; ``exchange``: recursive doubling by Sendrecv. Every line is measured
in a process of its own. Rates count calls (steps) by the CPU time of the simulation on one core,
the checks of its input included, least of the repeats. A whole process builds and simulates once,
one turn after the other, as predictions do without links.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figure, Found, Point, Used, apart, resident_mib
from loggopsim import loggopsim

PATTERNS = ("halo", "sweep", "exchange")
#: Turns in a window of a folded loop.
WINDOW = 3
BYTES, CORES = 8192, 64
#: Ranks and iterations of the halos that figures are made of, and ranks of those that grow.
SIZES = ((256, 6), (1024, 6), (4096, 6), (4096, 20))
GROWTH = (64, 1024, 16384, 65536)
#: Peak memory that is aimed at.
MEMORY_MIB = {(4096, 20): 40.0, (16384, 20): 70.0}


def grid(n: int) -> tuple[int, int]:
    """Return the two extents of the squarest grid of n ranks."""
    rows = next(r for r in range(int(n**0.5), 0, -1) if n % r == 0)
    return rows, n // rows


def table(pattern: str, n: int) -> tuple[list[int], np.ndarray, np.ndarray, list[list[int]]]:
    """Return one turn: operations, peers (ranks x calls), partners' calls, and what each completes.

    A partner's call is the place in the turn of the call on the other side, -1 for none.
    """
    from p3s.simulate.steps import Op

    rows, columns = grid(n)
    at = np.arange(n, dtype=np.int32)
    r, c = at // columns, at % columns

    def rank(dr: int, dc: int) -> np.ndarray:
        return (r + dr) % rows * columns + (c + dc) % columns

    if pattern == "halo":
        around = [rank(-1, 0), rank(1, 0), rank(0, -1), rank(0, 1)]
        ops = [Op.IRECV] * 4 + [Op.ISEND] * 4 + [Op.WAIT]
        peers = np.stack([*around, *around, np.full_like(at, -1)], 1)
        other = np.int8([5, 4, 7, 6, 1, 0, 3, 2, -1])  # what goes up is received from below
        return ops, peers, np.tile(other, (n, 1)), [[]] * 8 + [list(range(8))]
    if pattern == "sweep":
        ops = [Op.RECV, Op.RECV, Op.SEND, Op.SEND]
        peers = [
            np.where(r > 0, rank(-1, 0), -1),
            np.where(c > 0, rank(0, -1), -1),
            np.where(r < rows - 1, rank(1, 0), -1),
            np.where(c < columns - 1, rank(0, 1), -1),
        ]
        peer = np.stack(peers, 1)
        return ops, peer, np.where(peer >= 0, np.int8([2, 3, 0, 1]), np.int8(-1)), [[]] * 4
    steps = int(np.log2(n))
    peer = np.stack([at ^ (1 << k) for k in range(steps)], 1)
    return (
        [Op.SENDRECV] * steps,
        peer,
        np.tile(np.arange(steps, dtype=np.int8), (n, 1)),
        [[]] * steps,
    )


def steps_of(pattern: str, n: int, turns: int) -> Any:
    """Return the steps of ``turns`` turns, matched, in columns as narrow as the simulation's."""
    from p3s.simulate.steps import SENDS, Op, Steps

    ops, peer, other, done = table(pattern, n)
    calls, total = len(ops), n * turns * len(ops)
    op = np.array([int(op) for op in ops], dtype=np.uint8)
    sends, both = np.isin(op, [int(op) for op in SENDS]), op == Op.SENDRECV
    narrow = np.int32

    def every(turn: np.ndarray, of: type = narrow) -> np.ndarray:
        """Return the same for each turn of each rank."""
        shape = (n, turns, calls)
        return np.broadcast_to(turn, shape).astype(of).reshape(-1)

    place = np.full((n, turns, calls), -1, dtype=narrow)
    base = peer * narrow(turns * calls) + other
    later = np.arange(turns, dtype=narrow)[:, None] * calls
    np.copyto(place, base[:, None, :] + later, where=(other >= 0)[:, None, :])
    zero, none = (np.broadcast_to(narrow(x), total) for x in (0, -1))
    listed = np.array([len(them) for them in done])
    flat = np.array([q for them in done for q in them], dtype=narrow)
    firsts = np.arange(n * turns, dtype=narrow)[:, None] * calls
    spread = peer[:, None, :]
    size = np.where(spread >= 0, narrow(BYTES), narrow(0))
    return Steps(
        n=n,
        ranks=np.arange(n),
        start=np.arange(n + 1) * (turns * calls),
        op=every(op, np.uint8),
        peer=every(spread),
        tag=zero,
        comm=zero,
        bytes=every(size, np.int64),
        peer2=every(np.where(both, spread, narrow(-1))),
        tag2=none,
        bytes2=every(np.where(both, size, narrow(0)), np.int64),
        call=zero,
        work_ns=every(np.where(np.arange(calls) == 0, 1e5, 0.0), np.float64),
        number=zero,
        row=none,
        weight=np.broadcast_to(np.float64(1), total),
        turn=every(np.arange(turns)[:, None]),
        done_start=np.concatenate([[0], np.cumsum(np.tile(listed, n * turns))]),
        done=(firsts + flat).reshape(-1),
        to=np.where(sends, place, narrow(-1)).reshape(-1),
        source=np.where(~sends | both, place, narrow(-1)).reshape(-1),
        calls=("MPI call",),
        members={0: np.arange(n)},
    )


def measure(pattern: str, n: int, turns: int, linked: bool, repeats: int) -> dict[str, float]:
    """Return calls, seconds, calls per second, and bytes that a call adds to this process."""
    from dataclasses import replace

    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate

    network = rough_network()
    if not linked:
        network = replace(network, rate=float("inf"))
    node_of = np.arange(n) // CORES
    simulate(steps_of(pattern, 2 if pattern != "sweep" else 4, 1), node_of, network)
    steps = steps_of(pattern, n, turns)
    before = resident_mib(False)
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        simulate(steps, node_of, network)
        times.append(time.process_time() - begin)
    peak = resident_mib(True)
    return {
        "calls": len(steps),
        "seconds": min(times),
        "calls_per_s": len(steps) / min(times),
        "beyond_bytes_per_call": max(peak - before, 0.0) * 2**20 / len(steps),
    }


def fold(n: int, turns: int, slow: bool) -> dict[str, float]:
    """Return seconds and memory in MB of a folded loop."""
    from dataclasses import replace

    from p3s.simulate.folded import Loop, fold_times
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate
    from p3s.simulate.steps import Section

    network = replace(rough_network(), rate=float("inf"))
    node_of = np.zeros(n, dtype=np.int64)
    steps = steps_of("halo", n, WINDOW)
    calls = len(table("halo", n)[0])
    weight = np.where(steps.turn == 0, 1.0, (turns - 1) / (WINDOW - 1))
    rank = steps.rank
    work = np.where(slow & (rank == 0), 1.5, 1.0) * steps.work_ns
    row = rank * calls + np.arange(len(steps)) % calls
    steps = replace(steps, weight=weight, work_ns=work, row=row)

    def run(steps: Any, _: Any, first: Any) -> Any:
        return simulate(steps, node_of, network, first_ns=first)

    begin = time.process_time()
    loop = Loop(Section("halo", (0,), steps, WINDOW, 0, turns, 1.0, ()), steps, rank, weight, n)
    fold_times(loop, run)
    return {"seconds": time.process_time() - begin, "peak_mb": resident_mib(True)}


def once(n: int, turns: int) -> None:
    """Build a halo and simulate it once, turn after turn, without queues at links."""
    from dataclasses import replace

    from p3s.simulate.folded import strung
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate

    network, node_of = replace(rough_network(), rate=float("inf")), np.arange(n) // CORES
    window = steps_of("halo", n, 1)

    def run(first_ns: Any) -> Any:
        return simulate(window, node_of, network, first_ns=first_ns)

    results = strung(run, np.zeros(n), window.start[1:] - 1)
    for _ in range(turns):
        next(results)


def halo(n: int) -> np.ndarray:
    """Return the partners of a halo's eight messages, of each rank."""
    return table("halo", n)[1][:, :8]


def process(n: int, turns: int) -> Used:
    """Return what a process needs that builds a halo without links and simulates it once."""
    return apart("simulate", "once", n, turns)[1]


def beside_loggopsim(n: int, turns: int, repeats: int) -> list[Figure]:
    """Return speed and memory of a halo, beside LogGOPSim where it is."""
    place = os.environ.get("P3S_BENCH_LOGGOPSIM")
    missing = "" if place else "missing: P3S_BENCH_LOGGOPSIM is no directory of it"
    inner, _ = apart("simulate", "measure", "halo", n, turns, False, repeats)
    used = [process(n, turns) for _ in range(repeats)]
    theirs = loggopsim(Path(place), halo(n), turns, BYTES, repeats) if place else {}
    calls, peak = inner["calls"] / 1e6, max(x.peak_mib for x in used)
    of, peer = f"halo of {n:,} ranks, {turns} iterations", "LogGOPSim"
    rates = (
        ("simulate alone", inner["seconds"], theirs.get("seconds")),
        ("whole process", min(x.cpu_s for x in used), theirs.get("whole_s")),
    )
    out = [
        Figure(
            f"{of}: {what}",
            calls / ours,
            "M calls/s",
            None,
            True,
            peer,
            calls / other if other else None,
            missing,
        )
        for what, ours, other in rates
    ]
    memory, aim = theirs.get("peak_mb"), MEMORY_MIB.get((n, turns))
    return [*out, Figure(f"{of}: peak memory", peak, "MiB", aim, False, peer, memory, missing)]


def others(n: int, turns: int, repeats: int) -> list[Figure]:
    """Return the speed of the other patterns, with links and without, and what a call adds."""
    out = []
    for pattern in PATTERNS:
        for linked in (False, True):
            found, _ = apart("simulate", "measure", pattern, n, turns, linked, repeats)
            links = "with links" if linked else "without links"
            name = f"{pattern} of {n:,} ranks, {turns} iterations, {links}: simulate alone"
            out.append(Figure(name, found["calls_per_s"] / 1e6, "M calls/s", more=True))
            if pattern == "halo" and not linked:
                added = found["beyond_bytes_per_call"]
                out.append(Figure("memory that the simulation adds, a call", added, "bytes"))
    return out


def folded_figures(n: int) -> list[Figure]:
    """Return what folded loops of a thousand and a million iterations take."""
    out = []
    for slow, turns in ((False, 1_000), (False, 1_000_000), (True, 1_000_000)):
        found, _ = apart("simulate", "fold", n, turns, slow)
        ranks = "one slow rank" if slow else "equal ranks"
        name = f"loop of {turns:,} iterations, {n:,} ranks, {ranks}, folded"
        out.append(Figure(f"{name}: CPU time", found["seconds"], "s"))
        out.append(Figure(f"{name}: peak memory", found["peak_mb"], "MiB", 100))
    return out


def figures(quick: bool) -> Found:
    """Return speed and memory of halos and others, beside LogGOPSim and SimGrid's replay."""
    repeats = 2 if quick else 5
    found, points = [], []
    for n, turns in SIZES[-1:] if quick else SIZES:
        found += beside_loggopsim(n, turns, repeats)
    if not quick:
        found += [*others(4096, 20, repeats), *folded_figures(4096)]
        n, turns = 16384, 20
        name = f"halo of {n:,} ranks, {turns} iterations: peak memory"
        found.append(Figure(name, process(n, turns).peak_mib, "MiB", MEMORY_MIB[n, turns]))
    for n in GROWTH[:2] if quick else GROWTH:
        used = process(n, 6)
        points.append(Point("ranks", "simulate, halo", n, used.cpu_s, used.peak_mib))
    return Found((*found, *simgrid()), tuple(points))


def simgrid() -> list[Figure]:
    """Return how long a halo of 256 ranks takes here and in SimGrid's replay, in CPU time."""
    from dataclasses import replace

    from p3s.formats.simgrid.smpirun import replay
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate

    n, name = 256, "halo of 256 ranks, 20 iterations, nothing but messages: CPU time"
    network = replace(rough_network(inside_latency_ns=2000, inside_rate=12.5), post=0.0)
    steps, node_of = steps_of("halo", n, 20), np.arange(n)
    begin = time.process_time()
    simulate(steps, node_of, network)
    ours = time.process_time() - begin
    if not shutil.which("smpirun"):
        return [Figure(name, ours, "s", peer="SimGrid", missing="missing: smpirun is not on PATH")]
    begin = sum(os.times()[2:4])
    replay(steps, node_of, network)
    return [Figure(name, ours, "s", peer="SimGrid", peer_value=sum(os.times()[2:4]) - begin)]
