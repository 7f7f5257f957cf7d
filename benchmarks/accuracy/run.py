"""How well P3S predicts run times, on a simulated cluster (SimGrid SMPI).

    python benchmarks/accuracy/run.py [--program NAME]... [--held-out] [--out raw.json] [--dir DIR]
    python benchmarks/accuracy/run.py --program NAME --source DIR --build COMMAND --executable PATH

Every program runs in SimGrid's simulator, alone at all counts (the truth) and with P3S's tracer
compiled into it at the small ones. Captures of the small counts and a measurement between two
nodes of the same cluster are all that the prediction gets. docs/accuracy.md, "Run time", says what
the cluster is, benchmarks/README.md how a program from elsewhere is built. Nothing here passes or
fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[0:1] = [str(HERE.parent.parent), str(HERE.parent)]

from accuracy import cluster, options, report  # noqa: E402
from accuracy.build import ACCESS_PS, BLOCK_PS, Build, Builder  # noqa: E402
from accuracy.predicting import PredictionError, as_row, predicted, study_of  # noqa: E402
from accuracy.programs import Program  # noqa: E402

#: Of the regressions' bootstrap; runs are simulated the same every time, without one.
SEED = 0


def say(text: str) -> None:
    """Tell how far it is, with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def built(program: Program, builder: Builder) -> Build:
    """Compile a program, by its own build where it has one."""
    if program.build:
        return builder.outside(program.name, program.source, program.build, program.executable)
    return builder.program(program.source, program.name)


def simulated(
    program: Program, builder: Builder, where: cluster.Cluster, directory: Path
) -> dict[str, Any]:
    """Run a program at all counts alone, and traced at the small ones (into np0004, ...).

    Returns what stands in simulated.json: run times in s by count. What is there already for the
    same program and settings is not run again, also where an earlier call did not come to its end.
    """
    path = directory / "simulated.json"
    head = {
        "arguments": list(program.arguments),
        "arguments_at": {str(n): list(words) for n, words in program.at.items()},
        "build": program.build,
        "settings": cluster.settings(where.algorithms),
        "platform": where.network,
        "cost_ps": [BLOCK_PS, ACCESS_PS],
    }
    found = json.loads(path.read_text()) if path.exists() else {}
    if {key: found.get(key) for key in head} != json.loads(json.dumps(head)):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        found = {**head, "truth_s": {}, "with_tracer_s": {}}
    missing = [
        n
        for n in (*program.traced, *program.predicted)
        if str(n) not in found["with_tracer_s" if n in program.traced else "truth_s"]
    ]
    build = built(program, builder) if missing else None
    for n in missing:
        assert build
        begin = time.monotonic()
        words = program.arguments_at(n)
        places = build.directories or (None, None)
        found["executable"] = str(build.traced)
        found["truth_s"][str(n)], _ = cluster.simulate(
            where, builder.clock, build.plain, words, n, directory=places[0]
        )
        if n in program.traced:
            into = directory / f"np{n:04d}"
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir()
            found["with_tracer_s"][str(n)], _ = cluster.simulate(
                where,
                builder.clock,
                build.traced,
                words,
                n,
                {"P3S_TRACE_DIR": str(into), "P3S_WORK": "wall"},
                places[1],
                build.preloaded,
            )
        path.write_text(json.dumps(found, indent=1) + "\n")
        say(
            f"{program.name} n={n}: {found['truth_s'][str(n)]:.6f} s, simulated in "
            f"{time.monotonic() - begin:.0f} s"
        )
    return found


def one(
    program: Program,
    builder: Builder,
    where: cluster.Cluster,
    machine: Path,
    directory: Path,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Return everything that is seen of one program."""
    runs = simulated(program, builder, where, directory)
    truth = {int(n): float(seconds) for n, seconds in runs["truth_s"].items()}
    row: dict[str, Any] = {
        "program": program.name,
        "half": program.half,
        "traced": list(program.traced),
        **runs,
        "counts": [],
        "why_not": "",
    }
    study = directory / "study"
    try:
        captures = [directory / f"np{n:04d}" for n in program.traced]
        study_of(program, runs.get("executable", program.name), captures, study)
        if args.simulate_only:
            return row
        further = [*cluster.collectives(where.algorithms), *shlex.split(args.predict_with)]
        found = predicted(study, program.traced, program.predicted, machine, further)
    except PredictionError as error:
        row["why_not"] = str(error)
        return row
    others = regression(study, truth)
    row["counts"] = [
        {**as_row(found[n], truth[n]), "regression": others.get(n)} for n in sorted(found)
    ]
    for count in row["counts"]:
        say(
            f"{program.name} n={count['n']}: predicted {count['time_s']:.6f} s of "
            f"{count['truth_s']:.6f}, {100 * count['error']:+.2f} %"
        )
    return row


def regression(study: Path, truth: Mapping[int, float]) -> dict[int, float]:
    """Return by how much a regression of the traced run times misses at the larger counts."""
    from p3s.base.errors import P3SError
    from p3s.laws.statistics import relative_error
    from p3s.methods.baseline.fromstudy import times_in
    from p3s.methods.baseline.model import fit_series
    from p3s.methods.baseline.times import series_of

    try:
        whole = fit_series(series_of(times_in(study).runs))
    except P3SError as error:
        say(f"{study}: no regression: {error}")
        return {}
    counts = sorted(n for n in truth if n > max(whole.counts))
    return {n: relative_error(whole.say([n])[0].seconds, truth[n]) for n in counts}


def versions() -> dict[str, str]:
    """Return the versions of what the results depend on."""
    import numpy as np

    from p3s import __version__

    found = {
        "p3s": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "simulator": cluster.version(),
    }
    for tool in ("cc", "c++", "gfortran"):
        path = shutil.which(tool)
        done = path and subprocess.run(
            [path, "-dumpfullversion"], capture_output=True, text=True, check=False
        )
        found[tool] = done.stdout.strip() if done else "none"
    return found


def results(args: argparse.Namespace, wanted: list[Program]) -> dict[str, Any]:
    """Run everything that the command line asks for; return what was seen."""
    from accuracy import machine

    with tempfile.TemporaryDirectory(prefix="p3s-accuracy-") as temporary:
        directory = (args.dir or Path(temporary)).resolve()
        builder = Builder(directory / "build")
        most = max(n for program in wanted for n in program.predicted)
        where = cluster.Cluster(directory / "build", most, args.platform, args.algorithms)
        where.write()
        path = directory / "machine.json"
        if not path.exists():
            say("measuring between two nodes")
            machine.measured(builder, path, args.platform)
        rows = [
            one(program, builder, where, path, directory / program.name, args) for program in wanted
        ]
    return {
        "platform": args.platform,
        "seed": SEED,
        "versions": versions(),
        "settings": cluster.settings(args.algorithms),
        "programs": rows,
    }


def show(seen: dict[str, Any], args: argparse.Namespace) -> None:
    """Print the table and write the file that were asked for."""
    rows = seen["programs"]
    seen["summary"] = report.summary(rows)
    print(report.table(rows))
    if args.out:
        args.out.write_text(json.dumps(seen, indent=1) + "\n")


def main() -> int:
    """Run the benchmark; print the table."""
    parser = options.parser()
    args = parser.parse_args()
    if args.join:
        parts = [json.loads(path.read_text()) for path in args.join]
        show({**parts[0], "programs": [row for part in parts for row in part["programs"]]}, args)
        return 0
    try:
        wanted = options.asked(args)
    except ValueError as error:
        parser.error(str(error))
    if why := cluster.missing():
        print(f"run.py: {why}", file=sys.stderr)
        return 1
    try:
        show(results(args, wanted), args)
    except cluster.SimulationError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
