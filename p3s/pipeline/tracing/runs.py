"""Run a program at several counts and characterize each; disturbed runs are made again.

Counts are those named with -n, or good ones up to a maximum.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, RunFailure, UsageError
from p3s.base.progress import Progress
from p3s.base.records import keep_failed_run
from p3s.base.settings import traces_of
from p3s.base.staging import discard
from p3s.base.study import Study
from p3s.base.text import join_words, one_line, processes, quote_word
from p3s.capture.recording_plan import TIME, WORK, Enough
from p3s.pipeline.commands import Commands
from p3s.pipeline.records import known_of
from p3s.signature.tables import PointTable
from p3s.signature_runner.output import program_said
from p3s.signature_runner.recording import Recording
from p3s.signature_runner.standard_input import NONE, StandardInput
from p3s.signature_runner.traced_run import Launch, TracedRun, did_no_work, trace_once
from p3s.signature_runner.work_unit import as_earlier, check_unit, only_timed, settle

if TYPE_CHECKING:
    from p3s.model.grid.admissible import ExtentsAt
    from p3s.model.grid.stated import Extents
    from p3s.model.stage import ProgramFacts


@dataclass(frozen=True)
class TraceRequest:
    """What is to be traced into the study in ``root``: a launcher command, at which counts, how.

    ``recording`` is settled with the study's runs: one unit of work for all. ``extents``: of the
    process grid, by count, which the study lists from now on. Beside instructions, which are
    counted in one run, ``repeats`` native runs are timed unless ``times`` is False.
    ``repeat_disturbed``: trace again what was disturbed (p3s.signature.times.needs_repeat).
    ``force``: add runs of another command. ``part``: others, traced elsewhere, follow.
    ``chosen``: counts that the caller has settled on, of those that are asked for, and told of.
    ``enough``: the phases of the study are recorded so long, then calls are only counted.
    ``remedy``: what to do where the study is another command's; ``stdin``: what the program reads.
    """

    root: Path
    command: tuple[str, ...]
    asked: CountRequest
    repeats: int = 1
    timeout_s: float = 3600.0
    recording: Recording = Recording()
    extents: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    times: bool = True
    repeat_disturbed: bool = True
    force: bool = False
    part: bool = False
    chosen: tuple[int, ...] | None = None
    enough: Enough | None = None
    remedy: str = "choose another directory with -o, or mix them with --force"
    stdin: Callable[[], StandardInput] = lambda: NONE


def trace_counts(
    study: Study,
    request: TraceRequest,
    counts: Sequence[int],
    bar: Progress,
    *,
    made: bool = False,
    kept: bool = True,
) -> TraceResult:
    """Trace and characterize each count; a count that fails does not stop the others.

    ``made`` tells that the study is new: it is removed when not even its first run leaves
    anything. ``kept``: what a failed run leaves stays, so where it is is worth saying.
    """
    from p3s.base.host.cores import cores
    from p3s.signature.store import load_phases
    from p3s.signature_runner.build import ensure_counter
    from p3s.signature_runner.emulate import emulator

    repeats = request.repeats
    try:
        asked = as_earlier(request.recording, traces_of(study))
        timed = only_timed(asked, traces_of(study), counts)
        chosen = asked if timed else settle(asked, traces_of(study), counts, repeats, cores())
        if not request.times and (timed or chosen.work != "instructions"):
            raise UsageError(
                "--no-times: belongs to --work instructions; other runs are timed as they are"
            )
        if chosen.work == "instructions":
            emulator(), ensure_counter()  # before anything runs: native runs come first
        plans = {
            np: _plan(study, np, repeats, _planned(study, request, chosen, np), timed, request)
            for np in counts
        }
        bar.expect(sum(len(each) for each in plans.values()))
        listed = known_of(study).extents
        launch = Launch(request.command, request.timeout_s, listed, request.stdin)
        done = _trace_counts(study, launch, plans, bar, kept)
        _take_out_refusals(study, done)
        again = request.repeat_disturbed and not chosen.stop
        while again and (plans := _repeats(study, plans, done, repeats, bar)):
            try:
                done.merge(_trace_counts(study, launch, plans, bar, kept))
            except RunFailure as err:
                done.failed.append(Failure(next(iter(plans)), None, err.code, str(err)))
                break
        if kept:
            _propose_quiet(study, done, bar)
        check_unit(traces_of(study))
        if study.signature_counts():
            load_phases(traces_of(study))
        return done
    except BaseException as err:
        if made:  # all that a program without MPI printed is in what is said, or named there
            study.remove_if_empty(untraced=isinstance(err, RunFailure) and not err.left)
        raise


def _take_out_refusals(study: Study, done: TraceResult) -> None:
    """Turn counts at which the program gave up with exit code 0 into counts that failed.

    It then calls MPI in no loop, at none of the places that it repeats at the other counts, and
    says why. One process alone may do its work without MPI.
    """
    from p3s.signature.store import load_table

    for row in [each for each in done.counts if each.signature["phases"] == 1 and each.np > 1]:
        run = study.runs_dir(row.np)
        tables = {np: load_table(study.root, np) for np in study.signature_counts()}
        loops = {np: nodes for np in tables if (nodes := repeated_nodes(tables[np]))}
        said = program_said(run)
        if not loops or not said.text or set(tables[row.np].nodes) & set().union(*loops.values()):
            continue
        where = keep_failed_run(run, run) or run
        for more in run.parent.glob(f"np{row.np:04d}.r*"):
            if more.name.rpartition(".r")[2].isdigit():
                discard(more)
        for file in (study.root / "signature").glob(f"np{row.np:04d}.*"):
            file.unlink()
        text = (
            f"np={row.np}: the program gave up with exit code 0: it makes none of the calls that"
            f" it repeats at {join_words(loops)}; it said last: {one_line(said.text)}"
            f" ({where / said.file})"
        )
        done.counts.remove(row)
        done.failed.append(Failure(row.np, None, 0, text, refused=True))
    study.update()


def repeated_nodes(table: PointTable) -> set[tuple[str, str]]:
    """Return the places of calls, (site, operation), at which a rank calls more than once."""
    calls: Counter[tuple[str, str, int]] = Counter()
    columns = (table.group.tolist(), table.rank.tolist(), table.count.tolist())
    for group, rank, count in zip(*columns, strict=True):
        calls[table.groups[group].site, table.groups[group].op, rank] += count
    return {(site, op) for (site, op, _), count in calls.items() if count > 1}


@dataclass(frozen=True)
class _Step:
    """One run: what it is called, its repeat, where it goes; ``native``: beside a counted one."""

    label: str
    rep: int
    target: Path
    recording: Recording
    native: bool = False


def _planned(study: Study, request: TraceRequest, recording: Recording, np: int) -> Recording:
    """Return the recording at one count: with the phases of the study, where these are followed."""
    from p3s.base.host.cores import cores
    from p3s.signature.plans import plan_of
    from p3s.signature.store import load_phases

    if request.enough is None:
        return recording
    phases = load_phases(traces_of(study))
    # Where ranks take turns on a core, the time inside calls tells nothing about the program.
    work_alone = np > cores() or recording.work == "instructions"
    enough = replace(request.enough, measure=WORK if work_alone else TIME)
    full = [n for n in phases.counts if n not in phases.recorded or not phases.recorded[n].ended]
    if recording.stop and np in full:
        raise UsageError(f"np={np}: traced to its end, which --stop would replace; leave it out")
    return replace(recording, plan=plan_of(phases, np, enough, recording.stop))


def _plan(
    study: Study, np: int, repeats: int, recording: Recording, timed: bool, request: TraceRequest
) -> list[_Step]:
    """Return the runs at one count; native ones come first: they fail sooner than counted ones."""
    counted, native = recording.work == "instructions", replace(recording, work="cpu")
    natives = [
        _Step(
            f"np={np} native run{_format_repeat(rep, repeats)}",
            rep,
            study.timed_dir(np, rep),
            native,
            True,
        )
        for rep in range(repeats)
        if timed or (counted and request.times)
    ]
    if timed:
        return natives
    if counted:
        name = f"np={np} counting instructions" if natives else f"np={np}"
        return [*natives, _Step(name, 0, study.runs_dir(np), recording)]
    name = f"np={np}" + " run" * (repeats > 1)
    return [
        _Step(f"{name}{_format_repeat(rep, repeats)}", rep, study.runs_dir(np, rep), recording)
        for rep in range(repeats)
    ]


def _repeats(
    study: Study, plans: dict[int, list[_Step]], done: TraceResult, wanted: int, bar: Progress
) -> dict[int, list[_Step]]:
    """Return one more run of each count that lacks undisturbed ones; say why it is made."""
    from p3s.signature.times import MOST_RUNS, load_times, needs_repeat

    again: dict[int, list[_Step]] = {}
    failed = {row.np for row in done.failed}
    for np in (row.np for row in done.counts if row.np not in failed):
        if not needs_repeat(times := load_times(study.root, np), wanted) or times is None:
            continue
        step = next((each for each in plans[np] if each.native), plans[np][-1])
        rep = len(times.runs)
        target = study.timed_dir(np, rep) if step.native else study.runs_dir(np, rep)
        label = f"np={np} {'native ' * step.native}run {rep + 1} of at most {MOST_RUNS}"
        again[np] = [replace(step, label=label, rep=rep, target=target)]
    if again:
        text = f"running {processes(list(again))} again, as runs were disturbed"
        bar.say(f"{text} (--no-repeat: once)")
    return again


def _propose_quiet(study: Study, done: TraceResult, bar: Progress) -> None:
    """Say the command for counts of which all runs were disturbed."""
    from p3s.signature.times import MOST_RUNS, lacks_quiet_runs, load_times

    counts = [r.np for r in done.counts if lacks_quiet_runs(load_times(study.root, r.np))]
    if counts:
        command = Commands(study).trace(counts, repeats=MOST_RUNS)
        bar.say(f"note: on quiet cores, trace {processes(counts)} again: {command}")


def _format_repeat(rep: int, repeats: int) -> str:
    return f" {rep + 1}/{repeats}" if repeats > 1 else ""


def _trace_counts(
    study: Study, launch: Launch, plans: Mapping[int, list[_Step]], bar: Progress, kept: bool
) -> TraceResult:
    from p3s.signature.signature import characterize
    from p3s.signature.times import as_json, load_times, notes

    done = TraceResult()
    for at, (np, steps) in enumerate(plans.items()):
        runs: list[TracedRun] = []
        timed: list[TracedRun] = []
        lost = False  # a native run failed
        for step in steps:
            bar.start(f"{step.label}: running")
            try:
                run = trace_once(traces_of(study), launch, np, step.target, step.recording, bar)
            except RunFailure as err:
                first = not (done.counts or runs or timed)
                if first and not err.code and err.status == "failed":
                    raise  # not the program but the set-up is at fault: no count will do better
                text = (str(err) if kept else err.reason).removeprefix(f"np={np}: ")
                text = f"np={np}: {'native run: ' if step.native else ''}{text}"
                early = did_no_work(err.code, step.target)
                done.failed.append(Failure(np, step.rep, err.code, text, early))
                bar.done(f"{step.label}: failed")
                lost = step.native
                break
            except BaseException as err:
                if not isinstance(err, Exception):  # Ctrl-C or a signal
                    with suppress(P3SError):  # of a study that cannot be read
                        command = Commands(study).trace([*plans][at:])
                        bar.say(f"p3s: np={np}: stopped before its end; to go on, run {command}")
                raise
            study.update()
            lines = [_about(np, problem) for problem in run.problems]
            done.problems += lines
            for line in lines:
                bar.say(line)
            (timed if step.native else runs).append(replace(run, rep=step.rep))
            bar.done(f"{step.label}: {run.wall_s:.1f} s")
        if lost or not (runs or (timed and steps[-1].native)):
            continue
        bar.start(f"np={np}: characterizing")
        try:
            signature = characterize(traces_of(study), np)
        except P3SError as err:
            done.failed.append(Failure(np, None, None, _about(np, str(err))))
            bar.done(f"np={np}: cannot be characterized")
            continue
        times = load_times(study.root, np)
        for note in notes(times):
            bar.say(f"note: np={np}: {note}")
        done.counts.append(
            TracedCount(
                np,
                as_json(times),
                tuple(runs),
                {
                    "events": signature.events,
                    "phases": len(signature.phases),
                    "sites": len(signature.sites),
                },
                tuple(timed),
                signature.not_modelled,
                signature.tracing,
                signature.buffers,
            )
        )
    study.update()
    unused = [row.np for row in done.counts if row.np in study.left_out()]
    if unused:
        bar.say(
            f"note: runs at {processes(unused)} are still left out of the model; taken back with "
            f"p3s model {quote_word(study.root)} --with {','.join(map(str, unused))}"
        )
    return done


def _about(np: int, text: str) -> str:
    return text if text.startswith(f"np={np}:") else f"np={np}: {text}"


#: Batches of counts without one that runs, after which the program is not asked again.
_IN_VAIN = 2
#: Counts tried in place of others, at most.
_TRIED = 16


@dataclass(frozen=True)
class CountRequest:
    """Process counts that were asked for: these, or good ones up to ``top``."""

    counts: tuple[int, ...] = ()
    top: int = 0


@dataclass(frozen=True)
class Grids:
    """The grids that counts are to show: numbers of dimensions, and extents at a count."""

    dims: tuple[int, ...]
    extents: ExtentsAt


def grids_of(known: ProgramFacts, words: Sequence[str], given: Mapping[int, Extents]) -> Grids:
    """Return the grids of a program: as its arguments or the user say, else usual ones."""
    from p3s.base.extents import dims_balanced, extents_at, extents_in
    from p3s.model.grid.admissible import USUAL

    listed, names = {**known.extents, **given}, extents_in(words)
    if names:
        return Grids((len(names),), lambda n, ndims: extents_at(words, n, listed))
    return Grids((known.stated.ndims,) if known.stated.ndims else USUAL, dims_balanced)


def choose_counts(
    asked: CountRequest, known: ProgramFacts, grids: Grids, bar: Progress
) -> list[int]:
    """Return the counts to trace first."""
    from p3s.model.grid.admissible import choose

    if not asked.top:
        return list(asked.counts)
    found = choose(asked.top, known.counts, known.failed, grids.dims, grids.extents)
    are = "are" if len(known.counts) > 1 else "is"
    there = f"{join_words(known.counts)} {are} there, " if known.counts else ""
    bar.say(
        f"-n ..{asked.top}: {there}"
        + (_name_traced(found) if found else "no other count would tell more")
    )
    return found


def warn(
    asked: CountRequest, counts: Sequence[int], known: ProgramFacts, grids: Grids, bar: Progress
) -> None:
    """Say what counts that the user chose for a study without a model will not show of a grid."""
    from p3s.model.grid.admissible import left_open

    if asked.top or known.modelled:
        return  # they are the best up to a maximum; a model says what is open
    ran = sorted({*known.counts, *counts})
    if why := left_open(ran, grids.dims, grids.extents, known.failed):
        bar.say(f"note: {why}")


def trace_asked(
    asked: CountRequest,
    first: Sequence[int],
    known: Callable[[], ProgramFacts],
    grids: Grids,
    trace: Callable[[Sequence[int]], TraceResult],
    bar: Progress,
) -> TraceResult:
    """Trace the first counts; up to a maximum, others in place of those the program refuses.

    known: what the study knows when it is called. Where the program fails alike at two that have
    little in common, the counts are not to blame: it ends.
    """
    from p3s.model.grid.admissible import choose, probes

    two = probes(first) if asked.top and not known().counts else list(first)
    done = trace(two)
    if asked.top and not done.counts and len(alike(done.failed)) == 1 and len(two) > 1:
        return done
    if rest := [np for np in first if np not in two]:
        done.add(trace(rest))
    last, idle = done, int(not done.counts)
    refused = [row.np for row in done.failed if row.refused]
    while asked.top and idle < _IN_VAIN and len(refused) < _TRIED:
        if not (gone := {row.np: row.exit_code or 0 for row in last.failed if row.refused}):
            break
        now = known()
        failed = sorted({*refused, *now.failed})
        more = choose(asked.top, now.counts, failed, grids.dims, grids.extents)
        if not more:
            break
        codes = join_words(sorted({*gone.values()}))
        text = f"the program refuses {processes(gone)} (exit code {codes})"
        bar.say(f"{text}: {_name_traced(more)} instead")
        last = trace(more)
        idle = 0 if last.counts else idle + 1
        refused += [row.np for row in last.failed if row.refused]
        done.add(last)
    done.counts.sort(key=lambda row: row.np)
    return done


def _name_traced(counts: Sequence[int]) -> str:
    return f"{join_words(counts)} {'are' if len(counts) > 1 else 'is'} traced"


#: Is in the plain data of a record also where it is empty.
ALWAYS = {"always": True}


@dataclass(frozen=True)
class Failure:
    """A count that failed: in which repeat (None: none of them), and why.

    ``refused``: the program ended with an error before it did any work.
    """

    np: int
    rep: int | None
    exit_code: int | None
    reason: str
    refused: bool = False


@dataclass(frozen=True)
class TracedCount:
    """A count whose runs are characterized; ``timed``: native runs beside a counted one.

    ``times``: as signature.times.as_json; ``signature``: what it holds, as numbers; others:
    its entries.
    """

    np: int
    times: dict[str, Any] | None
    runs: tuple[TracedRun, ...]
    signature: Mapping[str, int]
    timed: tuple[TracedRun, ...] = ()
    not_modelled: Sequence[Mapping[str, Any]] = field(default=(), metadata=ALWAYS)
    tracing: Mapping[str, Any] = field(default_factory=dict, metadata=ALWAYS)
    buffers: Mapping[str, Any] = field(default_factory=dict, metadata=ALWAYS)


@dataclass
class TraceResult:
    """What tracing did: finished counts, and why others are missing."""

    counts: list[TracedCount] = field(default_factory=list, metadata=ALWAYS)
    failed: list[Failure] = field(default_factory=list, metadata=ALWAYS)
    problems: list[str] = field(default_factory=list, metadata=ALWAYS)

    def add(self, other: TraceResult) -> None:
        """Add what tracing other counts did."""
        self.counts += other.counts
        self.failed += other.failed
        self.problems += other.problems

    def merge(self, repeats: TraceResult) -> None:
        """Add further runs of the same counts: a count has all of its runs."""
        again = {each.np: each for each in repeats.counts}
        for at, each in enumerate(self.counts):
            if more := again.get(each.np):
                runs, timed = each.runs + more.runs, each.timed + more.timed
                self.counts[at] = replace(more, runs=runs, timed=timed)
        self.add(TraceResult([], repeats.failed, repeats.problems))


def alike(failed: Sequence[Failure]) -> list[tuple[list[int], str]]:
    """Return why counts failed: those that failed in the same way, and their reason."""
    found: dict[tuple[str, Any], tuple[list[int], str]] = {}
    for row in failed:
        text = row.reason.removeprefix(f"np={row.np}: ")
        same = re.sub(r"np\d+\.r\d+", "", text).replace(" ranks", " rank")
        key = re.sub(r"\b0*\d+\b", "N", same)
        found.setdefault((key, row.exit_code), ([], text))[0].append(row.np)
    return [(list(dict.fromkeys(counts)), text) for counts, text in found.values()]


def reasons(failed: Sequence[Failure]) -> str:
    """Return why counts failed in one line; counts that failed alike are put together."""
    return "; ".join(
        f"np={', '.join(map(str, counts))}: {_of_all(text) if len(counts) > 1 else text}"
        for counts, text in alike(failed)
    )


def _of_all(text: str) -> str:
    """Return the reason of one count as that of several: sizes and the runs' places differ."""
    text = re.sub(r" at \d+ ranks?\b|(?<=rank )(\d+) of \d+", r"\1", text)
    return re.sub(r"\bnp\d{4,}(\.r\d+)", r"np*\1", text)
