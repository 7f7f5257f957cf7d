"""Says in one line why a run failed, from its exit code, output and capture."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from p3s.errors import P3SError
from p3s.trace.capture import Capture, read_capture
from signature_runner.command import Command, executable
from signature_runner.deaths import first_of
from signature_runner.mpi import (
    MPICH,
    OPENMPI,
    SLURM,
    is_static,
    library_of,
    library_of_python,
    owner_of,
    remedy_for,
)

_TAIL_BYTES = 65536


@dataclass(frozen=True)
class Verdict:
    """``status`` complete, partial (some events, not to the end) or failed (nothing usable).

    A run that was ended because it had been seen long enough is "stopped".

    ``work_unit`` is what the ranks measured work in, None if there is none or they differ.
    """

    status: str
    error: str | None = None
    problems: list[str] = field(default_factory=list)
    work_unit: str | None = None


def diagnose(
    run_dir: Path,
    command: Command,
    np: int,
    code: int,
    timeout_s: float | None,
    traced: bool,
    counted: bool = False,
    deaths: Sequence[frozenset[int]] = (),
) -> Verdict:
    """Judge a run that ended with exit code ``code`` or was stopped after ``timeout_s``.

    ``counted`` tells that instructions were asked for; ``deaths`` are the process ids of ranks
    in the order in which they ended, as far as that was seen.
    """
    captures = captures_of(run_dir) if traced else {}
    verdict = _judge(run_dir, command, np, code, timeout_s, traced, captures, deaths)
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
    units = {_unit(capture) for capture in captures.values()}
    return units.pop() if len(units) == 1 else None


def _unit(capture: Capture) -> str:
    return {1: "wall_ns", 3: "instructions"}.get(capture.header.work_source, "cpu_ns")


def uncounted(captures: dict[int, Capture]) -> int | None:
    """Return the first rank whose instructions were not counted, None if all were."""
    ranks = [r for r, c in captures.items() if _unit(c) != "instructions"]
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
) -> Verdict:
    shown = command.program[0]
    sizes = {capture.header.size for capture in captures.values()}
    ended = sorted(r for r, capture in captures.items() if capture.complete)
    status = "partial" if captures else "failed"
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
            f"{_stuck(captures)} give it more time or a smaller problem{_kept(captures)}",
        )
    if (run_dir / "other-mpi").exists():
        return Verdict(
            "failed",
            f"{shown}: uses {_first_line(run_dir / 'other-mpi')}, another MPI than"
            f" {command.launcher}; {_remedy(run_dir, command)}",
        )
    if code != 0:
        if len(ended) == np:
            status = "failed"  # nothing is missing, but the program says it went wrong
        return Verdict(
            status, _failure(run_dir, shown, np, code, captures, traced, command.family, deaths)
        )
    if not traced:
        return Verdict("complete")
    if not captures:
        return Verdict("failed", _nothing(run_dir, command))
    stopped = [rank for rank, capture in captures.items() if capture.header.stopped_early]
    if stopped:
        problem = (
            f"{shown}: ran to its end, but recording stopped early on rank {stopped[0]}"
            f"{_warning(run_dir)}"
        )
        return Verdict("partial", None, [problem])
    if len(ended) < np:
        rank = min(set(range(np)) - set(ended))
        return Verdict(
            "partial",
            f"{shown}: rank {rank} of {np} ended without MPI_Finalize"
            f"{_last(captures.get(rank))}{_kept(captures)}",
        )
    return Verdict("complete")


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
            capture = read_capture(path, last_only=True)
        except P3SError:
            continue
        found[capture.header.rank] = capture
    return found


def _kept(captures: dict[int, Capture]) -> str:
    return "; what was captured is kept" if captures else ""


def _last(capture: Capture | None) -> str:
    """Return ", in MPI_X" or ", after MPI_X" of a rank."""
    if capture is None:
        return ", before MPI_Init returned"
    if capture.header.in_call:
        return f", inside {capture.op_name(capture.header.in_call - 1)}"
    if len(capture.events):
        call = capture.calls[int(capture.events["call"][-1])]
        return f", after {capture.op_name(int(call['op']))}"
    return ""


def _stuck(captures: dict[int, Capture]) -> str:
    inside: dict[str, list[int]] = {}
    for rank, capture in captures.items():
        if not capture.complete:
            inside.setdefault(_last(capture)[2:] or "running", []).append(rank)
    parts = []
    for where, ranks in list(inside.items())[:3]:
        shown = ", ".join(map(str, ranks[:4])) + (", ..." if len(ranks) > 4 else "")
        parts.append(f" rank{'s' if len(ranks) > 1 else ''} {shown} {where}")
    return ",".join(parts) + ";" if parts else ""


def _tail(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
            return "".join(c for c in text if c.isprintable() or c in "\n\t")
    except OSError:
        return ""


def _first_line(path: Path) -> str:
    return _tail(path).strip().partition("\n")[0]


# What the launchers say when a rank fails; the rest of the output is the program's.
_BLOCKS = re.compile(r"^(-{20,})$.*?^\1$|^(={20,})$.*?^\2$", re.MULTILINE | re.DOTALL)
_LAUNCHER_TALK = re.compile(
    r"^\s*$|^-{20,}|^={20,}|^YOUR APPLICATION TERMINATED|^This typically refers to a problem"
    r"|^Please see the FAQ page|^Primary job +terminated|^a non-zero exit code|^\[[^\]]*:\d+\]"
    r"|^\[(?:mpiexec|proxy)|^Abort\(\d+\) on node|^application called MPI_Abort|^p3s: "
    r"|^srun: |^slurmstepd[-\w.]*: |^prterun|^\*\*\* ",
)


def _said(run_dir: Path) -> str:
    """Return the last line the program itself wrote, stderr first."""
    for name in ("stderr.txt", "stdout.txt"):
        text = _BLOCKS.sub("", _tail(run_dir / name))
        lines = [line.strip() for line in text.splitlines() if not _LAUNCHER_TALK.search(line)]
        if lines:
            return lines[-1][:200]
    return ""


_LAUNCHER_ERROR = re.compile(r"^srun: (?:error|fatal): (?!\S+: task )", re.MULTILINE)


def _launcher_said(run_dir: Path) -> str:
    """Return what the launcher gives as the reason why it started nothing, empty if nothing."""
    text = _tail(run_dir / "stderr.txt")
    found = [match.start() for match in _LAUNCHER_ERROR.finditer(text)]
    return text[found[-1] :].partition("\n")[0].strip()[:200] if found else ""


_OPENMPI_RANK = re.compile(
    r"process rank (\d+) with PID|Process name: \[(?:\[[^\]]*\]|[^,\]]*),\s*(\d+)\]"
)
_OPENMPI_ERROR = re.compile(r"\*\*\* reported by process \[[^\],]*,(\d+)\]")
_IMPROPER = re.compile(r"\s+\d+\s+on\s+node\s+\S+\s+exiting\s+improperly")
_NO_FINALIZE = "ended without MPI_Finalize"  # and with exit code 0: the launcher's 1 is its own
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


@dataclass(frozen=True)
class _Death:
    """What is known of a failure: the rank, and how it ended; None and empty if unknown."""

    rank: int | None = None
    how: str = ""


def _signalled(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _exited(code: int) -> str:
    """Describe the exit code of a launcher that passes on that of one rank."""
    number = -code if code < 0 else code - 128
    if number in {int(known) for known in signal.Signals}:
        return _signalled(number)
    return f"exit code {code}"


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


def _hydra_total(text: str, code: int) -> str:
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
        return ""
    return _signalled(number)


def _srun_how(task: re.Match[str]) -> str:
    if task["code"]:
        return f"exit code {task['code']}"
    named = {signal.strsignal(number): number for number in signal.valid_signals()}
    number = named.get(task["how"].partition(" (")[0])
    return _signalled(number) if number else task["how"]


def _death(
    run_dir: Path,
    captures: dict[int, Capture],
    family: str,
    code: int,
    deaths: Sequence[frozenset[int]],
) -> _Death:
    """Return which rank failed first and how, as far as launcher and captures tell."""
    for rank, capture in captures.items():
        if capture.header.aborting:
            return _Death(rank, f"called MPI_Abort({capture.header.abort_code})")
    text = _tail(run_dir / "stdout.txt") + "\n" + _tail(run_dir / "stderr.txt")
    fatal = _OPENMPI_ERROR.search(text)
    if fatal and int(fatal[1]) in captures:
        return _Death(int(fatal[1]), "stopped by an MPI error")
    match = _OPENMPI_RANK.search(text)
    if match and _IMPROPER.match(text, match.end()):
        return _Death(int(match[1]), _NO_FINALIZE)
    if match:
        how = _OPENMPI_HOW.search(text, match.start())
        said = _exited(code)
        if how:
            said = _signalled(int(how[1])) if how[1] else f"exit code {how[2]}"
        return _Death(int(match[1] or match[2]), said)
    task = _SRUN_TASK.search(text) if family == SLURM else None
    if task:  # the first that srun names; then it ends the others
        return _Death(int(task["rank"]), _srun_how(task))
    fatal = _MPICH_FATAL.search(text)
    if fatal and int(fatal[1]) in captures:
        return _Death(int(fatal[1]), "stopped by an MPI error")
    how_all = _hydra_total(text, code) if family == MPICH else _exited(code)
    unfinished = [rank for rank, capture in captures.items() if not capture.complete]
    outside = [rank for rank in unfinished if not captures[rank].header.in_call]
    named = _hydra_named(text) if family == MPICH else None
    first = first_of(deaths, {captures[rank].header.pid: rank for rank in unfinished})
    if len(first) == 1 and (named is None or named[0] != captures[first[0]].header.pid):
        return _Death(first[0], how_all)
    if named is not None:
        pid, status, number = named
        own = f"exit code {status}" if status else _signalled(number)
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
    shown: str,
    np: int,
    code: int,
    captures: dict[int, Capture],
    traced: bool,
    family: str,
    deaths: Sequence[frozenset[int]],
) -> str:
    said = _said(run_dir)
    said = f": {said}" if said else ""
    death = _death(run_dir, captures, family, code, deaths)
    how = f" ({death.how})" if death.how else ""
    ranks = "1 rank" if np == 1 else f"{np} ranks"
    if traced and not captures:
        own = "" if said else _launcher_said(run_dir)
        if own:
            return f"{own}; {shown} was not started at {ranks}, or failed before MPI_Init returned"
        return f"{shown}: failed at {ranks} before MPI_Init returned{how}{said}"
    # An MPI_Abort can return and its caller go on until the launcher ends it.
    aborted = any(capture.header.aborting for capture in captures.values())
    if captures and not aborted and all(capture.complete for capture in captures.values()):
        verb = "was" if death.how.startswith("killed") else "ended with"
        ended = f"{verb} {death.how}" if death.how else "failed"
        who = f"{ranks}:" if death.rank is None else f"rank {death.rank} of {np}"
        return f"{shown}: {who} {ended} after MPI_Finalize{said}{_kept(captures)}"
    if death.rank is None:
        return f"{shown}: failed at {ranks}{how}{said}{_kept(captures)}"
    if death.how == _NO_FINALIZE:
        last = _last(captures.get(death.rank))
        return f"{shown}: rank {death.rank} of {np} {_NO_FINALIZE}{last}{said}{_kept(captures)}"
    facts = (death.how + _last(captures.get(death.rank))).removeprefix(", ")
    facts = f" ({facts})" if facts else ""
    return f"{shown}: rank {death.rank} of {np} died{facts}{said}{_kept(captures)}"


def _warning(run_dir: Path) -> str:
    """Return ": reason" if the tracer said why it could not write."""
    pattern = r"^p3s: warning: rank \d+: (.*); the program goes on"
    match = re.search(pattern, _tail(run_dir / "stderr.txt"), re.MULTILINE)
    return f": {match[1]}" if match else ""


def _nothing(run_dir: Path, command: Command) -> str:
    shown = command.program[0]
    warning = _warning(run_dir)
    if warning:
        return f"{shown}: nothing was captured{warning}"
    program = executable(command.program[0])
    if program and library_of(program) is None and _is_elf(program):
        if is_static(program):
            why = "it has MPI linked statically; link it with the shared MPI library"
        else:
            why = "it is not linked to an MPI library; is it the right program?"
    else:
        why = (
            "it is not an MPI program, ends before MPI_Init, or uses another MPI than"
            f" {command.launcher}"
        )
    return f"{shown}: no MPI call seen: {why}"


def _is_elf(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
