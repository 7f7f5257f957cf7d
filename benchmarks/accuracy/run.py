"""How well P3S predicts run times, on a simulated cluster (SimGrid SMPI).

    python benchmarks/accuracy/run.py [--program NAME]... [--held-out] [--out raw.json] [--dir DIR]

Every program runs in SimGrid's simulator, alone at all counts (the truth) and with P3S's tracer
compiled into it at the small ones. Captures of the small counts and a measurement between two
nodes of the same cluster are all that the prediction gets. docs/accuracy.md, "Run time", says what
the cluster is. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[0:1] = [str(HERE.parent.parent), str(HERE.parent)]

from accuracy import cluster  # noqa: E402
from accuracy.build import ACCESS_PS, BLOCK_PS, Build, Builder  # noqa: E402
from accuracy.predicting import PredictionError, as_row, predicted, study_of  # noqa: E402
from accuracy.programs import HELD_OUT, PROGRAMS, Program  # noqa: E402

#: What is aimed at: mean and largest error of run time.
MEAN, LARGEST = 0.04, 0.08


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
    same program and settings is not run again.
    """
    path = directory / "simulated.json"
    head = {
        "arguments": list(program.arguments),
        "arguments_at": {str(n): list(words) for n, words in program.at.items()},
        "build": program.build,
        "settings": cluster.settings(),
        "counts": [program.traced, program.predicted],
        "cost_ps": [BLOCK_PS, ACCESS_PS],
    }
    head = json.loads(json.dumps(head))
    if path.exists():
        found = json.loads(path.read_text())
        if {key: found.get(key) for key in head} == head:
            return dict(found)
    shutil.rmtree(directory, ignore_errors=True)
    build = built(program, builder)
    alone: dict[str, float] = {}
    traced: dict[str, float] = {}
    for n in (*program.traced, *program.predicted):
        begin = time.monotonic()
        words = program.arguments_at(n)
        places = build.directories or (None, None)
        alone[str(n)], _ = cluster.simulate(
            where, builder.clock, build.plain, words, n, directory=places[0]
        )
        if n in program.traced:
            into = directory / f"np{n:04d}"
            into.mkdir(parents=True)
            traced[str(n)], _ = cluster.simulate(
                where,
                builder.clock,
                build.traced,
                words,
                n,
                {"P3S_TRACE_DIR": str(into), "P3S_WORK": "wall"},
                places[1],
                build.preloaded,
            )
        say(
            f"{program.name} n={n}: {alone[str(n)]:.6f} s, simulated in "
            f"{time.monotonic() - begin:.0f} s"
        )
    found = {**head, "truth_s": alone, "with_tracer_s": traced}
    path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def one(
    program: Program,
    builder: Builder,
    where: cluster.Cluster,
    machine: Path,
    directory: Path,
    *,
    predict: bool = True,
) -> dict[str, Any]:
    """Return everything that is seen of one program; without ``predict`` only its runs."""
    runs = simulated(program, builder, where, directory)
    row: dict[str, Any] = {"program": program.name, "traced": list(program.traced), **runs}
    row.update(counts=[], why_not="")
    try:
        study = study_of(
            program, [directory / f"np{n:04d}" for n in program.traced], directory / "study"
        )
        if not predict:
            return row
        found = predicted(study, [*program.traced, *program.predicted], machine)
        row["counts"] = [as_row(found[n], runs["truth_s"][str(n)]) for n in found]
    except PredictionError as error:
        row.update(why_not=str(error))
    for count in row["counts"]:
        say(
            f"{program.name} n={count['n']}: predicted {count['time_s']:.6f} s of "
            f"{count['truth_s']:.6f}, {100 * count['error']:+.2f} %"
        )
    return row


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and largest error over the predicted counts, and how many intervals held."""
    asked = [count for row in rows for count in row["counts"] if count["n"] not in row["traced"]]
    errors = [abs(count["error"]) for count in asked]
    told = [count["covered"] for count in asked if count["covered"] is not None]
    return {
        "compared": len(errors),
        "mean": sum(errors) / len(errors) if errors else None,
        "largest": max(errors, default=None),
        "aim": {"mean": MEAN, "largest": LARGEST},
        "intervals": len(told),
        "covered": sum(told),
        "refused": [row["program"] for row in rows if row["why_not"]],
    }


def table(rows: list[dict[str, Any]], total: dict[str, Any]) -> str:
    """Return a Markdown table of the predicted counts."""
    lines = [
        "| program | n | truth, ms | predicted, ms | error | communication | interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["why_not"]:
            lines.append(f"| {row['program']} | | | {row['why_not']} | | | |")
        for count in row["counts"]:
            if count["n"] in row["traced"]:
                continue
            ends = (
                "-"
                if count["low_s"] is None
                else (
                    f"{1e3 * count['low_s']:.2f} to {1e3 * count['high_s']:.2f}"
                    f"{'' if count['covered'] else ', missed'}"
                )
            )
            lines.append(
                f"| {row['program']} | {count['n']} | {1e3 * count['truth_s']:.2f} | "
                f"{1e3 * count['time_s']:.2f} | {100 * count['error']:+.1f} % | "
                f"{100 * count['comm_s'] / count['time_s']:.0f} % | {ends} |"
            )
    if total["compared"]:
        lines.append(
            f"\n{total['compared']} run times: mean error {100 * total['mean']:.2f} %, "
            f"largest {100 * total['largest']:.2f} % (aim: {100 * MEAN:.0f} and "
            f"{100 * LARGEST:.0f} %); {total['covered']} of {total['intervals']} "
            "intervals hold the truth"
        )
    return "\n".join(lines)


def counts_of(text: str) -> tuple[int, ...]:
    """Return process counts from words such as 4,8,16."""
    return tuple(int(word) for word in text.split(","))


def asked(args: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line means. Errors: ValueError, one line."""
    if args.source is None:
        every = {**PROGRAMS, **HELD_OUT}
        names = args.program or (HELD_OUT if args.held_out else PROGRAMS)
        if unknown := [name for name in names if name not in every]:
            raise ValueError(
                f"--program {unknown[0]}: give --source, or one of {', '.join(sorted(every))}"
            )
        found = [every[name] for name in names]
    elif len(args.program or ()) != 1 or not args.executable:
        raise ValueError("--source needs one --program NAME and --executable PATH")
    else:
        at = dict(word.split("=", 1) for word in args.arguments_at)
        found = [
            Program(
                args.program[0],
                args.source.resolve(),
                tuple(shlex.split(args.arguments)),
                build=args.build,
                executable=args.executable,
                at={int(n): tuple(shlex.split(words)) for n, words in at.items()},
            )
        ]
    return [
        replace(
            program,
            traced=args.traced or program.traced,
            predicted=args.predicted or program.predicted,
        )
        for program in found
    ]


def main() -> int:
    """Run the benchmark; print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--program", action="append", help="only this one (may be repeated); a name for --source"
    )
    parser.add_argument("--source", type=Path, help="an outside program: directory of its sources")
    parser.add_argument(
        "--build", default="make", help="shell command that builds --source (default: make)"
    )
    parser.add_argument("--executable", default="", help="what it makes, from --source")
    parser.add_argument("--arguments", default="", help="of --source; {np}: the process count")
    parser.add_argument(
        "--arguments-at",
        action="append",
        default=[],
        metavar="N=WORDS",
        help="other arguments at a count (may be repeated)",
    )
    parser.add_argument("--traced", type=counts_of, help="traced counts, such as 4,8,16,32")
    parser.add_argument("--predicted", type=counts_of, help="predicted counts")
    parser.add_argument(
        "--held-out", action="store_true", help="the programs that nothing was changed for"
    )
    parser.add_argument(
        "--simulate-only", action="store_true", help="make the runs and the study, predict nothing"
    )
    parser.add_argument("--out", type=Path, help="write everything that was seen, as JSON")
    parser.add_argument(
        "--dir", type=Path, help="work here; what was simulated there is not simulated again"
    )
    args = parser.parse_args()
    try:
        wanted = asked(args)
    except ValueError as error:
        parser.error(str(error))
    if why := cluster.missing():
        print(f"run.py: {why}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="p3s-accuracy-") as temporary:
        directory = (args.dir or Path(temporary)).resolve()
        builder = Builder(directory / "build")
        from accuracy import machine

        where = cluster.Cluster(
            directory / "build", max(n for program in wanted for n in program.predicted)
        )
        where.write()
        path = directory / "machine.json"
        if not path.exists():
            say("measuring between two nodes")
            machine.measured(builder, path)
        rows = []
        for program in wanted:
            into = directory / program.name
            rows.append(one(program, builder, where, path, into, predict=not args.simulate_only))
        total = summary(rows)
        print(table(rows, total))
        if args.out:
            args.out.write_text(
                json.dumps(
                    {
                        "simulator": cluster.version(),
                        "settings": cluster.settings(),
                        "summary": total,
                        "programs": rows,
                    },
                    indent=1,
                )
                + "\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
