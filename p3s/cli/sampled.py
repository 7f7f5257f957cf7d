"""``p3s characterize --signature``: run a signature, say what it cost and saved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import one_line, plural, processes, table
from p3s.cli.common import Progress, emit_json, header, out, progress, say

if TYPE_CHECKING:
    from p3s.base.study import Study
    from p3s.capture.recording_plan import Enough, Plan
    from p3s.model.grid.stated import Extents
    from p3s.signature_runner.recording import Recording
    from p3s.signature_runner.traced_run import Launch

SIGNATURE = typer.Option(
    False, "--signature", help="Run the signature of a study: each phase only often enough."
)
STOP = typer.Option(
    False, "--stop", help="With --signature: end the program once every phase has been seen."
)
WIDTH = typer.Option(
    "2%", "--width", metavar="PERCENT", help="Half width at which the time of a run is known."
)
CONFIDENCE = typer.Option(
    "95%", "--confidence", metavar="PERCENT", help="Confidence of that interval."
)
TURNS = typer.Option(
    "20-1000",
    "--turns",
    metavar="RANGE",
    help="Fewest and most iterations of a phase in full detail.",
)

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*(%?)")
_RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def enough(width: str, confidence: str, turns: str) -> Enough:
    """Return what the options --width, --confidence and --turns ask for.

    Errors: UsageError that names the option.
    """
    from p3s.capture.recording_plan import Enough

    match = _RANGE.fullmatch(turns.strip())
    if match is None or not 2 <= int(match[1]) <= int(match[2]):
        raise UsageError(
            f"--turns {turns}: not a range of at least 2; give for example --turns 20-1000"
        )
    return Enough(
        _share("--width", width), _share("--confidence", confidence), int(match[1]), int(match[2])
    )


def _share(option: str, text: str) -> float:
    match = _PERCENT.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < value < 1:
        raise UsageError(f"{option} {text}: not between 0 and 100 %; give for example 2%")
    return value


def run_signature(
    root: Path,
    command: Sequence[str],
    counts: Sequence[int],
    timeout_s: float,
    asked: Recording,
    settings: Enough,
    json_: bool,
    extents: Mapping[int, Extents],
) -> int:
    """Run the signature of a study at each count and print the times that follow.

    ``extents``: of the process grid, by count, where the program gets them as arguments. Exit
    code 0; 3 where some of a program was not seen. Raises UsageError when the study is of another
    command or unit of work, P3SError when it cannot be run.
    """
    from p3s.base.study import Study
    from p3s.cli.weights import weights_at
    from p3s.model.grid.stated import keep_dims, listed_extents
    from p3s.signature.phases import load_phases
    from p3s.signature.plans import too_rare
    from p3s.signature_runner.traced_run import Launch

    study = Study.open(root)
    if list(command) not in study.manifest()["commands"]:
        raise UsageError(
            f"{root}: holds runs of another command; run its signature with the same words:"
            f" -- {' '.join(study.command())}"
        )
    keep_dims(study, extents)
    phases = load_phases(study.root)
    recording = _recording(study, asked)
    prepared = []
    for np in counts:  # everything that can be refused is, before anything runs
        plan = _plan(phases, np, settings, recording)
        weights = weights_at(study, phases, np) if asked.stop else None
        prepared.append((np, plan, weights))
        rare = too_rare(phases, np, plan)
        if rare and asked.stop:
            say(
                f"np={np}: {', '.join(rare[:3])} {'is' if len(rare) == 1 else 'are'} not begun"
                f" more than {settings.turns} times in a run: the program will not be stopped"
            )
    results = []
    launch = Launch(tuple(command), timeout_s, listed_extents(study))
    with progress(len(counts)) as bar:
        for np, plan, weights in prepared:
            bar.start(f"np={np}: running the signature")
            results.append(
                _one(study, launch, np, replace(recording, plan=plan), phases, weights, bar)
            )
            bar.done(f"np={np}: {results[-1]['saved']['wall_s']:.1f} s")
    if json_:
        emit_json({**header("characterize"), "study": str(study.root), "sampled": results})
    else:
        out("\n\n".join(text(result) for result in results))
    return 0


def _recording(study: Study, asked: Recording) -> Recording:
    from p3s.signature_runner.work_unit import of_study

    unit = of_study(study).work
    if asked.work not in ("auto", unit):
        raise UsageError(
            f"--work {asked.work}: the work of {study.root} is measured in {unit}; leave --work out"
        )
    return replace(asked, work=unit)


def _plan(phases: Mapping[str, Any], np: int, settings: Enough, recording: Recording) -> Plan:
    from p3s.base.host.cores import cores
    from p3s.capture.recording_plan import WORK
    from p3s.signature.plans import plan_of

    # Where ranks take turns on a core, the time inside calls tells nothing about the program.
    if np > cores() or recording.work == "instructions":
        settings = replace(settings, measure=WORK)
    return plan_of(phases, np, settings)


def _one(
    study: Study,
    launch: Launch,
    np: int,
    recording: Recording,
    phases: Mapping[str, Any],
    weights: Any,
    bar: Progress,
) -> dict[str, Any]:
    from p3s.base.study import RUN_SCHEMA, read_json
    from p3s.signature.sampled import predict
    from p3s.signature_runner.traced_run import trace_once

    target = study.sampled_dir(np)
    problems = trace_once(study, launch, np, target, recording, bar).problems
    if problems:
        raise P3SError(f"np={np}: {problems[0]}; run the signature again")
    assert recording.plan is not None
    stopped = read_json(target / "run.json", RUN_SCHEMA)["status"] == "stopped"
    return predict(study, np, recording.plan, phases, weights if stopped else None)


def text(result: Mapping[str, Any]) -> str:
    """Return one result for people."""
    unit = _Unit(result)
    rows = []
    for row in result["phases"]:
        low, high = row["in_detail"]
        rows.append(
            [
                str(row["phase"]),
                one_line(row["name"]),
                f"{row['turns']:,}",
                f"{low:,}" if low == high else f"{low:,}-{high:,}",
                "-" if row["mean"] is None else unit.one(row["mean"]),
                "-" if row["mean"] is None else f"{100 * row['relative_half_width']:.1f} %",
                ", ".join(row["state"]) or "not begun",
                f"{100 * row['share']:.1f} %",
            ]
        )
    head = ["phase", "name", "turns", "in detail", "one iteration", "within", "state", "share"]
    lines = [processes(result["np"]), table(rows, head, 2)]
    events, saved = result["events"], result["saved"]
    of_run = events["run"]
    whole = f" of {plural(of_run, 'event')}" if of_run else ""
    lines.append(
        f"full detail for {100 * events['share_in_detail']:.1f} % of the events"
        f" ({events['recorded']:,}{whole}, {events['counted']:,} counted)"
    )
    half = result["half_width"]
    error = f" ± {unit.one(half)}" if half > 0 else ""
    unknown = "" if half > 0 else "; no spread between iterations is known"
    lines.append(
        f"predicted {unit.what}: {unit.one(result['predicted'])}{error} "
        f"(weights from {result['weights_from']}{unknown})"
    )
    lines.append(f"by the iterations in full detail alone: {unit.one(result['from_detail'])}")
    for key, name in (("of_this_run", "this run, all of it"), ("of_full_run", "the full run")):
        row = result[key]
        if row is not None and row["difference"] is not None:
            lines.append(
                f"{name}: {unit.one(row['time'])}, predicted {100 * row['difference']:+.2f} %,"
                f" by the iterations in full detail alone {100 * row['from_detail']:+.2f} %"
            )
    if saved["full_wall_s"]:
        lines.append(
            f"run time {saved['wall_s']:.2f} s{' (stopped)' if result['stopped'] else ''}, of the"
            f" full run {saved['full_wall_s']:.2f} s; captures {_size(saved['bytes'])}, of the"
            f" full run {_size(saved['full_bytes'])}"
        )
    return "\n".join(lines)


class _Unit:
    """Names and sizes of what a result is in."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.instructions = result["work_unit"] == "instructions"
        if self.instructions:
            self.what = "instructions per process"
        elif result["measure"] == "work":
            self.what = "computation per process"
        else:
            self.what = "time"

    def one(self, value: float) -> str:
        if self.instructions:
            return f"{value:,.0f}"
        for size, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if value >= size:
                return f"{value / size:.4g} {name}"
        return f"{value:.0f} ns"


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"
