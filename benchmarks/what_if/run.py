"""What changes save as predicted, beside programs and networks that are really changed.

    python benchmarks/what_if/run.py [--program NAME] [--at 32] [--dir DIR] [--out raw.json]

On the simulated cluster of benchmarks/accuracy: a program is traced at small counts, and ``p3s
predict --what-if`` says what a change would save at a larger one. The truth is the simulator's: the
same program with less work, or with as much on every rank (its own arguments say so), or on a
network with half the latency, or with another algorithm, less the run as it is. Nothing here passes
or fails.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[0:1] = [str(HERE.parent.parent), str(HERE.parent)]

from accuracy import cluster, machine  # noqa: E402
from accuracy.build import Build, Builder  # noqa: E402
from accuracy.predicting import study_of  # noqa: E402
from accuracy.programs import Program  # noqa: E402
from accuracy.run import simulated  # noqa: E402

#: Counts that are traced, by the count that is predicted: up to half of it.
TRACED = {16: (2, 4, 8), 32: (4, 8, 16), 64: (4, 8, 16, 32)}
#: Networks of changes, beside the usual one of 10 Gbit/s and 2 us.
NETWORKS = {
    "half-latency": cluster.Platform("10Gbps", "1us"),
    "double-bandwidth": cluster.Platform("20Gbps"),
}
#: Arguments of the programs as they are: size, steps, work of the phase in per cent, not even.
ARGUMENTS = {"diffusion": ("16384", "100", "100", "0"), "transpose": ("512", "40", "100", "0")}
_TIMEOUT_S = 1200.0


@dataclass(frozen=True)
class Case:
    """A change as --what-if takes it, and the run that really has it.

    ``arguments``: of the changed program; ``network``: of PLATFORMS; ``algorithm``: settings of the
    simulator.
    """

    change: str
    arguments: tuple[str, ...]
    network: str = "flat"
    algorithm: tuple[str, str] | None = None


def cases(name: str, phase: int) -> Iterator[Case]:
    """Yield the changes of a program; ``phase``: number of the one whose work is an argument."""
    size, steps, share, even = ARGUMENTS[name]
    same = (size, steps, share, even)
    yield Case(f"phase {phase} / 2", (size, steps, str(int(share) // 2), even))
    yield Case("balanced", (size, steps, share, "1"))
    yield Case("latency / 2", same, "half-latency")
    yield Case("bandwidth * 2", same, "double-bandwidth")
    yield Case("allreduce=ring", same, algorithm=("lr", "ring"))
    yield Case(
        f"phase {phase} / 2, latency / 2", (size, steps, str(int(share) // 2), even), "half-latency"
    )


def truth(build: Build, builder: Builder, where: cluster.Cluster, case: Case, n: int) -> float:
    """Return the run time of a case in s, as the simulator has it."""
    there = replace(where, network=case.network)
    there.write()
    before = cluster.ALGORITHMS["allreduce"]
    try:
        if case.algorithm is not None:
            cluster.ALGORITHMS["allreduce"] = case.algorithm
        seconds, _ = cluster.simulate(there, builder.clock, build.plain, case.arguments, n)
    finally:
        cluster.ALGORITHMS["allreduce"] = before
    return seconds


def predicted(study: Path, file: Path, n: int, changes: Sequence[str]) -> dict[str, Any]:
    """Return what ``p3s predict --json`` prints."""
    asked = [word for change in changes for word in ("--what-if", change)]
    shutil.copyfile(file, study / "machine.json")
    words = ["predict", str(study), "-n", str(n), "--estimator", "machine", "--no-replay", "--json"]
    words += ["--cores-per-node", "1"]
    words += cluster.collectives(cluster.SET)
    done = subprocess.run(
        [sys.executable, "-m", "p3s", *words, *(asked or ["--what-if", "none"])],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode not in (0, 3):
        raise SystemExit(f"run.py: p3s {' '.join(words)}: {done.stderr.strip()[-300:]}")
    return dict(json.loads(done.stdout))


def one(name: str, n: int, directory: Path, builder: Builder, file: Path) -> list[dict[str, Any]]:
    """Return a row for each change of a program: what is saved, predicted and true, in s."""
    program = Program(name, HERE / f"{name}.c", ARGUMENTS[name], traced=TRACED[n], predicted=(n,))
    where = cluster.Cluster(directory / "build", n)
    where.write()
    runs = simulated(program, builder, where, directory / name)
    study = directory / name / "study"
    captures = [directory / name / f"np{count:04d}" for count in TRACED[n]]
    study_of(program, runs["executable"], captures, study)
    build = builder.program(program.source, name)
    as_is = float(runs["truth_s"][str(n)])
    wanted = list(cases(name, _phase(study, file, n, name)))
    found = predicted(study, file, n, [case.change for case in wanted])
    row = next(each for each in found["counts"] if each["n"] == n)
    said = {each["text"]: each["counts"][-1] for each in found["what_if"]}
    rows = []
    for case in wanted:
        seconds = truth(build, builder, where, case, n)
        at = said[case.change]
        rows.append(
            {
                "program": name,
                "n": n,
                "change": case.change,
                "time_s": row["time_s"],
                "true_time_s": as_is,
                "interval_s": [row["low_s"], row["high_s"]],
                "saved_s": at["saved_s"],
                "saved_low_s": at["saved_low_s"],
                "saved_high_s": at["saved_high_s"],
                "true_saved_s": as_is - seconds,
            }
        )
    return rows


def _phase(study: Path, file: Path, n: int, name: str) -> int:
    """Return the number of the phase whose work an argument says: the one that computes most."""
    row = predicted(study, file, n, [])["counts"][-1]
    return int(max(row["phases"], key=lambda phase: phase["compute_s"])["phase"])


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table; times in ms."""
    lines = [
        "| program | change | run, ms | saved, ms | predicted | interval |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = row["saved_low_s"], row["saved_high_s"]
        inside = low is not None and low <= row["true_saved_s"] <= high
        ends = "open" if low is None else f"{1e3 * low:.3f} to {1e3 * high:.3f}"
        lines.append(
            f"| {row['program']} | {row['change']} | {1e3 * row['true_time_s']:.2f} | "
            f"{1e3 * row['true_saved_s']:.3f} | {1e3 * row['saved_s']:.3f} | "
            f"{ends}{'' if inside or low is None else ', missed'} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; print the table."""
    parser = argparse.ArgumentParser(description="What changes save, predicted and true.")
    parser.add_argument("--program", action="append", choices=sorted(ARGUMENTS))
    parser.add_argument(
        "--at", type=int, choices=sorted(TRACED), default=32, help="the count that is predicted"
    )
    parser.add_argument("--dir", type=Path, help="work here, and keep what is simulated")
    parser.add_argument("--out", type=Path, help="write everything that was seen, as JSON")
    args = parser.parse_args()
    if why := cluster.missing():
        print(f"run.py: {why}", file=sys.stderr)
        return 1
    cluster.PLATFORMS.update(NETWORKS)
    with tempfile.TemporaryDirectory(prefix="p3s-what-if-") as temporary:
        directory = (args.dir or Path(temporary)).resolve()
        builder = Builder(directory / "build")
        cluster.Cluster(directory / "build", args.at).write()
        file = directory / "machine.json"
        if not file.exists():
            machine.measured(builder, file, "flat")
        rows: list[dict[str, Any]] = []
        for name in args.program or sorted(ARGUMENTS):
            rows += one(name, args.at, directory, builder, file)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
