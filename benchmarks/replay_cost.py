"""What the replay adds to the calls it makes, and how well it emulates computation.

    python benchmarks/replay_cost.py [--repeats 7] [--mpicc /usr/bin/mpicc.openmpi] [--json FILE]

A plain C program (pingpong.c) and the replay's engine with a program of the same calls take turns:
of each the median over its passes, of those the median over the turns is printed. Nothing here
passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent / "tests" / "helpers"),
    str(HERE),
]

from figures import Figure, Found  # noqa: E402
from replay_jobs import Mpi, Script, mpis, program_of, run_job, settings_of, world_of  # noqa: E402

from p3s.replay.engine.job import DONE, result_path, write_job  # noqa: E402
from p3s.replay.engine.results import read_result  # noqa: E402
from p3s.replay.plan.program import Code, Program  # noqa: E402

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
    """One line: what is called, ns in the C program and in the replay, calls that count.

    ``ratio``: replay to C of one turn, median of the turns. ``plain``, ``replay``: every turn.
    """

    what: str
    plain_ns: float
    replay_ns: float
    ratio: float
    calls: int
    sampled: bool
    plain: list[float]
    replay: list[float]

    @property
    def added_ns(self) -> float:
        """Return what one call costs more in the replay."""
        return (self.replay_ns - self.plain_ns) / self.calls


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


def replay(mpi: Mpi, folder: Path, programs: Sequence[Program], pages: str) -> list[list[float]]:
    """Return the ns of every pass of process 0, per program."""
    write_job(
        folder,
        programs,
        world_of(2),
        settings_of(mpi, budget_s=TIMEOUT_S, most_passes=PASSES, pages=pages),
    )
    ended = run_job(folder, mpi, 2, timeout_s=TIMEOUT_S, sharing=False)
    if ended.code != 0:
        raise SystemExit(ended.stderr)
    return [
        read_result(result_path(folder, i)).pass_ns[:, 0].tolist() for i in range(len(programs))
    ]


def calls(mpi: Mpi, repeats: int, pages: str, folder: Path) -> list[Row]:
    """Return the rows about calls."""
    program = folder / "pingpong"
    subprocess.run(
        [mpi.mpicc, "-O2", "-std=gnu11", str(HERE / "pingpong.c"), "-o", str(program)],
        check=True,
        timeout=TIMEOUT_S,
    )
    huge = ["huge"] if pages == "huge" else []
    cases = [
        ("send to MPI_PROC_NULL", ["null", str(NULL_CALLS)], null_sends(-1), NULL_CALLS, 1, False),
        ("the same, timed", ["null", str(NULL_CALLS)], null_sends(0), NULL_CALLS, 1, True),
        ("Irecv, Isend, 2 Wait, 8 B", ["pair", str(PAIR_TURNS)], pairs(), PAIR_TURNS, 4, False),
        *(
            (
                f"ping-pong {size} B",
                [str(size), str(turns_of(size))],
                ping_pong(size),
                2 * turns_of(size),
                1,
                False,
            )
            for size in SIZES
        ),
    ]
    ours: list[list[float]] = [[] for _ in cases]
    theirs: list[list[float]] = [[] for _ in cases]
    for repeat in range(repeats):
        print(f"turn {repeat + 1} of {repeats}", file=sys.stderr, flush=True)
        for i, (_what, words, made, per_pass, _calls, _sampled) in enumerate(cases):
            theirs[i].append(statistics.median(plain(mpi, program, [*words, str(PASSES), *huge])))
            (found,) = replay(mpi, folder / f"job-{repeat}-{i}", [made], pages)
            ours[i].append(statistics.median(found) / per_pass)
    return [
        Row(
            what,
            statistics.median(theirs[i]),
            statistics.median(ours[i]),
            statistics.median(a / b for a, b in zip(ours[i], theirs[i], strict=True)),
            number,
            sampled,
            theirs[i],
            ours[i],
        )
        for i, (what, _words, _made, _per_pass, number, sampled) in enumerate(cases)
    ]


def emulated(mpi: Mpi, folder: Path) -> list[dict[str, float]]:
    """Return the errors of emulated computation at EMULATORS processes, by length and of all."""
    programs = [emulation(length) for length in PIECES]
    write_job(
        folder, programs, world_of(EMULATORS), settings_of(mpi, budget_s=60.0, most_passes=16)
    )
    ended = run_job(folder, mpi, EMULATORS, timeout_s=TIMEOUT_S)
    if ended.code != 0:
        raise SystemExit(ended.stderr)
    rows, everything = [], []
    for number, length in enumerate(PIECES):
        errors = read_result(result_path(folder, number)).work_error_ns
        everything.append(errors)
        rows.append(_error_row(length, errors))
    rows.append(_error_row(0, np.concatenate(everything)))
    rows[-1]["shared_cores"] = json.loads((folder / DONE).read_text())["shared_cores"]
    return rows


def _error_row(length_us: int, errors: np.ndarray) -> dict[str, float]:
    return {
        "length_us": length_us,
        "pieces": len(errors),
        "mean_us": float(errors.mean()) / 1e3,
        "p50_us": float(np.median(np.abs(errors))) / 1e3,
        "p95_us": float(np.percentile(np.abs(errors), 95)) / 1e3,
    }


def figures(quick: bool) -> Found:
    """Return what the replay's engine adds to calls, beside the plain C program."""
    found = mpis()
    if not found:
        raise SystemExit("no usable MPI with its compiler")
    with tempfile.TemporaryDirectory(prefix="replay-cost-") as name:
        rows = calls(found[0], 3 if quick else 7, "small", Path(name))
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--mpicc", default="", help="of the MPI to use")
    parser.add_argument("--pages", choices=("small", "huge"), default="small")
    parser.add_argument("--only", choices=("calls", "computation"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = [
        mpi
        for mpi in mpis()
        if not given.mpicc or os.path.samefile(mpi.mpicc, given.mpicc) or mpi.mpicc == given.mpicc
    ]
    if not found:
        raise SystemExit(f"no usable MPI with compiler {given.mpicc or 'mpicc'} here")
    content: dict[str, object] = {
        "mpi": asdict(found[0]),
        "repeats": given.repeats,
        "pages": given.pages,
        "load": os.getloadavg(),
    }
    with tempfile.TemporaryDirectory(prefix="replay-cost-") as name:
        if given.only != "computation":
            rows = calls(found[0], given.repeats, given.pages, Path(name))
            print(
                f"{'':28} {'C [us]':>10} {'replay [us]':>12} {'added per call [us]':>20} "
                f"{'ratio':>7}"
            )
            for row in rows:
                print(
                    f"{row.what:28} {row.plain_ns / 1e3:10.3f} {row.replay_ns / 1e3:12.3f} "
                    f"{row.added_ns / 1e3:20.3f} {row.ratio:7.3f}"
                )
            content["calls"] = [asdict(row) for row in rows]
        if given.only != "calls":
            errors = emulated(found[0], Path(name) / "computation")
            print(
                f"\n{EMULATORS} processes, computation: {'pieces':>10} {'mean [us]':>10} "
                f"{'median':>8} {'p95':>8}"
            )
            for row in errors:
                what = f"{row['length_us']} us" if row["length_us"] else "all"
                print(
                    f"{what:>27} {row['pieces']:14.0f} {row['mean_us']:10.1f} "
                    f"{row['p50_us']:8.1f} {row['p95_us']:8.1f}"
                )
            content["computation"] = errors
    if given.json:
        given.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
