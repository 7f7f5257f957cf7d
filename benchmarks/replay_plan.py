"""What planning a replay costs, and what the replay would: seconds, processes, share of the run.

    python benchmarks/replay_plan.py [--counts 512,1024,4096] [--cores 32] [--only NAME] [--json]

The programs are event lists (tests/helpers/corpus.py), modelled at small counts and scaled; beside
them stand the loops of programs in the thesis (ch. 9), made here with their partners, bytes, turns
and computation. Each line is planned in a process of its own: reading the scaled trace (not for the
loops of the thesis), sections, collectives as messages, one simulation of all ranks, classes,
pairs, programs with their proof, estimate. Nothing here passes or fails; what is aimed at: planning
for 4,096 ranks under 10 s, processes at most 25 % of the ranks and time at most 5 % of the run at
512 and 1,024."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE.parent / "tests" / "helpers"),
    str(HERE),
]

PROGRAMS = (
    "jacobi2d",
    "ring",
    "halo3d",
    "cg",
    "wavefront",
    "hypercube",
    "dissemination",
    "every_tenth",
)
TIMEOUT_S = 900.0
#: Operations per ns of the machine whose computation is in the loops of the thesis; CG waits for
#: its memory.
RATE = 2.0
CG_RATE = 0.2
#: Operations and rows of CG, class E: 2 x 100 x rows x 18,383.
CG_OPERATIONS, CG_ROWS = 3.31e13, 9_000_000


def n_body(n: int) -> tuple[Any, int, float]:
    """Return a turn of the ring pipeline: 4 million bodies, 5,088 turns at 512 (tables 5.x)."""
    from steps_builder import Builder

    b = Builder(n)
    for turn in range(3):
        for rank in range(n):
            b.add(
                rank,
                "MPI_Isend",
                (rank + 1) % n,
                128_000_000 // n,
                turn=turn,
                work_ns=(4e6 / n) ** 2 * 20 / RATE,
            )
            b.add(rank, "MPI_Recv", (rank - 1) % n, 128_000_000 // n, turn=turn)
            b.add(rank, "MPI_Wait", turn=turn)
    return b.build(), 3, 5088 * n / 512


def sweep3d(n: int) -> tuple[Any, int, float]:
    """Return sweeps over a grid of ranks from one corner: 2,800 turns, neighbours +-1, +-x."""
    from steps_builder import Builder

    x = 1 << (n.bit_length() - 1) // 2
    b = Builder(n)
    for turn in range(12):
        for rank in range(n):
            if rank % x:
                b.add(rank, "MPI_Recv", rank - 1, 12_000, turn=turn)
            if rank >= x:
                b.add(rank, "MPI_Recv", rank - x, 12_000, turn=turn)
            work = 2e6
            if rank % x < x - 1:
                b.add(rank, "MPI_Send", rank + 1, 12_000, turn=turn, work_ns=work)
                work = 0
            if rank + x < n:
                b.add(rank, "MPI_Send", rank + x, 12_000, turn=turn, work_ns=work)
    return b.build(), 12, 2800 * 12


def cg(n: int) -> tuple[Any, int, float]:
    """Return exchanges with partners 1, 2, 4, ...: 2,500 turns, class E (n a power of two)."""
    from steps_builder import Builder

    half = (n.bit_length() - 1) // 2
    nbytes = 8 * CG_ROWS >> half
    b = Builder(n)
    for turn in range(3):
        for rank in range(n):
            work = CG_OPERATIONS / 2500 / n / CG_RATE
            for k in range(half):
                peer = rank ^ (1 << k)
                b.add(rank, "MPI_Irecv", peer, nbytes, turn=turn)
                b.add(rank, "MPI_Send", peer, nbytes, turn=turn, work_ns=work)
                b.add(rank, "MPI_Wait", turn=turn)
                work = 0
            for k in range(half):
                b.add(rank, "MPI_Irecv", rank ^ (1 << k), 8, turn=turn)
                b.add(rank, "MPI_Send", rank ^ (1 << k), 8, turn=turn)
                b.add(rank, "MPI_Wait", turn=turn)
    return b.build(), 3, 2500


LOOPS: dict[str, Callable[[int], tuple[Any, int, float]]] = {
    "thesis n-body": n_body,
    "thesis sweep3d": sweep3d,
    "thesis cg": cg,
}


def sections_of(name: str, root: Path, n: int) -> Any:
    """Return the sections of a program at ``n`` ranks."""
    from p3s.program.order.sections import read_sections
    from p3s.simulate.steps import Section

    if name not in LOOPS:
        return read_sections(root / "scaled" / f"np{n:06d}")
    steps, turns, run_turns = LOOPS[name](n)
    return (Section("loop", (1,), steps, turns, 0, int(run_turns), 1.0, ()),)


def measure(name: str, root: Path, n: int, cores: int) -> dict[str, Any]:
    """Plan in this process; return seconds, steps, and what the plan says."""
    made = sections_of(name, root, n) if name in LOOPS else None
    begin, cpu = time.perf_counter(), time.process_time()
    from p3s.program.collectives.expand import expand
    from p3s.program.collectives.library import library_of
    from p3s.program.mapping import block
    from p3s.replay.plan.plan import PlanSettings, make_plan
    from p3s.replay.plan.show import plan_json
    from p3s.simulate.network import rough_network
    from p3s.simulate.simulate import simulate
    from p3s.topology.switches import flat

    sections = made or sections_of(name, root, n)
    read_s = time.perf_counter() - begin
    mapping, network = block(n, cores), rough_network()
    library = library_of("openmpi", "4.1.4")
    plan = make_plan(
        sections,
        mapping,
        flat(),
        PlanSettings(),
        network,
        expand=lambda steps, which: expand(steps, library, which, node_of=mapping.node_of),
        simulate=lambda steps: simulate(steps, mapping.node_of, network),
    )
    found = plan_json(plan)
    e = found["estimate"]
    return {
        "program": name,
        "n": n,
        "cores": cores,
        "steps": sum(len(s) for s in plan.full),
        "wall_s": time.perf_counter() - begin,
        "cpu_s": time.process_time() - cpu,
        "sections_s": read_s,
        "peak_mib": _peak_mib(),
        "pairs": len({it.pair for it in plan.iterations}),
        "all_pairs": found["iterations_all_pairs"],
        "messages": len(plan.messages),
        "processes": found["processes"]["total"],
        "share_of_cores": e["share_of_cores"],
        "needed_s": e["needed_s"],
        "least_s": e["least_s"],
        "run_s": e["run_s"],
    }


def _peak_mib() -> float:
    """Return the most memory of this process since it began, not of those before it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def apart(name: str, root: Path, n: int, cores: int) -> dict[str, Any]:
    """Do the same in a process of its own."""
    words = [sys.executable, __file__, "--measure", name, str(root), str(n), str(cores)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if run.returncode:
        return {"program": name, "n": n, "why": run.stderr.strip().splitlines()[-1][:120]}
    result: dict[str, Any] = json.loads(run.stdout)
    return result


def line(found: dict[str, Any]) -> str:
    """Return a result as a line of the table."""
    if "why" in found:
        return f"{found['program']:14} {found['n']:>5,}  {found['why']}"
    run = found["run_s"]
    share = (
        ""
        if run < 1
        else (
            f" = {100 * found['needed_s'] / run:.2g} % "
            f"({100 * found['least_s'] / run:.2g} % at least)"
        )
    )
    return (
        f"{found['program']:14} {found['n']:>5,} {found['steps']:>9,} {found['wall_s']:6.1f} s "
        f"({found['cpu_s']:4.1f} CPU) {found['peak_mib']:5.0f} MiB  {found['pairs']:>2} of "
        f"{found['all_pairs']:>5}  {found['processes']:>4} = "
        f"{100 * found['share_of_cores']:4.1f} %  {found['needed_s']:5.1f} s "
        f"({found['least_s']:.1f} at least) of {run:.3g} s{share}; 5 % of runs from "
        f"{20 * found['needed_s']:.0f} s on ({20 * found['least_s']:.0f})"
    )


def main() -> None:
    """Measure all programs, print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", default="512,1024,4096")
    parser.add_argument("--cores", type=int, default=16, help="ranks on one node")
    parser.add_argument("--only", choices=[*PROGRAMS, *LOOPS])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, root, n, cores = args.measure
        print(json.dumps(measure(name, Path(root), int(n), int(cores))))
        return
    lines = []
    for name in [args.only] if args.only else [*LOOPS, *PROGRAMS]:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "study"
            if name not in LOOPS:
                from scale import make_study

                from p3s.program import write_scaled

                make_study(name, root, timed=True)
            for n in map(int, args.counts.split(",")):
                if name not in LOOPS:
                    write_scaled(root, n, None)
                lines.append(apart(name, root, n, args.cores))
                if not args.json:
                    print(line(lines[-1]), flush=True)
    if args.json:
        print(json.dumps(lines))


if __name__ == "__main__":
    main()
