"""What the replay adds to the calls it makes, and how well it emulates computation.

    python benchmarks/all.py --only replay_cost,replay_cost:computation

A plain C program (pingpong.c) and the replay's engine with a program of the same calls take turns:
of each the median over its passes, of those the median over the turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from figures import Figure, Found
from replay_jobs import Mpi, Script, mpis, program_of, run_job, settings_of, world_of

from p3s.replay.engine.job import result_path, write_job
from p3s.replay.engine.results import read_result
from p3s.replay.plan.program import Code, Program

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 120.0
SIZES = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
PASSES = 12
NULL_CALLS = 50_000
PAIR_TURNS = 15_000
EMULATORS = 16
#: Lengths of emulated computation, in us.
PIECES = (20, 50, 100, 200, 500, 1000, 2000, 5000)


@dataclass(frozen=True)
class Row:
    """One line: what is called, ns in the C program and in the replay."""

    what: str
    plain_ns: float
    replay_ns: float


def turns_of(nbytes: int) -> int:
    """Return how many turns of a ping-pong one pass has: some 10 to 20 ms of them.

    Between passes processes sleep, and the cores take their time to be fast again.
    """
    return (100 << 20) // (nbytes + 16_384) if nbytes > 2048 else 15_000


# ---- programs --------------------------------------------------------------------------------
def null_sends(sample: int) -> Program:
    scripts = [Script(), Script()]
    for script in scripts:
        for _ in range(NULL_CALLS):
            script.add(Code.SEND, peer=-2, tag=1, bytes=8, sample=sample)
    return program_of(scripts, name="null")


def pairs() -> Program:
    scripts = [Script(), Script()]
    for rank, script in enumerate(scripts):
        for _ in range(PAIR_TURNS):
            script.add(Code.IRECV, peer=1 - rank, tag=1, bytes=8, slot=0)
            script.add(Code.ISEND, peer=1 - rank, tag=1, bytes=8, slot=1)
            script.wait(0)
            script.wait(1)
    return program_of(scripts, name="pair")


def ping_pong(nbytes: int) -> Program:
    scripts = [Script(), Script()]
    for _ in range(turns_of(nbytes)):
        for sender in (0, 1):
            scripts[sender].add(Code.SEND, peer=1 - sender, tag=1, bytes=nbytes)
            scripts[1 - sender].add(Code.RECV, peer=sender, tag=1, bytes=nbytes)
    return program_of(scripts, name=f"ping-pong {nbytes}")


def emulation(length_us: int) -> Program:
    """Every process computes and talks to two neighbours, as programs do."""
    scripts = [Script() for _ in range(EMULATORS)]
    for rank, script in enumerate(scripts):
        for _ in range(max(5, min(50, 20_000 // length_us))):
            for slot, peer in enumerate(((rank - 1) % EMULATORS, (rank + 1) % EMULATORS)):
                script.add(
                    Code.IRECV,
                    peer=peer,
                    tag=1,
                    bytes=512,
                    slot=slot,
                    offset=512 * slot,
                    work_ns=0 if slot else 1000 * length_us,
                )
                script.add(Code.ISEND, peer=peer, tag=1, bytes=512, slot=2 + slot)
            script.wait(0, 1, 2, 3, sample=0)
    return program_of(scripts, name=f"computation {length_us}")


# ---- runs ------------------------------------------------------------------------------------
def plain(mpi: Mpi, program: Path, words: Sequence[str]) -> list[float]:
    """Return the ns of every pass of the C program."""
    from p3s.signature_runner.launch import _environment

    done = subprocess.run(
        [mpi.mpiexec, "-n", "2", str(program), *words],
        env=_environment(False, "replay-cost"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    return [float(line) for line in done.stdout.split()]


def replay(mpi: Mpi, folder: Path, program: Program) -> list[float]:
    """Return the ns of every pass of process 0."""
    settings = settings_of(mpi, budget_s=TIMEOUT_S, most_passes=PASSES, pages="small")
    write_job(folder, [program], world_of(2), settings)
    ended = run_job(folder, mpi, 2, timeout_s=TIMEOUT_S, sharing=False)
    if ended.code != 0:
        raise SystemExit(ended.stderr)
    return read_result(result_path(folder, 0)).pass_ns[:, 0].tolist()


def calls(mpi: Mpi, repeats: int, folder: Path) -> list[Row]:
    """Return the rows about calls."""
    program = folder / "pingpong"
    subprocess.run(
        [mpi.mpicc, "-O2", "-std=gnu11", str(HERE / "pingpong.c"), "-o", str(program)],
        check=True,
        timeout=TIMEOUT_S,
    )
    cases = [
        ("send to MPI_PROC_NULL", ["null", str(NULL_CALLS)], null_sends(-1), NULL_CALLS),
        ("the same, timed", ["null", str(NULL_CALLS)], null_sends(0), NULL_CALLS),
        ("Irecv, Isend, 2 Wait, 8 B", ["pair", str(PAIR_TURNS)], pairs(), PAIR_TURNS),
    ]
    for size in SIZES:
        words = [str(size), str(turns_of(size))]
        cases.append((f"ping-pong {size} B", words, ping_pong(size), 2 * turns_of(size)))
    ours: list[list[float]] = [[] for _ in cases]
    theirs: list[list[float]] = [[] for _ in cases]
    for repeat in range(repeats):
        print(f"turn {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
        for i, (_what, words, made, per_pass) in enumerate(cases):
            theirs[i].append(statistics.median(plain(mpi, program, [*words, str(PASSES)])))
            found = replay(mpi, folder / f"job-{repeat}-{i}", made)
            ours[i].append(statistics.median(found) / per_pass)
    middle = statistics.median
    return [Row(case[0], middle(theirs[i]), middle(ours[i])) for i, case in enumerate(cases)]


def computation(quick: bool) -> Found:
    """Return the errors of emulated computation at EMULATORS processes, of all lengths."""
    programs = [emulation(length) for length in PIECES]
    settings = settings_of(_mpi(), budget_s=60.0, most_passes=16)
    with tempfile.TemporaryDirectory(prefix="replay-cost-") as name:
        write_job(Path(name), programs, world_of(EMULATORS), settings)
        ended = run_job(Path(name), _mpi(), EMULATORS, timeout_s=TIMEOUT_S)
        if ended.code != 0:
            raise SystemExit(ended.stderr)
        errors = np.abs(
            np.concatenate(
                [read_result(result_path(Path(name), i)).work_error_ns for i in range(len(PIECES))]
            )
        )
    of = f"computation at {EMULATORS} processes, error"
    return Found(
        (
            Figure(f"{of}: median", float(np.median(errors)) / 1e3, "us", 50),
            Figure(f"{of}: 95th percentile", float(np.percentile(errors, 95)) / 1e3, "us", 150),
        )
    )


def _mpi() -> Mpi:
    """Return the MPI that is measured; raises SystemExit without one."""
    found = mpis()
    if not found:
        raise SystemExit("no usable MPI with its compiler")
    return found[0]


def figures(quick: bool) -> Found:
    """Return what the replay's engine adds to calls, beside the plain C program."""
    with tempfile.TemporaryDirectory(prefix="replay-cost-") as name:
        rows = calls(_mpi(), 3 if quick else 7, Path(name))
    return Found(
        tuple(
            Figure(
                f"replay, {row.what}",
                row.replay_ns / 1e3,
                "us",
                peer="plain C",
                peer_value=row.plain_ns / 1e3,
            )
            for row in rows
        )
    )


PARTS = {"computation": computation}
