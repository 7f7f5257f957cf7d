"""Says in one line why a run failed, from its exit code, output and capture."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from p3s.base.errors import CAPTURES, P3SError
from p3s.base.host.command import Command, executable
from p3s.base.host.mpi import (
    MPICH,
    OPENMPI,
    SLURM,
    library_of,
    library_of_python,
    owner_of,
    remedy_for,
)
from p3s.capture.capture import Capture, read_capture
from p3s.signature_runner.deaths import first_of
from p3s.signature_runner.output import (
    OUTPUTS,
    Words,
    crash_signal,
    launcher_error,
    launcher_said,
    mpi_error,
    program_said,
    tail,
)
from p3s.signature_runner.standstill import last_call, unfinished
from p3s.signature_runner.untraced import no_call, warning


@dataclass(frozen=True)
class Verdict:
    """``status`` complete, partial (some events, not to the end) or failed (nothing usable).

    A run that was ended because it had been seen long enough is "stopped".

    ``work_unit`` is what the ranks measured work in, None if there is none or they differ;
    ``left`` what a failed run has left to look at, as RunFailed has it.
    """

    status: str
    error: str | None = None
    problems: list[str] = field(default_factory=list)
    work_unit: str | None = None
    left: str = ""


def diagnose(
    run_dir: Path,
    command: Command,
    np: int,
    code: int,
    timeout_s: float | None,
    traced: bool,
    counted: bool = False,
    deaths: Sequence[frozenset[int]] = (),
    unfinalized: bool = False,
) -> Verdict:
    """Judge a run that ended with exit code ``code`` or was stopped after ``timeout_s``.

    ``counted`` tells that instructions were asked for; ``deaths`` are the process ids of ranks
    in the order in which they ended, as far as that was seen; ``unfinalized`` as in Recording.
    """
    captures = captures_of(run_dir) if traced else {}
    verdict = _judge(run_dir, command, np, code, timeout_s, traced, captures, deaths, unfinalized)
    rank = uncounted(captures) if counted and not verdict.error else None
    if rank is not None:
        error = (
            f"{command.program[0]}: the instructions of rank {rank} were not counted, because it"
            " ran outside of qemu; name the program itself, not a script or program that starts it,"
            " or use --work cpu"
        )
        return Verdict("failed", error, [], work_unit(captures))
    return replace(verdict, work_unit=work_unit(captures))


def stopped(run_dir: Path) -> Verdict:
    """Judge a run that was ended because all ranks had seen every relevant phase often enough."""
    return Verdict("stopped", work_unit=work_unit(captures_of(run_dir)))


def work_unit(captures: dict[int, Capture]) -> str | None:
    """Return what all ranks measured work in (RunTrace.work_unit), None if they differ."""
    units = {capture.header.work_unit for capture in captures.values()}
    return units.pop() if len(units) == 1 else None


def uncounted(captures: dict[int, Capture]) -> int | None:
    """Return the first rank whose instructions were not counted, None if all were."""
    ranks = [r for r, c in captures.items() if c.header.work_unit != "instructions"]
    return min(ranks, default=None)


def _judge(
    run_dir: Path,
    command: Command,
    np: int,
    code: int,
    timeout_s: float | None,
    traced: bool,
    captures: dict[int, Capture],
    deaths: Sequence[frozenset[int]],
    unfinalized: bool,
) -> Verdict:
    shown = command.program[0]
    sizes = {capture.header.size for capture in captures.values()}
    ended = sorted(r for r, capture in captures.items() if capture.complete)
    status, left = ("partial", CAPTURES) if captures else ("failed", "")
    if traced and sizes == {1} and np > 1:
        return Verdict(
            "failed",
            f"{shown}: ran as {np} separate programs of 1 rank, not as one of {np}: the program"
            f" uses another MPI than {command.launcher}; {_remedy(run_dir, command)}",
        )
    if traced and captures and sizes != {np}:
        return Verdict(
            "failed",
            f"{shown}: has {max(sizes)} ranks, not the {np} asked for; check where {{np}} stands",
        )
    if timeout_s is not None:
        return Verdict(
            status,
            f"{shown}: not finished after {timeout_s:g} s at {np} ranks, stopped;"
            f"{unfinished(captures, program_said(run_dir).text)}",
            left=left,
        )
    if (run_dir / "other-mpi").exists():
        return Verdict(
            "failed",
            f"{shown}: uses {_first_line(run_dir / 'other-mpi')}, another MPI than"
            f" {command.launcher}; {_remedy(run_dir, command)}",
        )
    if unfinalized and len(ended) == np and any(map(_without_finalize, captures.values())):
        return Verdict("complete")  # all ended with code 0; another one is the launcher's own
    if code != 0:
        if len(ended) == np:
            status = "failed"  # nothing is missing, but the program says it went wrong
        way = _way(unfinalized)
        why, left = _failure(run_dir, command, np, code, captures, traced, deaths, way)
        return Verdict(status, why, left=left)
    if not traced:
        return Verdict("complete")
    if not captures:
        return Verdict("failed", no_call(run_dir, command))
    stopped = [rank for rank, capture in captures.items() if capture.header.stopped_early]
    if stopped:
        problem = (
            f"{shown}: ran to its end, but recording stopped early on rank {stopped[0]}"
            f"{warning(run_dir)}"
        )
        return Verdict("partial", None, [problem])
    if len(ended) < np:
        rank = min(set(range(np)) - set(ended))
        return Verdict(
            "partial",
            f"{shown}: rank {rank} of {np} ended without MPI_Finalize"
            f"{last_call(captures.get(rank))}{_way(unfinalized)}",
            left=left,
        )
    return Verdict("complete")


def _without_finalize(capture: Capture) -> bool:
    """Tell whether a rank whose capture is whole did not call MPI_Finalize."""
    return capture.complete and last_call(capture) != ", after MPI_Finalize"


def _way(unfinalized: bool) -> str:
    """Return what to do about a program that ends without MPI_Finalize."""
    if unfinalized:
        return (
            "; --end-without-finalize needs every rank to end by itself, with code 0; run it again"
        )
    return "; if this is its normal end, add --end-without-finalize"


def _remedy(run_dir: Path, command: Command) -> str:
    """Return what to do about a program of another MPI than its launcher's."""
    program = executable(command.program[0]) or ""
    linked_to = library_of(program)
    python = library_of_python(program) if linked_to is None else None
    library = _first_line(run_dir / "other-mpi") or (linked_to or python or ("", ""))[1]
    if python and command.family in (MPICH, OPENMPI) and command.family != python[0]:
        return remedy_for(library, command.family)
    install = owner_of(library) if library else None
    if install is None or not install.mpiexec or install.family == command.family:
        return "start it with its own MPI's mpiexec"
    return f"start it with {install.mpiexec}"


def captures_of(run_dir: Path) -> dict[int, Capture]:
    """Return the readable captures of a run by rank."""
    found = {}
    for path in sorted(run_dir.glob("rank-*.p3t")):
        try:
            capture = read_capture(path, completions=False, each=len)
        except P3SError:
            continue
        found[capture.header.rank] = capture
    return found


def _first_line(path: Path) -> str:
    return tail(path).strip().partition("\n")[0]


_OPENMPI_RANK = re.compile(
    r"process rank (\d+) with PID|Process name: \[(?:\[[^\]]*\]|[^,\]]*),\s*(\d+)\]"
)
_OPENMPI_ERROR = re.compile(r"\*\*\* reported by process \[[^\],]*,(\d+)\]")
_IMPROPER = re.compile(r"\s+\d+\s+on\s+node\s+\S+\s+exiting\s+improperly")
_OPENMPI_HOW = re.compile(r"exited on signal (\d+)|^\s*Exit code:\s+(\d+)", re.MULTILINE)
_MPICH_FATAL = re.compile(r"^Abort\(-?\d+\) on node (\d+) ", re.MULTILINE)
_HYDRA_BLOCK = re.compile(
    r"^=\s+PIDs? (?P<pid>\d+) RUNNING AT .*\n(?:=.*\n)*?"
    r"=\s+(?:EXIT CODE: (?P<code>\d+)|KILLED BY SIGNAL: (?P<signal>\d+))",
    re.MULTILINE,
)
_SRUN_TASK = re.compile(
    r"^srun: error: \S+: task (?P<rank>\d+): (?:Exited with exit code (?P<code>\d+)|(?P<how>.+))$",
    re.MULTILINE,
)
_HYDRA_STRING = re.compile(r"TERMINATED WITH THE EXIT STRING: .*\(signal (\d+)\)")
_CLEANUP = (signal.SIGKILL, signal.SIGTERM)  # what Hydra ends the other ranks with


class _End(Enum):
    """How a rank ended; NO_FINALIZE: with exit code 0, the launcher's 1 is its own."""

    UNKNOWN = ""
    EXITED = "exit code {}"
    SIGNALLED = "killed by {}"
    ABORTED = "called MPI_Abort({})"
    MPI_ERROR = "stopped by an MPI error{}"
    NO_FINALIZE = "ended without MPI_Finalize"


@dataclass(frozen=True)
class _How:
    """How a rank ended, with its exit code, its signal's name or what MPI_Abort was given."""

    end: _End = _End.UNKNOWN
    value: str = ""

    def __str__(self) -> str:
        return self.end.value.format(self.value)


@dataclass(frozen=True)
class _Death:
    """What is known of a failure: the rank, None if unknown, and how it ended."""

    rank: int | None = None
    how: _How = _How()


def _signalled(number: int) -> _How:
    try:
        return _How(_End.SIGNALLED, signal.Signals(number).name)
    except ValueError:
        return _How(_End.SIGNALLED, f"signal {number}")


def _exit(code: int | str) -> _How:
    return _How(_End.EXITED, str(code))


def _exited(code: int) -> _How:
    """Describe the exit code of a launcher that passes on that of one rank."""
    number = -code if code < 0 else code - 128
    if number in {int(known) for known in signal.Signals}:
        return _signalled(number)
    return _exit(code)


def _hydra_named(text: str) -> tuple[int, int, int] | None:
    """Return (process id, exit code or 0, signal or 0) of the process MPICH's launcher names."""
    block = _HYDRA_BLOCK.search(text)
    if block is None:
        return None
    pid = int(block["pid"])
    if block["signal"]:
        return pid, 0, int(block["signal"])
    status = int(block["code"])
    # Some versions print the status as wait() gave it: the signal, or 256 times the exit code.
    if status > 255:
        return pid, status >> 8, 0
    return (pid, 0, status) if _HYDRA_STRING.search(text) else (pid, status, 0)


def _hydra_total(text: str, code: int) -> _How:
    """Describe how the run ended by MPICH's launcher's own exit code, if that can be told.

    It ORs the statuses of all ranks, also of those it killed itself: a code with the bits of
    SIGKILL may be no rank's own.
    """
    match = _HYDRA_STRING.search(text)
    if match is None:
        return _exited(code)
    number = int(match[1])
    # SIGSEGV has the bits of SIGKILL, too, but nothing else is likely to add up to it.
    if number & signal.SIGKILL == signal.SIGKILL and number != signal.SIGSEGV:
        return _How()
    return _signalled(number)


def _srun_how(task: re.Match[str]) -> _How:
    if task["code"]:
        return _exit(task["code"])
    named = {signal.strsignal(number): number for number in signal.valid_signals()}
    number = named.get(task["how"].partition(" (")[0])
    return _signalled(number) if number else _How(_End.SIGNALLED, task["how"])


def _death(
    run_dir: Path,
    captures: dict[int, Capture],
    family: str,
    code: int,
    deaths: Sequence[frozenset[int]],
) -> _Death:
    """Return which rank failed first and how, as far as launcher, captures and output tell."""
    found = _named_death(run_dir, captures, family, code, deaths)
    if found.how.end in (_End.UNKNOWN, _End.EXITED):
        number = crash_signal(run_dir)
        return _Death(found.rank, _signalled(number)) if number else found
    return found


def _named_death(
    run_dir: Path,
    captures: dict[int, Capture],
    family: str,
    code: int,
    deaths: Sequence[frozenset[int]],
) -> _Death:
    for rank, capture in captures.items():
        if capture.header.aborting:
            return _Death(rank, _How(_End.ABORTED, str(capture.header.abort_code)))
    text = tail(run_dir / "stdout.txt") + "\n" + tail(run_dir / "stderr.txt")
    if (fatal := _OPENMPI_ERROR.search(text)) and int(fatal[1]) in captures:
        return _Death(int(fatal[1]), _How(_End.MPI_ERROR, mpi_error(text)))
    match = _OPENMPI_RANK.search(text)
    if match and _IMPROPER.match(text, match.end()):
        return _Death(int(match[1]), _How(_End.NO_FINALIZE))
    if match:
        how = _OPENMPI_HOW.search(text, match.start())
        said = _exited(code)
        if how:
            said = _signalled(int(how[1])) if how[1] else _exit(how[2])
        return _Death(int(match[1] or match[2]), said)
    task = _SRUN_TASK.search(text) if family == SLURM else None
    if task:  # the first that srun names; then it ends the others
        return _Death(int(task["rank"]), _srun_how(task))
    fatal = _MPICH_FATAL.search(text)
    if fatal and int(fatal[1]) in captures:
        return _Death(int(fatal[1]), _How(_End.MPI_ERROR, mpi_error(text)))
    how_all = _hydra_total(text, code) if family == MPICH else _exited(code)
    unfinished = [rank for rank, capture in captures.items() if not capture.complete]
    outside = [rank for rank in unfinished if not captures[rank].header.in_call]
    named = _hydra_named(text) if family == MPICH else None
    first = first_of(deaths, {captures[rank].header.pid: rank for rank in unfinished})
    if len(first) == 1 and (named is None or named[0] != captures[first[0]].header.pid):
        return _Death(first[0], how_all)
    if named is not None:
        pid, status, number = named
        own = _exit(status) if status else _signalled(number)
        ranks = [rank for rank in unfinished if captures[rank].header.pid == pid]
        # Whom Hydra has killed itself it names as well; else it is the one that failed. One that
        # SIGKILL met outside of MPI while all others waited inside was not killed by Hydra.
        if ranks and (number not in _CLEANUP or ranks in (outside, first)):
            return _Death(ranks[0], own)
    # A rank that died by itself was computing; the others were stopped, waiting inside MPI.
    for ranks in (outside, unfinished):
        if len(ranks) == 1 and (not first or ranks[0] in first):
            return _Death(ranks[0], how_all)
    return _Death(None, how_all)


def _failure(
    run_dir: Path,
    command: Command,
    np: int,
    code: int,
    captures: dict[int, Capture],
    traced: bool,
    deaths: Sequence[frozenset[int]],
    way: str,
) -> tuple[str, str]:
    """Return why a run failed, and what it has left to look at; ``way``: as of _way."""
    shown = command.program[0]
    death = _death(run_dir, captures, command.family, code, deaths)
    ranks = "1 rank" if np == 1 else f"{np} ranks"
    if traced and not captures:
        return _before_init(run_dir, command, ranks, death.how)
    words = _reason(death.how, program_said(run_dir))
    said = f": {words}" if words else ""
    if death.rank is not None and death.how.end in (_End.NO_FINALIZE, _End.UNKNOWN):
        said += way
    return f"{shown}: {_ended(death, np, ranks, captures)}{said}", CAPTURES if captures else ""


def _reason(how: _How, said: Words) -> str:
    """Return the program's last words where they are why it ended, "" where that is not known.

    Whom a signal ends had no time for words, but for SIGABRT, which a program sends itself.
    """
    surprised = how.end is _End.SIGNALLED and how.value != signal.SIGABRT.name
    return "" if surprised and not said.error else said.text


def _ended(death: _Death, np: int, ranks: str, captures: dict[int, Capture]) -> str:
    """Return which rank ended how and where."""
    how = str(death.how)
    # An MPI_Abort can return and its caller go on until the launcher ends it.
    aborted = any(capture.header.aborting for capture in captures.values())
    if captures and not aborted and all(capture.complete for capture in captures.values()):
        verb = "was" if death.how.end is _End.SIGNALLED else "ended with"
        ended = f"{verb} {how}" if how else "failed"
        who = f"{ranks}:" if death.rank is None else f"rank {death.rank} of {np}"
        return f"{who} {ended} after MPI_Finalize"
    if death.rank is None:
        return f"failed at {ranks}" + (f" ({how})" if how else "")
    last = last_call(captures.get(death.rank))
    if death.how.end is _End.NO_FINALIZE:
        return f"rank {death.rank} of {np} {how}{last}"
    facts = (how + last).removeprefix(", ")
    return f"rank {death.rank} of {np} died" + (f" ({facts})" if facts else "")


def _before_init(run_dir: Path, command: Command, ranks: str, how: _How) -> tuple[str, str]:
    """Return why a run failed of which nothing was captured, and the file that says all of it.

    A crash comes first, then what the launcher gives as its reason, then the program's last words.
    """
    shown, launcher = command.program[0], Path(command.launcher).name
    own, said = launcher_said(run_dir, launcher), program_said(run_dir)
    crashed = how.end is _End.SIGNALLED
    if not own.text and not said.text and not crashed:
        own = launcher_error(run_dir, launcher)
    if own.text and not crashed:
        text = f"{own.text}; {shown} was not started at {ranks}, or failed before MPI_Init returned"
        return text + (f": {said.text}" if said.file == OUTPUTS[0] else ""), own.file
    words = _reason(how, said) or own.text
    text = f"{shown}: failed at {ranks} before MPI_Init returned"
    text += (f" ({how})" if str(how) else "") + (f": {words}" if words else "")
    return text, said.file or own.file or _written(run_dir)


def _written(run_dir: Path) -> str:
    """Return the first file with output, empty where there is none."""
    return next((name for name in OUTPUTS if tail(run_dir / name).strip()), "")
