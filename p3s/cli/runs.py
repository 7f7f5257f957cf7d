"""Trace a program at several counts into a study; nothing that was there is lost."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, RunFailed, UsageError
from p3s.base.progress import Progress
from p3s.base.study import RUN_SCHEMA, Study, read_json, write_json
from p3s.base.text import processes
from p3s.base.trust import sign
from p3s.cli.common import quoted, say
from p3s.pipeline.stages import MIN_COUNTS

if TYPE_CHECKING:
    from p3s.signature_runner.recording import Recording

#: MPI calls of one rank up to which a run that failed has shown nothing: it set up and gave up.
_FEW_EVENTS = 50


@dataclass
class Traced:
    """What tracing did: rows of finished counts, and why others are missing."""

    counts: list[dict[str, Any]] = field(default_factory=list)
    failed: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, other: Traced) -> None:
        """Add what tracing other counts did."""
        self.counts += other.counts
        self.failed += other.failed
        self.problems += other.problems

    def merge(self, repeats: Traced) -> None:
        """Add further runs of the same counts: rows of a count have all of its runs."""
        rows = {row["np"]: row for row in self.counts}
        for row in repeats.counts:
            earlier = rows[row["np"]]
            for kind in ("runs", "timed"):
                if both := [*earlier.get(kind, []), *row.get(kind, [])]:
                    row[kind] = both
            earlier.update(row)
        self.failed += repeats.failed
        self.problems += repeats.problems


def trace_once(
    study: Study,
    command: Sequence[str],
    np: int,
    target: Path,
    timeout_s: float,
    recording: Recording,
    *,
    force: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Run the program once, traced, and put the capture in ``target``.

    ``force``: also with another standard input than the study's.
    Returns the row of the run and what was odd about it. Raises P3SError when the run failed;
    an earlier run in ``target`` is then still there, and what the failed one left is beside it.
    """
    from p3s.base.host.placeholders import extents_at, shape, with_extents
    from p3s.model.grid.stated import listed_extents
    from p3s.signature_runner.launch import run_traced
    from p3s.signature_runner.standard_input import input_for

    stdin = input_for(study, force=force)
    listed = listed_extents(study)
    extents = extents_at(command, np, listed)
    if extents and listed and np not in listed and target.suffix in ("", ".r0"):
        say(f"np={np}: not in --dims; the program gets {shape(extents)}, as of MPI_Dims_create")
    staged = study.stage_run(target)
    try:
        outcome = run_traced(
            with_extents(command, np, listed),
            np,
            staged,
            timeout_s=timeout_s,
            recording=recording,
            stdin=stdin,
        )
        problems = list(outcome.problems)
        if problems and _status(target) == "complete":
            raise P3SError(f"{problems[0]}; the earlier, complete run stays")
        if _limited(staged) and _status(target) == "complete" and not _limited(target):
            raise P3SError(
                "the limit of the capture was reached, and phases need every event; the earlier"
                " run stays; give a larger --limit"
            )
        for name in _counters_not_there(staged, recording):
            say(f"np={np}: this machine has no counter {name}")
        info = _info(staged)
        if info:  # a study whose study.json is lost can be put together from its runs
            grid = {"dims": list(extents)} if extents else {}
            signed = {"signed": sign(command, str(info.get("directory") or os.getcwd()))}
            write_json(staged / "run.json", {**info, "command": list(command), **signed, **grid})
        study.commit_run(staged, target)
    except BaseException as err:
        info = _info(staged)
        kept = study.keep_failed_run(staged, target, stopped=_is_stop(err))
        if isinstance(err, UsageError) or not isinstance(err, P3SError):
            raise
        code, status = info.get("exit_code"), str(info.get("status", "failed"))
        reason, left = (err.reason, err.left) if isinstance(err, RunFailed) else (str(err), "")
        raise RunFailed(reason, code, status, left, kept) from err
    row = {
        "wall_s": outcome.wall_s,
        "exit_code": outcome.exit_code,
        "oversubscribed": outcome.oversubscribed,
        **({"dims": list(extents)} if extents else {}),
    }
    return row, problems


def _is_stop(err: BaseException) -> bool:
    """Tell whether the user has ended p3s: Ctrl-C or a signal, which are no errors."""
    return not isinstance(err, Exception)


def refused(code: int | None, target: Path) -> bool:
    """Tell whether the program ended with an error before it did any work in a run that failed.

    ``code``: exit code of the launcher; ``target``: where the run was to go.
    """
    from p3s.capture.capture import read_capture

    events = []
    for path in target.with_name(f"{target.name}.failed").glob("rank-*.p3t"):
        with suppress(P3SError):
            events.append(read_capture(path, completions=False, each=len).event_count)
    return bool(code) and max(events, default=0) <= _FEW_EVENTS


def _counters_not_there(run_dir: Path, recording: Recording) -> list[str]:
    from p3s.capture.capture import read_header

    try:
        there = [read_header(path).counter_names for path in run_dir.glob("rank-*.p3t")]
    except P3SError:
        return []
    return [name for name in recording.counters if not any(name in names for names in there)]


def _info(run_dir: Path) -> dict[str, Any]:
    try:
        return read_json(run_dir / "run.json", RUN_SCHEMA)
    except P3SError:
        return {}


def _limited(run_dir: Path) -> bool:
    """Tell whether events of a run were only counted, --limit having been reached."""
    from p3s.capture.capture import read_header

    try:
        return any(read_header(path).limited for path in run_dir.glob("rank-*.p3t"))
    except P3SError:
        return False


def _status(run_dir: Path) -> str:
    return str(_info(run_dir).get("status", "none"))


def program_of(command: Sequence[str], np: int) -> str:
    """Return the program in a launcher command; raises P3SError when it cannot be started."""
    from p3s.base.host.command import parse

    words = parse(list(command), np).program
    name = Path(words[0]).name
    if name.startswith("python"):  # the script is the program
        scripts = [word for word in words[1:] if word.endswith(".py")]
        name = Path(scripts[0]).stem if scripts else name
    return name


def check_counts(study: Study | None, counts: Sequence[int]) -> None:
    """Refuse a study that would hold too few distinct counts, before anything is run."""
    there = set(study.counts()) if study is not None else set()
    total = sorted(there | set(counts))
    if len(total) < MIN_COUNTS:
        raise UsageError(
            f"-n {','.join(map(str, counts))}: the study would hold "
            f"{len(total)} process count{'s' if len(total) > 1 else ''}, the model needs "
            f"{MIN_COUNTS} (two to fit and one held out); add a count, for example "
            f"-n {','.join(map(str, [*total, *_more(total)]))}"
        )


def _more(counts: list[int]) -> list[int]:
    more: list[int] = []
    while len(counts) + len(more) < MIN_COUNTS:
        more.append(2 * (more or counts)[-1])
    return more


def trace_counts(
    study: Study,
    command: Sequence[str],
    counts: Sequence[int],
    repeats: int,
    timeout_s: float,
    bar: Progress,
    *,
    made: bool = False,
    recording: Recording | None = None,
    times: bool = True,
    kept: bool = True,
    repeat: bool = True,
) -> Traced:
    """Trace and characterize each count; a count that fails does not stop the others.

    ``made`` tells that the study is new: it is removed when not even its first run leaves
    anything. ``recording`` is settled with the study's runs: one unit of work for all. Beside
    instructions, which are counted in one run, ``repeats`` native runs are timed unless ``times``
    is False. ``kept``: what a failed run leaves stays, so where it is is worth saying. ``repeat``:
    trace again what was disturbed (p3s.signature.times.needs_repeat).
    """
    from p3s.base.host.cores import cores
    from p3s.cli.recording import as_earlier, check_unit, only_timed, settle
    from p3s.signature.phases import load_phases
    from p3s.signature_runner.build import ensure_counter
    from p3s.signature_runner.emulate import emulator
    from p3s.signature_runner.recording import Recording

    try:
        asked = as_earlier(recording or Recording(), study)
        timed = only_timed(asked, study, counts)
        chosen = asked if timed else settle(asked, study, counts, repeats, cores())
        if not times and (timed or chosen.work != "instructions"):
            raise UsageError(
                "--no-times: belongs to --work instructions; other runs are timed as they are"
            )
        if chosen.work == "instructions":
            emulator(), ensure_counter()  # before anything runs: native runs come first
        plans = {np: _plan(study, np, repeats, chosen, timed, times) for np in counts}
        bar.expect(sum(len(each) for each in plans.values()))
        done = _trace_counts(study, command, plans, timeout_s, bar, kept)
        while repeat and (plans := _repeats(study, plans, done, repeats)):
            try:
                done.merge(_trace_counts(study, command, plans, timeout_s, bar, kept))
            except RunFailed as err:
                done.failed.append(_failed_row(next(iter(plans)), None, err.code, str(err)))
                break
        if kept:
            _propose_quiet(study, done)
        check_unit(study)
        if study.signature_counts():
            load_phases(study.root)
        return done
    except BaseException as err:
        if made:  # all that a program without MPI printed is in what is said, or named there
            study.remove_if_empty(untraced=isinstance(err, RunFailed) and not err.left)
        raise


@dataclass(frozen=True)
class _Step:
    """One run: what it is called, its repeat, where it goes; ``native``: beside a counted one."""

    label: str
    rep: int
    target: Path
    recording: Recording
    native: bool = False


def _plan(
    study: Study, np: int, repeats: int, recording: Recording, timed: bool, times: bool
) -> list[_Step]:
    """Return the runs at one count; native ones come first: they fail sooner than counted ones."""
    from dataclasses import replace

    counted = recording.work == "instructions"
    found: list[_Step] = []
    if timed or (counted and times):
        native = replace(recording, work="cpu")
        found = [
            _Step(
                f"np={np} native run{_of(rep, repeats)}",
                rep,
                study.timed_dir(np, rep),
                native,
                native=True,
            )
            for rep in range(repeats)
        ]
    if timed:
        return found
    if counted:
        name = f"np={np} counting instructions" if found else f"np={np}"
        return [*found, _Step(name, 0, study.runs_dir(np), recording)]
    return [
        _Step(
            f"np={np}" + (f" run{_of(rep, repeats)}" if repeats > 1 else ""),
            rep,
            study.runs_dir(np, rep),
            recording,
        )
        for rep in range(repeats)
    ]


def _repeats(
    study: Study, plans: dict[int, list[_Step]], done: Traced, wanted: int
) -> dict[int, list[_Step]]:
    """Return one more run of each count that lacks undisturbed ones; say why it is made."""
    from dataclasses import replace

    from p3s.signature.times import MOST_RUNS, load_times, needs_repeat

    again: dict[int, list[_Step]] = {}
    failed = {row["np"] for row in done.failed}
    for np in (row["np"] for row in done.counts if row["np"] not in failed):
        if not needs_repeat(times := load_times(study.root, np), wanted) or times is None:
            continue
        step = next((each for each in plans[np] if each.native), plans[np][-1])
        rep = len(times.runs)
        target = study.timed_dir(np, rep) if step.native else study.runs_dir(np, rep)
        label = f"np={np} {'native ' * step.native}run {rep + 1} of at most {MOST_RUNS}"
        again[np] = [replace(step, label=label, rep=rep, target=target)]
    if again:
        say(f"running {processes(list(again))} again, as runs were disturbed (--no-repeat: once)")
    return again


def _propose_quiet(study: Study, done: Traced) -> None:
    """Say the command for counts of which all runs were disturbed."""
    from p3s.predict.commands import Commands
    from p3s.signature.times import MOST_RUNS, lacks_quiet_runs, load_times

    counts = [r["np"] for r in done.counts if lacks_quiet_runs(load_times(study.root, r["np"]))]
    if counts:
        command = Commands(study).trace(counts, repeats=MOST_RUNS)
        say(f"note: on quiet cores, trace {processes(counts)} again: {command}")


def _of(rep: int, repeats: int) -> str:
    return f" {rep + 1}/{repeats}" if repeats > 1 else ""


def _trace_counts(
    study: Study,
    command: Sequence[str],
    plans: dict[int, list[_Step]],
    timeout_s: float,
    bar: Progress,
    kept: bool,
) -> Traced:
    from p3s.signature.signature import characterize
    from p3s.signature.times import as_json, load_times, notes

    done = Traced()
    seen: set[int] = set()
    for np, steps in plans.items():
        runs: list[dict[str, Any]] = []
        timed: list[dict[str, Any]] = []
        lost = False  # a native run failed
        for step in steps:
            bar.start(f"{step.label}: running")
            try:
                row, problems = trace_once(
                    study, command, np, step.target, timeout_s, step.recording
                )
            except RunFailed as err:
                if (
                    not done.counts
                    and not runs
                    and not timed
                    and not err.code
                    and err.status == "failed"
                ):
                    raise  # not the program but the set-up is at fault: no count will do better
                text = (str(err) if kept else err.reason).removeprefix(f"np={np}: ")
                text = f"np={np}: {'native run: ' if step.native else ''}{text}"
                row = _failed_row(np, step.rep, err.code, text)
                if refused(err.code, step.target):
                    row["refused"] = True
                done.failed.append(row)
                bar.done(f"{step.label}: failed")
                lost = step.native
                break
            except BaseException as err:
                if _is_stop(err):
                    _say_stopped(study, np, [n for n in plans if n not in seen])
                raise
            study.update()
            done.problems += [_about(np, problem) for problem in problems]
            for problem in problems:
                say(_about(np, problem))
            (timed if step.native else runs).append({"rep": step.rep, **row})
            bar.done(f"{step.label}: {row['wall_s']:.1f} s")
        seen.add(np)
        if lost or not (runs or (timed and steps[-1].native)):
            continue
        bar.start(f"np={np}: characterizing")
        try:
            signature = characterize(study.root, np)
        except P3SError as err:
            text = _about(np, str(err))
            done.failed.append(_failed_row(np, None, None, text))
            bar.done(f"np={np}: cannot be characterized")
            continue
        times = load_times(study.root, np)
        for note in notes(times):
            say(f"note: np={np}: {note}")
        done.counts.append(
            {
                "np": np,
                "times": as_json(times),
                "runs": runs,
                **({"timed": timed} if timed else {}),
                "signature": _summary(signature),
                "not_modelled": signature.get("not_modelled", []),
                "tracing": signature.get("tracing", {}),
                "buffers": signature.get("buffers", {}),
            }
        )
    study.update()
    unused = [row["np"] for row in done.counts if row["np"] in study.left_out()]
    if unused:
        say(
            f"note: runs at {processes(unused)} are still left out of the model; taken back with "
            f"p3s model {quoted(study.root)} --with {','.join(map(str, unused))}"
        )
    return done


def _failed_row(np: int, rep: int | None, code: int | None, reason: str) -> dict[str, Any]:
    return {"np": np, "rep": rep, "exit_code": code, "reason": reason}


def _say_stopped(study: Study, np: int, left: Sequence[int]) -> None:
    """Say that tracing was stopped at a count, and the command for those that are left."""
    from p3s.predict.commands import Commands

    with suppress(P3SError):  # a study that cannot be read: that it was interrupted is said anyway
        say(f"p3s: np={np}: stopped before its end; to go on, run {Commands(study).trace(left)}")


def _about(np: int, text: str) -> str:
    return text if text.startswith(f"np={np}:") else f"np={np}: {text}"


def alike(failed: Sequence[dict[str, Any]]) -> list[tuple[list[int], str]]:
    """Return why counts failed: those that failed in the same way, and their reason."""
    found: dict[tuple[str, Any], tuple[list[int], str]] = {}
    for row in failed:
        np, text = row["np"], str(row["reason"]).removeprefix(f"np={row['np']}: ")
        same = re.sub(r"np\d+\.r\d+", "", text).replace(" ranks", " rank")
        key = re.sub(r"\b0*\d+\b", "N", same)
        found.setdefault((key, row["exit_code"]), ([], text))[0].append(np)
    return [(list(dict.fromkeys(counts)), text) for counts, text in found.values()]


def reasons(failed: Sequence[dict[str, Any]]) -> str:
    """Return why counts failed in one line; counts that failed alike are put together."""
    return "; ".join(
        f"np={', '.join(map(str, counts))}: {_of_all(text) if len(counts) > 1 else text}"
        for counts, text in alike(failed)
    )


def _of_all(text: str) -> str:
    """Return the reason of one count as that of several: sizes and the runs' places differ."""
    text = re.sub(r" at \d+ ranks?\b|(?<=rank )(\d+) of \d+", r"\1", text)
    return re.sub(r"\bnp\d{4,}(\.r\d+)", r"np*\1", text)


def _summary(signature: Any) -> dict[str, int]:
    """Return what a signature holds, as numbers (its tables stay in their own file)."""
    if not isinstance(signature, dict):
        return {}
    found = {key: signature.get(key) for key in ("events", "phases", "sites")}
    return {
        key: len(value) if isinstance(value, (list, dict)) else int(value)
        for key, value in found.items()
        if isinstance(value, (int, list, dict))
    }
