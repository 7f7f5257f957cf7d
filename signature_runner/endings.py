"""How the ranks of a run ended, as far as its launcher, its captures and its output tell."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from p3s.base.host.mpi import MPICH, SLURM
from p3s.capture.capture import Capture
from p3s.signature_runner.output import crash_signal, mpi_error, tail

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


class End(Enum):
    """How a rank ended; NO_FINALIZE: with exit code 0, the launcher's 1 is its own."""

    UNKNOWN = ""
    EXITED = "exit code {}"
    SIGNALLED = "killed by {}"
    ABORTED = "called MPI_Abort({})"
    MPI_ERROR = "stopped by an MPI error{}"
    NO_FINALIZE = "ended without MPI_Finalize"


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended, with its exit code, its signal's name or what MPI_Abort was given."""

    end: End = End.UNKNOWN
    value: str = ""

    def __str__(self) -> str:
        return self.end.value.format(self.value)


@dataclass(frozen=True)
class Death:
    """What is known of a failure: the rank, None if unknown, and how it ended."""

    rank: int | None = None
    how: RankEnd = RankEnd()


def _describe_signal(number: int) -> RankEnd:
    try:
        return RankEnd(End.SIGNALLED, signal.Signals(number).name)
    except ValueError:
        return RankEnd(End.SIGNALLED, f"signal {number}")


def _exit(code: int | str) -> RankEnd:
    return RankEnd(End.EXITED, str(code))


def _describe_exit(code: int) -> RankEnd:
    """Describe the exit code of a launcher that passes on that of one rank."""
    number = -code if code < 0 else code - 128
    if number in {int(each) for each in signal.Signals}:
        return _describe_signal(number)
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


def _hydra_total(text: str, code: int) -> RankEnd:
    """Describe how the run ended by MPICH's launcher's own exit code, if that can be told.

    It ORs the statuses of all ranks, also of those it killed itself: a code with the bits of
    SIGKILL may be no rank's own.
    """
    match = _HYDRA_STRING.search(text)
    if match is None:
        return _describe_exit(code)
    number = int(match[1])
    # SIGSEGV has the bits of SIGKILL, too, but nothing else is likely to add up to it.
    if number & signal.SIGKILL == signal.SIGKILL and number != signal.SIGSEGV:
        return RankEnd()
    return _describe_signal(number)


def _srun_how(task: re.Match[str]) -> RankEnd:
    if task["code"]:
        return _exit(task["code"])
    named = {signal.strsignal(number): number for number in signal.valid_signals()}
    number = named.get(task["how"].partition(" (")[0])
    return _describe_signal(number) if number else RankEnd(End.SIGNALLED, task["how"])


def first_death(
    run_dir: Path,
    captures: Mapping[int, Capture],
    family: str,
    code: int,
    deaths: Sequence[frozenset[int]],
) -> Death:
    """Return which rank failed first and how.

    family: of the launcher, code: its exit code; deaths: process ids in the order of their ends.
    """
    text = tail(run_dir / "stdout.txt") + "\n" + tail(run_dir / "stderr.txt")
    death = _find_death(text, captures, family, code) or _conclude_death(
        text, captures, family, code, deaths
    )
    if death.how.end in (End.UNKNOWN, End.EXITED):
        number = crash_signal(run_dir)
        return Death(death.rank, _describe_signal(number)) if number else death
    return death


def _find_death(text: str, captures: Mapping[int, Capture], family: str, code: int) -> Death | None:
    """Return the death that a capture or the launcher's text names, None where none does."""
    for rank, capture in captures.items():
        if capture.header.aborting:
            return Death(rank, RankEnd(End.ABORTED, str(capture.header.abort_code)))
    if (fatal := _OPENMPI_ERROR.search(text)) and int(fatal[1]) in captures:
        return Death(int(fatal[1]), RankEnd(End.MPI_ERROR, mpi_error(text)))
    if match := _OPENMPI_RANK.search(text):
        if _IMPROPER.match(text, match.end()):
            return Death(int(match[1]), RankEnd(End.NO_FINALIZE))
        how = _OPENMPI_HOW.search(text, match.start())
        end = _describe_exit(code)
        if how:
            end = _describe_signal(int(how[1])) if how[1] else _exit(how[2])
        return Death(int(match[1] or match[2]), end)
    task = _SRUN_TASK.search(text) if family == SLURM else None
    if task:  # the first that srun names; then it ends the others
        return Death(int(task["rank"]), _srun_how(task))
    fatal = _MPICH_FATAL.search(text)
    if fatal and int(fatal[1]) in captures:
        return Death(int(fatal[1]), RankEnd(End.MPI_ERROR, mpi_error(text)))
    return None


def _conclude_death(
    text: str,
    captures: Mapping[int, Capture],
    family: str,
    code: int,
    deaths: Sequence[frozenset[int]],
) -> Death:
    """Return the death that follows from where the ranks were and in which order they ended."""
    how_all = _hydra_total(text, code) if family == MPICH else _describe_exit(code)
    unfinished = {rank: c.header for rank, c in captures.items() if not c.complete}
    outside = [rank for rank, header in unfinished.items() if not header.in_call]
    named = _hydra_named(text) if family == MPICH else None
    ended = ([r for r, header in unfinished.items() if header.pid in pids] for pids in deaths)
    first = next(filter(None, ended), [])
    if len(first) == 1 and (named is None or named[0] != unfinished[first[0]].pid):
        return Death(first[0], how_all)
    if named is not None:
        pid, status, number = named
        end = _exit(status) if status else _describe_signal(number)
        ranks = [rank for rank, header in unfinished.items() if header.pid == pid]
        # Whom Hydra has killed itself it names as well; else it is the one that failed. One that
        # SIGKILL met outside of MPI while all others waited inside was not killed by Hydra.
        if ranks and (number not in _CLEANUP or ranks in (outside, first)):
            return Death(ranks[0], end)
    # A rank that died by itself was computing; the others were stopped, waiting inside MPI.
    for ranks in (outside, [*unfinished]):
        if len(ranks) == 1 and (not first or ranks[0] in first):
            return Death(ranks[0], how_all)
    return Death(None, how_all)


_FINALIZE = "in MPI_Finalize"


def last_call(capture: Capture | None) -> str:
    """Return ", inside MPI_X" or ", after MPI_X" of a rank."""
    if capture is None:
        return ", before MPI_Init returned"
    if capture.header.in_call:
        return f", inside {capture.op_name(capture.header.in_call - 1)}"
    if len(capture.events):
        call = capture.calls[int(capture.events["call"][-1])]
        return f", after {capture.op_name(int(call['op']))}"
    return ""


def describe_timeout(captures: Mapping[int, Capture], last_words: str) -> str:
    """Return where the ranks of a run that took too long were, and what to do.

    last_words: of the program, which are why a rank is done while others wait for it: a Python
    program whose exception ends one rank waits for the others in MPI_Finalize.
    """
    inside: dict[str, list[int]] = {}
    for rank, capture in captures.items():
        where = _FINALIZE if capture.complete else last_call(capture)[2:] or "running"
        inside.setdefault(where, []).append(rank)
    finished = inside.pop(_FINALIZE, [])
    parts = [_ranks(ranks, where) for where, ranks in list(inside.items())[:3]]
    if finished and inside:
        words = f" ({last_words})" if last_words else ""
        who = "it was" if len(finished) == 1 else "they were"
        locations = ",".join([*parts, _ranks(finished, _FINALIZE)])
        return f"{locations}{words}; see why {who} done before the others"
    return (",".join(parts) + ";" if parts else "") + " give it more time or a smaller problem"


def _ranks(ranks: list[int], where: str) -> str:
    names = ", ".join(map(str, ranks[:4])) + (", ..." if len(ranks) > 4 else "")
    return f" rank{'s' if len(ranks) > 1 else ''} {names} {where}"
