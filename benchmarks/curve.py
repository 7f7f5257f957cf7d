"""Curves made from replays against runs at up to 64 processes, on 16 network namespaces.

    python benchmarks/curve.py [--pattern NAME]... [--budget 15] [--out raw.json]

Needs root, iproute2, and Debian's Open MPI. Every program (tests/programs/replay/curve.c: a halo,
a wavefront, the exchange of NPB CG, an all-reduction, a transpose) runs for real at 16, 32 and 64
processes, 4 to a node, over links of 10 Mbit. P3S traces it at 4, 8 and 16, replays its scaled
traces with 4 measured ranks and black holes on four of the nodes, and predicts the curve.
Computation sleeps, so two cores are enough. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT)]

from cluster import truth as real  # noqa: E402
from cluster.network import Cluster, missing, openmpi_words  # noqa: E402
from paths import PROGRAMS  # noqa: E402

from benchmarks.replay import largest_share  # noqa: E402

TRACED, PREDICTED = (4, 8, 16), (16, 32, 64)
#: Nodes, ranks on each, and what their links carry.
NODES, EACH, RATE, BURST = 16, 4, "10mbit", "32kb"
ITERATIONS = 10
#: Links lose nothing, as those of a cluster's fabric: so long may wait what is sent.
QUEUE = "10s"
#: Computation of all ranks in an iteration, us.
WORK_US = 5_120_000
#: Programs with the size of their problem (curve.c).
SIZES = {"halo": 16384, "wavefront": 16384, "cg": 16384, "allreduce": 32768, "transpose": 1 << 20}
HEAD = (
    "| program | processes | run, s | predicted, s | interval, s | off | communication, s "
    "| predicted, s | off |\n|---|---|---|---|---|---|---|---|---|"
)


def p3s(*words: str, codes: Sequence[int] = (0,)) -> str:
    """Run a command of P3S and return what it printed; RuntimeError where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "p3s", *words], capture_output=True, text=True, timeout=1800
    )
    if done.returncode not in codes:
        raise RuntimeError(f"p3s {words[0]}: {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout


def runs(launch: Sequence[str], program: Sequence[str], n: int, repetitions: int) -> np.ndarray:
    """Return what runs at a count take: (repetitions, 2), seconds of the loop and in calls."""
    rows = []
    for _ in range(repetitions):
        said = real.run([*launch, "-n", str(n), *program], 300.0).split()
        at = said.index("time")
        rows.append((float(said[at + 1]), float(said[at + 3])))
    return np.array(rows)


def one_program(name: str, work: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Run a program, replay and predict it, print its rows, and return the raw data.

    Half of the runs are made before the replay and half after it, so that they have seen the same
    machine.
    """
    program = [str(work / "curve"), name, str(ITERATIONS), str(WORK_US), str(SIZES[name])]
    study = str(work / name / "study")
    counts = ",".join(map(str, PREDICTED))
    with Cluster(work / name / "cluster", NODES, rate=RATE, burst=BURST, queue=QUEUE) as cluster:
        alone = openmpi_words(cluster)
        hosts = ",".join(f"{host}:{EACH}" for host in cluster.hosts)
        launch = [*alone, "--host", hosts, "--map-by", "slot"]
        half = asked.repetitions // 2
        before = {n: runs(launch, program, n, half) for n in PREDICTED}
        traced = ",".join(map(str, TRACED))
        how = ["-n", traced, "-r", "2", "--work", "wall", "-o", study]
        p3s("characterize", *how, "--", *launch, "-n", "{np}", *program)
        nodes = ["--hosts", ",".join(cluster.hosts[:4]), "--cores-per-node", str(EACH)]
        nodes += ["--launcher", " ".join(alone)]
        limits = ["--budget", f"{asked.budget}s", "--timeout", "300s", "--json"]
        replays = {
            n: json.loads(p3s("replay", study, "-n", str(n), *nodes, *limits))
            for n in (*TRACED, *PREDICTED)
        }
        how = ["--estimator", "simulation", *nodes]
        said = p3s("predict", study, "-n", counts, *how, "--json", codes=(0, 3))
        after = {n: runs(launch, program, n, half) for n in PREDICTED}
    prediction = json.loads(said)
    entry: dict[str, Any] = {"prediction": prediction, "replays": replays, "runs": {}}
    for n in PREDICTED:
        seen = np.concatenate([before[n], after[n]])
        entry["runs"][n] = seen.tolist()
        print(row(name, n, seen, prediction, mean_calls(replays[n])), flush=True)
    return entry


def mean_calls(replay: dict[str, Any]) -> float:
    """Return what a replay says of the communication of a rank, in the mean of all, in s."""
    (count,) = replay["counts"]
    return sum(float(phase["comm_ns_mean"]) for phase in count["phases"]) / 1e9


def row(name: str, n: int, seen: np.ndarray, prediction: dict[str, Any], comm: float) -> str:
    """Return a row of the table: what runs took, in the median, and what was predicted.

    ``comm``: of the replay (:func:`mean_calls`), as the run's is the mean of its ranks.
    """
    time_s, comm_s = np.median(seen, axis=0)
    found = next(each for each in prediction["counts"] if each["n"] == n)
    low, high = found["low_s"], found["high_s"]
    guess = found["time_s"]
    held = "" if low <= time_s <= high else " (outside)"
    return (
        f"| {name} | {n} | {time_s:.3f} | {guess:.3f} | {low:.3f} to {high:.3f}{held} "
        f"| {100 * (guess / time_s - 1):+.1f} % | {comm_s:.3f} | {comm:.3f} "
        f"| {100 * (comm / comm_s - 1):+.1f} % |"
    )


def main(arguments: list[str]) -> int:
    """Run the programs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pattern", action="append", choices=list(SIZES))
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--budget", type=float, default=15.0, help="seconds per replay")
    parser.add_argument("--out", type=Path, help="raw data as JSON")
    parser.add_argument("--work", type=Path, help="keep studies here")
    asked = parser.parse_args(arguments)
    if why := missing():
        print(f"benchmarks/curve.py: {why}", file=sys.stderr)
        return 1
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(HEAD, flush=True)
    raw: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="p3s-curve-") as scratch, largest_share():
        work = asked.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        source = PROGRAMS / "replay" / "curve.c"
        compiler = ["/usr/bin/mpicc.openmpi", "-O2", "-o", str(work / "curve"), str(source)]
        subprocess.run(compiler, check=True)
        for name in asked.pattern or SIZES:
            (work / name).mkdir(exist_ok=True)
            raw[name] = one_program(name, work, asked)
            if asked.out:
                asked.out.write_text(json.dumps(raw))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
