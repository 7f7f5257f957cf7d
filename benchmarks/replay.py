"""The replay of a program against its real execution, on a cluster of network namespaces.

    python benchmarks/replay.py [--pattern NAME]... [--budget 60] [--out raw.json]
                                [--trunk-rate 200mbit]

Needs root, iproute2, and Debian's Open MPI. Every pattern is made once as a list of events; a C
program executes it for real at 16 ranks, 4 on each of four nodes, and the replay gets a scaled
trace of the same list and loads two times four ranks at a time. Computation sleeps, so two cores
are enough for honest times. A truth that varies by more than 2 % in phase time is void. Nothing
here passes or fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT)]

from cluster import truth as real  # noqa: E402
from cluster.network import RATE, Cluster, Trunk, missing, openmpi_words  # noqa: E402
from cluster.patterns import HELD_OUT, PATTERNS, TRUNK, Pattern  # noqa: E402

#: Phase time of the truth may vary by this much (standard deviation over mean).
MOST_VARIATION = 0.02
#: Of the cores, where an ordinary process has 1024.
SHARE = 262144
#: What is aimed at: phase time; communication.
PHASE, COMM = 0.05, 0.10
#: Names of the estimators and where they stand in the result of a replay.
ESTIMATORS = ("simulation", "whole", "thesis")


#: Of a replay's result in the raw data.
KEPT = (
    "nodes",
    "iterations",
    "programs",
    "passes",
    "network",
    "phases",
    "notes",
    "work_error_ns",
    "clock_error_ns",
)


@dataclass(frozen=True)
class Estimate:
    """What one estimator says of a pattern, in ns: phase time, communication of every rank."""

    phase_ns: float
    comm_ns: np.ndarray


def summary(pattern: Pattern, runs: Sequence[real.Truth]) -> dict[str, Any]:
    """Return the raw data and the statistics of a truth, over all runs of it."""
    phase = np.concatenate([run.phase for run in runs])
    comm = np.concatenate([run.comm for run in runs], axis=1)
    work = np.concatenate([run.work for run in runs], axis=1)
    return {
        "pattern": pattern.name,
        "repetitions": len(phase),
        "phase_ns": phase.tolist(),
        "phase_median_ns": float(np.median(phase)),
        "phase_cv": real.variation(phase),
        "comm_ns": comm.tolist(),
        "comm_median_ns": np.median(comm, axis=1).tolist(),
        "comm_cv": float(np.median([real.variation(rank) for rank in comm])),
        "work_ns": np.median(work, axis=1).tolist(),
        "void": real.variation(phase) > MOST_VARIATION,
    }


def work_of(pattern: Pattern) -> np.ndarray:
    """Return the computation of every rank in ns."""
    return np.array([sum(line.work_ns for line in lines) for lines in pattern.lines], dtype=float)


def thesis_sum(pattern: Pattern, comm_ns: np.ndarray) -> Estimate:
    """Return Eq. 8.1's phase time: the slowest rank's computation and communication."""
    return Estimate(float((work_of(pattern) + comm_ns).max()), comm_ns)


def estimates(pattern: Pattern, result: Mapping[str, Any], table: Path) -> dict[str, Estimate]:
    """Return what a replay's result files say, by estimator; those they do not hold are absent."""
    import pyarrow.parquet as pq

    rows = pq.read_table(table).to_pydict()
    comm = {
        name: np.bincount(
            np.asarray(rows["rank"]),
            minlength=pattern.n,
            weights=np.asarray(rows[name], dtype=float),
        )
        for name in ("comm_ns", "thesis_ns", "whole_ns")
    }
    found = {
        "simulation": Estimate(sum(p["time_ns"] for p in result["phases"]), comm["comm_ns"]),
        "thesis": thesis_sum(pattern, comm["thesis_ns"]),
    }
    if result["timed"] and np.isfinite(comm["whole_ns"]).all():
        found["whole"] = Estimate(
            sum(p["whole_time_ns"] for p in result["phases"]), comm["whole_ns"]
        )
    return found


def errors(truth: Mapping[str, Any], estimate: Estimate) -> dict[str, float]:
    """Return relative errors: phase; communication (mean over ranks; median of the ranks' own)."""
    true = np.asarray(truth["comm_median_ns"])
    apart = estimate.comm_ns / true - 1.0
    return {
        "phase": estimate.phase_ns / truth["phase_median_ns"] - 1.0,
        "comm": float(estimate.comm_ns.mean() / true.mean() - 1.0),
        "comm_rank": float(np.median(apart)),
        "comm_rank_abs": float(np.median(np.abs(apart))),
    }


def replayed(
    pattern: Pattern,
    cluster: Cluster,
    directory: Path,
    *,
    budget_s: float,
    hosts: Sequence[str],
    noise: str,
) -> tuple[dict[str, Any], dict[str, Estimate]]:
    """Replay the scaled trace of a pattern on the cluster."""
    from p3s import replay
    from p3s.replay.settings import ReplaySettings

    scaled = pattern.write_trace(directory / "scaled" / f"np{pattern.n:06d}")
    out = directory / f"replay-{noise}" / f"np{pattern.n:06d}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    per = -(-pattern.n // cluster.nodes)
    topology = directory / "topology.conf"
    topology.write_text(cluster.topology())
    settings = ReplaySettings(
        hosts=tuple(hosts),
        cores_per_node=per,
        budget_s=budget_s,
        launcher=tuple(openmpi_words(cluster)),
        timed=True,
        topology=topology,
        noise=noise,
    )
    result = replay.run(scaled, out, settings)
    return result, estimates(pattern, result, out.with_suffix(".parquet"))


def line(name: str, truth: Mapping[str, Any], found: Mapping[str, Mapping[str, float]]) -> str:
    """Return a pattern's row of the table."""
    true = np.mean(truth["comm_median_ns"]) / 1e6
    cells = [
        f"{name} | {truth['phase_median_ns'] / 1e6:.1f} | {100 * truth['phase_cv']:.2f} | "
        f"{true:.1f} | {100 * truth['comm_cv']:.1f}{' void' if truth['void'] else ''}"
    ]
    for estimator in ESTIMATORS:
        one = found.get(estimator)
        cells.append(
            "- ; -" if one is None else f"{100 * one['phase']:+.1f} ; {100 * one['comm']:+.1f}"
        )
    return f"| {' | '.join(cells)} |"


COLUMNS = [
    "pattern",
    "phase ms",
    "cv %",
    "communication ms",
    "cv %",
    *(f"{name}: phase ; comm %" for name in ESTIMATORS),
]
HEAD = "\n".join(f"| {' | '.join(row)} |" for row in (COLUMNS, ["---"] * len(COLUMNS)))


@contextlib.contextmanager
def largest_share() -> Iterator[bool]:
    """Give this process and its children nearly all of the cores that they ask for.

    A niceness does not do that: it counts among processes of one session only.
    """
    group = Path(f"/sys/fs/cgroup/cpu/p3s-benchmark-{os.getpid()}")
    try:
        group.mkdir()
        (group / "cpu.shares").write_text(str(SHARE))
        (group / "tasks").write_text(str(os.getpid()))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            group.rmdir()


def one_pattern(
    name: str, directory: Path, program: Path, asked: argparse.Namespace
) -> dict[str, Any]:
    """Measure a pattern's truth, replay it, print its rows, and return the raw data.

    The truth is measured before the replay and after it, so that it has seen the same machine.
    """
    on_trunk = name in TRUNK
    pattern = {**PATTERNS, **HELD_OUT, **TRUNK}[name]()
    directory.mkdir(exist_ok=True)
    runs: list[real.Truth] = []
    entry: dict[str, Any] = {}
    guessed: dict[str, dict[str, Estimate]] = {}
    trunk = Trunk((0, 1), rate=asked.trunk_rate) if on_trunk else None
    with Cluster(directory / "cluster", trunk=trunk) as cluster:

        def look() -> None:
            half = asked.repetitions // 2
            runs.append(real.measure(cluster, program, pattern, directory, repetitions=half))

        look()
        for noise in ("off", "on") if on_trunk else ("auto",):
            begin = time.monotonic()
            result, guessed[noise] = replayed(
                pattern, cluster, directory, budget_s=asked.budget, hosts=cluster.hosts, noise=noise
            )
            entry.setdefault("replays", {})[noise] = {
                "result": {key: result[key] for key in KEPT},
                "wall_s": time.monotonic() - begin,
                "estimates": {
                    key: {"phase_ns": guess.phase_ns, "comm_ns": guess.comm_ns.tolist()}
                    for key, guess in guessed[noise].items()
                },
            }
        look()
    truth = entry["truth"] = summary(pattern, runs)
    for noise, guesses in guessed.items():
        found = {key: errors(truth, guess) for key, guess in guesses.items()}
        entry["replays"][noise]["errors"] = found
        print(line(f"{name}, noise {noise}" if on_trunk else name, truth, found), flush=True)
    return entry


def main(arguments: list[str]) -> int:
    """Run the campaign and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pattern", action="append", choices=[*PATTERNS, *HELD_OUT, *TRUNK])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds per replay")
    parser.add_argument("--out", type=Path, help="raw data as JSON")
    parser.add_argument("--work", type=Path, help="keep scripts, traces and results here")
    parser.add_argument("--trunk-rate", default=RATE, help="of the link between the two bridges")
    asked = parser.parse_args(arguments)
    why = missing()
    if why:
        print(f"benchmarks/replay.py: {why}", file=sys.stderr)
        return 1
    raw: dict[str, Any] = {
        "repetitions": asked.repetitions,
        "budget_s": asked.budget,
        "patterns": {},
    }
    # So that the cluster is taken down when this is ended from outside.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="p3s-benchmark-") as scratch, largest_share() as alone:
        raw["largest_share"] = alone
        work = asked.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        program = real.build(work)
        for name in asked.pattern or [*PATTERNS, *HELD_OUT]:
            place = work / name.replace(" ", "-")
            raw["patterns"][name] = one_pattern(name, place, program, asked)
            if asked.out:
                asked.out.write_text(json.dumps(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
