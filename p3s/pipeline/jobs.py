"""Batch jobs of P3S: which scripts a task takes, and what becomes of them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import write_bytes
from p3s.base.errors import P3SError, UsageError
from p3s.base.host.schedulers import (
    Job,
    Scheduler,
    Surroundings,
    by_hand,
    of_array,
    script,
    seconds_of_limit,
)
from p3s.base.text import quote_word
from p3s.pipeline.records import existing, load_study, study_unit
from p3s.pipeline.tracing.runs import CountRequest
from p3s.pipeline.tracing.study import check_counts
from p3s.signature_runner.standard_input import NAME, take_input
from p3s.signature_runner.traced_run import check_template

#: What a replay takes beside its budget: starting, planning, costs.
_MORE_S = 600.0
#: A program that is slow to settle may overdraw the budget.
_OVERTIME = 2.0

ONE, EACH, ARRAY = "one", "each", "array"
#: Options of p3s characterize that make several studies, or need the runs of all counts.
_TOGETHER = ("--param", "--threads", "--signature")


@dataclass(frozen=True)
class Batch:
    """What all jobs of a call have in common; ``p3s``: the words that start P3S in them."""

    scheduler: Scheduler
    around: Surroundings
    p3s: tuple[str, ...]
    time: str = ""
    queue: str = ""
    account: str = ""
    options: tuple[str, ...] = ()

    def job(self, name: str, log: Path, limit_s: float | None = None, **more: Any) -> Job:
        """Return a job of them; its limit is that of the user, else ``limit_s``."""
        return Job(
            name=name,
            log=log,
            time_s=seconds_of_limit(self.time) if self.time else limit_s,
            queue=self.queue,
            account=self.account,
            options=self.options,
            **more,
        )

    def script(
        self, path: Path, job: Job, commands: Sequence[Sequence[str]], *before: str
    ) -> Script:
        """Return the script of a job; words of commands as a shell reads them."""
        text = script(self.scheduler, job, commands, self.around, before)
        return Script(path, text, job)

    def command(self, *words: str) -> list[str]:
        """Return the words of a command of P3S as a shell reads them."""
        return [shlex.quote(word) for word in (*self.p3s, *words)]


@dataclass(frozen=True)
class Script:
    """A batch script, where it will be, and the job that it asks for."""

    path: Path
    text: str
    job: Job


@dataclass(frozen=True)
class JobScripts:
    """Scripts of jobs that run side by side, and of one that waits for them.

    ``then``: the command for the time when all have ended; "" where that is the last job's.
    """

    scripts: tuple[Script, ...]
    last: Script | None
    then: str


@dataclass(frozen=True)
class Traces:
    """Traces that are asked for: of what, at which counts, in which jobs.

    counts: as they were written; ``on``: what they are. ``options``: further words of
    p3s characterize; ``predict``: counts for the last job.
    """

    root: Path
    words: tuple[str, ...]
    counts: str
    on: CountRequest
    jobs: str
    per_node: int
    cores: int
    options: tuple[str, ...]
    predict: tuple[int, ...]
    folder: Path

    def redirection(self) -> list[str]:
        """Return the words of a shell that give a job this process's standard input."""
        return ["<", quote_word(self.folder / NAME)] if take_input().size else []

    def has(self, *names: str) -> bool:
        """Tell whether one of these is among the options."""
        return any(word.partition("=")[0] in names for word in self.options)


def surroundings(modules: Sequence[str], venv: Path | None) -> Surroundings:
    """Return what the commands of a job need; raises UsageError for what is no environment."""
    activate = (venv or Path(sys.prefix)).absolute() / "bin" / "activate"
    if venv is not None and not activate.is_file():
        raise UsageError(f"--venv {venv}: no virtual environment (bin/activate is missing)")
    inside = venv is not None or sys.prefix != sys.base_prefix
    return Surroundings(
        Path.cwd(), tuple(modules), activate if inside and activate.is_file() else None
    )


def program(venv: Path | None) -> tuple[str, ...]:
    """Return the words that start P3S: those of a virtual environment, or this Python."""
    inside = venv is not None or sys.prefix != sys.base_prefix
    if inside and ((venv or Path(sys.prefix)) / "bin" / "p3s").is_file():
        return ("p3s",)
    if venv is not None:
        raise UsageError(f"--venv {venv}: holds no P3S (bin/p3s); install it there with pip")
    return (sys.executable, "-P", "-m", "p3s")


# ---- traces ----------------------------------------------------------------------------------
def traces(batch: Batch, asked: Traces, *, write: bool) -> JobScripts:
    """Return the scripts of the jobs that trace, and of the one that puts the runs together.

    ``write``: a study that is there already is told of the command.
    """
    check_template(asked.words)
    on = asked.on
    study = existing(asked.root)
    if asked.jobs not in (ONE, EACH, ARRAY):
        raise UsageError(f"--jobs {asked.jobs}: there are {ONE}, {EACH} and {ARRAY}")
    if asked.jobs == ONE:
        if not on.top and not asked.has(*_TOGETHER):
            check_counts(study, on.counts)
        words = batch.command("characterize", "-n", asked.counts)
        ranks, root = max(on.counts, default=on.top), quote_word(asked.root)
        made = [_script(batch, asked, "trace", "p3s-trace", ranks, words, root)]
        collected: list[list[str]] = []
    else:
        _check_apart(on, asked)
        if not asked.has("--work"):
            asked = replace(asked, options=(*asked.options, "--work", study_unit(study)))
        make = _make_scripts if asked.jobs == EACH else _array
        made = make(batch, asked, on.counts)
        force = ["--force"] if asked.has("--force") else []
        parts = [str(asked.folder / f"np{np}") for np in on.counts]
        collected = [batch.command("add", str(asked.root), *parts, *force)]
    if write and study is not None and not asked.has(*_TOGETHER):
        study.create(asked.root, asked.words, force=asked.has("--force"))
    if write:
        take_input().put(asked.folder)
    then = f"p3s {'view' if asked.predict else 'model'} {quote_word(asked.root)}"
    return JobScripts(tuple(made), _last(batch, asked, collected), then)


def _check_apart(on: CountRequest, asked: Traces) -> None:
    """Raise UsageError for what no job can do without the others."""
    if on.top:
        raise UsageError(f"-n ..{on.top}: of --jobs {ONE} only; else name the counts, as 8,16,32")
    for name in _TOGETHER:
        if asked.has(name):
            raise UsageError(f"--trace {name}: of --jobs {ONE} only")
    if asked.jobs == ARRAY and len(on.counts) < 2:
        raise UsageError(f"-n {asked.counts}: a job array takes two counts or more")


def _make_scripts(batch: Batch, asked: Traces, counts: Sequence[int]) -> list[Script]:
    """Return a script for each count."""
    found = []
    for np in counts:
        words = batch.command("characterize", "--part", "-n", str(np))
        into = quote_word(asked.folder / f"np{np}")
        found.append(_script(batch, asked, f"trace-np{np}", f"p3s-np{np}", np, words, into))
    return found


def _array(batch: Batch, asked: Traces, counts: Sequence[int]) -> list[Script]:
    """Return the script of a job array; its tasks all have the nodes of the largest count."""
    words = [*batch.command("characterize", "--part", "-n"), '"$np"']
    into, lines = f'{quote_word(asked.folder)}/"np$np"', of_array(batch.scheduler, counts)
    common, tasks = (batch, asked, "trace", "p3s-trace", max(counts)), len(counts)
    return [_script(*common, words, into, *lines, tasks=tasks)]


def _script(
    batch: Batch,
    asked: Traces,
    file: str,
    name: str,
    ranks: int,
    words: Sequence[str],
    into: str,
    *before: str,
    **more: int,
) -> Script:
    """Return the script of a job that traces into a directory, which is quoted already."""
    options, program = map(shlex.quote, asked.options), map(shlex.quote, asked.words)
    command = [*words, *options, "-o", into, "--", *program, *asked.redirection()]
    log = asked.folder / file
    job = batch.job(name, log, ranks=ranks, per_node=asked.per_node, cores=asked.cores, **more)
    return batch.script(asked.folder / f"{file}.sh", job, [command], *before)


def _last(batch: Batch, asked: Traces, commands: list[list[str]]) -> Script | None:
    """Return the script of the job that puts runs together, predicts and reports."""
    root = str(asked.root)
    if asked.predict:
        listed = ",".join(map(str, asked.predict))
        commands = [*commands, batch.command("predict", root, "-n", listed)]
        commands.append(batch.command("report", root))
    if not commands:
        return None
    job = batch.job("p3s-last", asked.folder / "last", ranks=1, alone=False)
    return batch.script(asked.folder / "last.sh", job, commands)


# ---- replay ----------------------------------------------------------------------------------
def replay(
    batch: Batch,
    study_dir: Path,
    counts: Sequence[int],
    nodes: int,
    per_node: int,
    budget: str,
    budget_s: float,
    options: Sequence[str],
    output: Path | None,
) -> JobScripts:
    """Return the script of the job that replays; p3s replay takes the job's nodes as its hosts."""
    if nodes not in (1, 2, 4):
        raise UsageError(f"--nodes {nodes}: a replay is made on 4 nodes, 2 or 1")
    load_study(study_dir)
    root = study_dir.absolute()
    place = (output or root / "replay" / "submit.sh").absolute()
    listed = ",".join(map(str, counts))
    limit_s = len(counts) * (_OVERTIME * budget_s + _MORE_S)
    log = place.with_name(place.stem)
    job = batch.job("p3s-replay", log, limit_s, nodes=nodes, per_node=per_node)
    command = batch.command("replay", str(root), "-n", listed, "--budget", budget, *options)
    made = batch.script(place, job, [command])
    return JobScripts((made,), None, f"p3s predict {quote_word(study_dir)} -n {listed}")


# ---- what becomes of the scripts ------------------------------------------------------------
def write_scripts(batch: Batch, made: JobScripts, scripts: Sequence[Script]) -> str:
    """Write the scripts; return the command that hands them over."""
    texts = {each.path: each.text for each in scripts}
    start = batch.scheduler.by_hand(quote_word(scripts[0].path)).replace(" --parsable", "")
    if len(scripts) > 1:
        paths = [each.path for each in made.scripts]
        starter = paths[0].with_name("submit.sh")
        last = made.last.path if made.last else None
        texts[starter] = by_hand(batch.scheduler, paths, last)
        start = f"bash {quote_word(starter)}"
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, text.encode())
        except OSError as err:
            raise P3SError(f"{path}: cannot be written: {err.strerror}") from err
    return start


def hand_over(batch: Batch, made: JobScripts, scripts: Sequence[Script]) -> list[str]:
    """Hand scripts over and return the numbers of their jobs."""
    numbers: list[str] = []
    try:
        for each in scripts:
            numbers.append(batch.scheduler.submit(each.path, numbers if each is made.last else ()))
    except P3SError as err:
        if numbers:
            raise P3SError(f"{err}; submitted already: {', '.join(numbers)}") from err
        raise
    return numbers
