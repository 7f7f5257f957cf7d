"""How fast the dependency simulation is: calls per second and memory of a halo and of others.

    python benchmarks/simulate.py [--ranks 4096] [--turns 100] [--cores 64] [--repeats 5]
                                  [--pattern halo] [--json] [--loggopsim DIRECTORY]
    python benchmarks/simulate.py --fold [--ranks 4096]

``halo``: per turn four Irecv, four Isend, one Waitall on a periodic grid; ``sweep``: two receives
and two sends of a wavefront; ``exchange``: recursive doubling by Sendrecv. Every line is measured
in a process of its own. Rates count calls (steps) by the CPU time of the simulation on one core,
the checks of its input included, least of the repeats. Memory in MiB: of the columns given to it,
what the simulation adds to that with its results, and of the process with all turns at once. The
last three columns are of a process that builds and simulates once: without links one turn after
the other, as predictions do, with links, whose queues need it, all at once. It never passes or
fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE),
]

from figures import Figure, Found, Point, Used, resident_mib, whole  # noqa: E402
from loggopsim import loggopsim  # noqa: E402

PATTERNS = ("halo", "sweep", "exchange")
TIMEOUT_S = 600.0
#: Turns in a window of a folded loop, and of whole loops.
WINDOW, FOLDED_TURNS = 3, (1_000, 30_000, 1_000_000)
BYTES = 8192
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


def steps_of(pattern: str, n: int, turns: int, nbytes: int) -> Any:
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
    size = np.where(spread >= 0, narrow(nbytes), narrow(0))
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


def measure(
    pattern: str, n: int, turns: int, cores: int, repeats: int, nbytes: int, linked: bool
) -> dict[str, Any]:
    """Return calls, seconds, calls per second, and memory in MB, of this process."""
    from dataclasses import fields, replace

    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate

    network = rough_network()
    if not linked:
        network = replace(network, rate=float("inf"))
    node_of = np.arange(n) // cores
    simulate(steps_of(pattern, 2 if pattern != "sweep" else 4, 1, nbytes), node_of, network)
    steps = steps_of(pattern, n, turns, nbytes)
    columns = [getattr(steps, field.name) for field in fields(steps)]
    arrays = [c for c in columns if isinstance(c, np.ndarray) and 0 not in c.strides]
    inputs = sum({id(c): c.nbytes for c in arrays}.values())
    before = resident_mib(False)
    times = []
    found = None
    for _ in range(repeats):
        del found
        begin = time.process_time()
        found = simulate(steps, node_of, network)
        times.append(time.process_time() - begin)
    peak = resident_mib(True)
    return {
        "pattern": pattern,
        "ranks": n,
        "links": linked,
        "calls": len(steps),
        "seconds": min(times),
        "calls_per_s": len(steps) / min(times),
        "inputs_mb": inputs / 2**20,
        "beyond_mb": max(peak - before, 0.0),
        "beyond_bytes_per_call": max(peak - before, 0.0) * 2**20 / len(steps),
        "peak_mb": peak,
        "queued": found.queued,
        "end_ms": float(found.end_ns.max()) / 1e6,
    }


def fold(n: int, turns: int, slow: bool, nbytes: int) -> dict[str, Any]:
    """Return seconds, calls that were simulated, and memory in MB of a folded loop."""
    from dataclasses import replace

    from p3s.simulate.folded import Loop, folded
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate
    from p3s.simulate.steps import Section

    network = replace(rough_network(), rate=float("inf"))
    node_of = np.zeros(n, dtype=np.int64)
    steps = steps_of("halo", n, WINDOW, nbytes)
    calls = len(table("halo", n)[0])
    weight = np.where(steps.turn == 0, 1.0, (turns - 1) / (WINDOW - 1))
    rank = steps.rank
    work = np.where(slow & (rank == 0), 1.5, 1.0) * steps.work_ns
    row = rank * calls + np.arange(len(steps)) % calls
    steps = replace(steps, weight=weight, work_ns=work, row=row)
    simulated = [0]

    def run(steps: Any, _: Any, first: Any) -> Any:
        simulated[0] += len(steps)
        return simulate(steps, node_of, network, first_ns=first)

    begin = time.process_time()
    loop = Loop(Section("halo", (0,), steps, WINDOW, 0, turns, 1.0, ()), steps, rank, weight, n)
    found = folded(loop, run)
    return {
        "ranks": n,
        "turns": turns,
        "slow": slow,
        "seconds": time.process_time() - begin,
        "simulated": simulated[0],
        "windows": found.windows,
        "settled": found.settled,
        "turn_us": float(found.sums[0].max()) / turns / 1e3,
        "peak_mb": resident_mib(True),
    }


def once(pattern: str, n: int, turns: int, cores: int, nbytes: int, linked: bool) -> None:
    """Build the steps and simulate them, once: what a whole process needs.

    Without queues at links one turn after the other, as predictions do, with queues all at once.
    """
    from dataclasses import replace

    from p3s.simulate.folded import strung
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate

    network, node_of = rough_network(), np.arange(n) // cores
    if linked:
        simulate(steps_of(pattern, n, turns, nbytes), node_of, network)
        return
    network = replace(network, rate=float("inf"))
    window = steps_of(pattern, n, 1, nbytes)

    def run(first_ns: Any) -> Any:
        return simulate(window, node_of, network, first_ns=first_ns)

    results = strung(run, np.zeros(n), window.start[1:] - 1)
    for _ in range(turns):
        next(results)


def used_by(words: list[str]) -> Used:
    """Return what a process of this file's needs; compiling the file itself is not counted."""
    place = str(HERE)
    start = f"import sys; sys.path.insert(0, {place!r}); import simulate; simulate.main()"
    return whole([sys.executable, "-c", start, *words])


def halo(n: int) -> np.ndarray:
    """Return the partners of a halo's eight messages, of each rank."""
    return table("halo", n)[1][:, :8]


def alone(pattern: str, n: int, turns: int, linked: bool, repeats: int) -> dict[str, Any]:
    """Return what ``measure`` finds in a process of its own."""
    words = [sys.executable, __file__, "--turns", str(turns), "--repeats", str(repeats)]
    said = subprocess.run(
        [*words, "--one", f"{pattern},{n},{int(linked)}"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def process(n: int, turns: int) -> Used:
    """Return what a process needs that builds a halo without links and simulates it once."""
    return used_by(["--turns", str(turns), "--once", f"halo,{n},0"])


def beside_loggopsim(n: int, turns: int, repeats: int) -> list[Figure]:
    """Return speed and memory of a halo, beside LogGOPSim where it is."""
    place = os.environ.get("P3S_BENCH_LOGGOPSIM")
    missing = "" if place else "missing: P3S_BENCH_LOGGOPSIM is no directory of it"
    inner = alone("halo", n, turns, False, repeats)
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
            found = alone(pattern, n, turns, linked, repeats)
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
    for slow, turns in ((0, 1_000), (0, 1_000_000), (1, 1_000_000)):
        words = [sys.executable, __file__, "--fold", "--one", f"{n},{turns},{slow}"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        found = json.loads(said.stdout)
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
    steps, node_of = steps_of("halo", n, 20, 8192), np.arange(n)
    begin = time.process_time()
    simulate(steps, node_of, network)
    ours = time.process_time() - begin
    if not shutil.which("smpirun"):
        return [Figure(name, ours, "s", peer="SimGrid", missing="missing: smpirun is not on PATH")]
    begin = sum(os.times()[2:4])
    replay(steps, node_of, network)
    return [Figure(name, ours, "s", peer="SimGrid", peer_value=sum(os.times()[2:4]) - begin)]


def folds(args: argparse.Namespace) -> None:
    """Print what folded loops cost, each in a process of its own."""
    if args.one:
        n, turns, slow = args.one.split(",")
        print(json.dumps(fold(int(n), int(turns), slow == "1", args.bytes)))
        return
    lines = []
    for n in args.ranks.split(","):
        for slow in "01":
            for turns in FOLDED_TURNS:
                done = subprocess.run(
                    [sys.executable, __file__, *sys.argv[1:], "--one", f"{n},{turns},{slow}"],
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_S,
                    check=True,
                )
                lines.append(json.loads(done.stdout))
    if args.json:
        print(json.dumps(lines, indent=1))
        return
    print(
        f"{'ranks':>6} {'one slow':>8} {'turns':>9} {'windows':>7} {'simulated':>10} {'s':>6} "
        f"{'us in calls':>11} {'process MB':>10}"
    )
    for x in lines:
        print(
            f"{x['ranks']:6} {'yes' if x['slow'] else 'no':>8} {x['turns']:9,} {x['windows']:7} "
            f"{x['simulated']:10,} {x['seconds']:6.2f} {x['turn_us']:11.3f} "
            f"{x['peak_mb']:10.0f}"
        )


def main() -> None:
    """Run the lines in processes of their own and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="256,1024,4096")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--cores", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--bytes", type=int, default=BYTES)
    parser.add_argument("--pattern", choices=[*PATTERNS, "all"], default="all")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--loggopsim", type=Path, help="where LogGOPSim and txt2bin are")
    parser.add_argument("--fold", action="store_true", help="loops of many turns, folded")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        pattern, n, linked = args.once.split(",")
        once(pattern, int(n), args.turns, args.cores, args.bytes, linked == "1")
        return
    if args.fold:
        folds(args)
        return
    if args.one:
        pattern, n, linked = args.one.split(",")
        print(
            json.dumps(
                measure(
                    pattern, int(n), args.turns, args.cores, args.repeats, args.bytes, linked == "1"
                )
            )
        )
        return
    lines = []
    for pattern in PATTERNS if args.pattern == "all" else (args.pattern,):
        for n in (int(n) for n in args.ranks.split(",")):
            for linked in "01":
                words = [sys.executable, __file__, *sys.argv[1:]]
                done = subprocess.run(
                    [*words, "--one", f"{pattern},{n},{linked}"],
                    capture_output=True,
                    text=True,
                    timeout=TIMEOUT_S,
                    check=True,
                )
                once_words = [*sys.argv[1:], "--once", f"{pattern},{n},{linked}"]
                used = [used_by(once_words) for _ in range(args.repeats)]
                more = {
                    "whole_s": min(x.cpu_s for x in used),
                    "at_once_mb": json.loads(done.stdout)["peak_mb"],
                    "peak_mb": max(x.peak_mib for x in used),
                }
                lines.append({**json.loads(done.stdout), **more})
    if args.loggopsim:
        lines += [
            loggopsim(args.loggopsim, halo(int(n)), args.turns, args.bytes, args.repeats)
            for n in args.ranks.split(",")
        ]
    if args.json:
        print(json.dumps(lines, indent=1))
        return
    print(
        f"{'pattern':9} {'ranks':>6} {'links':>5} {'calls':>10} {'s':>7} {'M calls/s':>9} "
        f"{'inputs MB':>9} {'beyond MB':>9} {'B/call':>6} {'at once MB':>10} {'process MB':>10} "
        f"{'process s':>9} {'M calls/s':>9}"
    )
    for x in lines:
        print(
            f"{x['pattern']:9} {x['ranks']:6} {'yes' if x['links'] else 'no':>5} "
            f"{x['calls']:10,} {x['seconds']:7.3f} {x['calls_per_s'] / 1e6:9.2f} "
            f"{x['inputs_mb']:9.0f} {x['beyond_mb']:9.0f} {x['beyond_bytes_per_call']:6.0f} "
            f"{x['at_once_mb']:10.0f} {x['peak_mb']:10.1f} {x['whole_s']:9.3f} "
            f"{x['calls'] / x['whole_s'] / 1e6:9.2f}"
        )


if __name__ == "__main__":
    main()
