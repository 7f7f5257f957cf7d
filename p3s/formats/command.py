"""``p3s export``: what a study knows, in the formats of other tools."""

from __future__ import annotations

from pathlib import Path

from p3s.base.errors import UsageError
from p3s.base.extensions import Writer, extensions
from p3s.base.text import join_words
from p3s.cli.common import emit_json, out, say
from p3s.cli.declared import argument, option
from p3s.cli.options import JSON_OPTION
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts, parse_ranks

WRITERS = {each.name: each for extension in extensions() for each in extension.writers}
_RUNS = [name for name, each in WRITERS.items() if each.content == "run"]
_OF_RANKS = [name for name, each in WRITERS.items() if each.of_ranks]
_FORMATS = "\n".join(f"  {name:<12} {each.summary}" for name, each in WRITERS.items())

EPILOG = f"""\b
Example:
  p3s export study --to simgrid -n 256
  p3s export study --to goal -n 4096 --turns 3 -o halo
  p3s export study --to otf2 -n 16
  p3s export study --to cube -n 512
  p3s export study --to extra-p
Formats (docs/export.md):
{_FORMATS}"""


def export(
    study_dir: Path = argument("STUDY", "Study directory."),
    to: str = option(..., "--to FORMAT", f"{join_words(WRITERS, 'or')}."),
    count: str = option("", "-n --counts N", "Process count; extra-p has all."),
    target: Path | None = option(
        None,
        "-o --output PATH",
        "New file or directory [default: STUDY/export/npN with the format's ending].",
    ),
    turns: str = option(
        "",
        "--turns K",
        "Iterations of each loop, section by section [default: the whole run; of simulated "
        "runs 3].",
    ),
    messages: bool = option(
        False, "--messages", "Write all collectives as messages, also where calls exist."
    ),
    collectives: str = option(
        "",
        "--collectives WHAT",
        "Algorithms instead of the library's: allreduce=ring,..., or a file.",
    ),
    cores: int = option(0, "--cores-per-node K", "Ranks on one node [default: 1].", min=0),
    machine: Path | None = option(
        None,
        "--machine FILE",
        "Machine file with the costs of messages [default: STUDY/machine.json].",
    ),
    ranks: str | None = option(
        None, "--ranks RANKS", f"{', '.join(_OF_RANKS)}: only these ranks, for example 0-63."
    ),
    simulated: bool = option(
        False,
        "--simulated",
        f"{', '.join(_RUNS)}: the simulated run, though a traced one is there.",
    ),
    force: bool = option(False, "--force", "Replace an earlier export."),
    json_: bool = JSON_OPTION,
) -> int:
    """Write a trace, schedule, timeline or points for another tool; says what it leaves out."""
    from p3s.formats.exported import Options, check_free
    from p3s.formats.study import export as written
    from p3s.pipeline.records import load_study, open_traces
    from p3s.pipeline.stages import ensure_compute, ensure_model, ensure_scaled

    if to not in WRITERS:
        raise UsageError(f"--to {to}: no format; known: {', '.join(WRITERS)}")
    writer = WRITERS[to]
    study = load_study(study_dir)
    n = _count(count, writer)
    chosen_ranks = tuple(parse_ranks(ranks)) if ranks is not None else None
    if chosen_ranks is not None and not writer.of_ranks:
        raise UsageError(f"--ranks {ranks}: only for {' and '.join(_OF_RANKS)}")
    if chosen_ranks is not None and chosen_ranks[-1] >= n:
        raise UsageError(f"--ranks {ranks}: there are {n} ranks")
    if simulated and writer.content != "run":
        raise UsageError(f"--simulated: only for {', '.join(_RUNS)}")
    options = Options(
        _turns(turns), messages, collectives, cores or None, machine, chosen_ranks, simulated
    )
    name = f"np{n:06d}" if n else "points"
    suffix = "" if writer.splits and options.turns is not None else writer.suffix
    goal = target or study.root / "export" / (name + suffix)
    check_free(goal, force)
    with progress(1) as bar:
        ran = bool(open_traces(study_dir).complete(n)) and not simulated
        if writer.content in ("scaled", "simulated") or (writer.content == "run" and not ran):
            if study.signature_counts() or study.gone_counts():
                ensure_model(study, bar)
                ensure_compute(study, bar)
            ensure_scaled(study, n, bar)
        bar.start(f"writing {goal}")
        result = written(open_traces(study_dir), writer, n, goal, options, bar.start)
    if json_:
        emit_json(result.to_json())
    else:
        out(str(result.path))
    for line in result.lines():
        say(line)
    if result.command:
        say(f"next: {result.command}")
    return 3 if result.partial else 0


def _count(text: str, writer: Writer) -> int:
    if writer.content == "points":
        if text:
            raise UsageError(f"-n {text}: {writer.name} has points of all counts; leave it out")
        return 0
    if not text:
        raise UsageError(f"--to {writer.name} needs a process count: -n 64")
    counts = parse_counts(text)
    if len(counts) != 1:
        raise UsageError(f"-n {text}: give one process count, for example -n {counts[-1]}")
    return counts[0]


def _turns(text: str) -> int | None:
    if not text or text == "all":
        return None
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= 10**6:
        raise UsageError(
            f"--turns {text}: give a number of iterations, for example --turns 3, or all"
        )
    return int(text)
