"""Says in one line why a run failed, from its exit code, output and capture."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

from p3s.errors import P3SError
from p3s.trace.capture import Capture, read_capture
from signature_runner.command import Command, executable
from signature_runner.mpi import library_of

_TAIL_BYTES = 65536


@dataclass(frozen=True)
class Verdict:
    """``status`` complete, partial (some events, not to the end) or failed (nothing usable)."""

    status: str
    error: str | None = None
    problems: list[str] = field(default_factory=list)


def diagnose(
    run_dir: Path, command: Command, np: int, code: int, timeout_s: float | None, traced: bool
) -> Verdict:
    """Judge a run that ended with exit code ``code`` or was stopped after ``timeout_s``."""
    shown = command.program[0]
    captures = _captures(run_dir) if traced else {}
    sizes = {capture.header.size for capture in captures.values()}
    ended = sorted(r for r, capture in captures.items() if capture.complete)
    status = "partial" if captures else "failed"
    if traced and sizes == {1} and np > 1:
        return Verdict(
            "failed",
            f"{shown}: ran as {np} separate programs of 1 rank, not as one of {np}: the program"
            f" uses another MPI than {command.launcher}; start it with its own MPI's mpiexec",
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
            f" {command.launcher}; start it with its own MPI's mpiexec",
        )
    if code != 0:
        return Verdict(status, _failure(run_dir, shown, np, code, captures, traced))
    if not traced:
        return Verdict("complete")
    if not captures:
        return Verdict("failed", _nothing(run_dir, command))
    if len(ended) < np:
        rank = min(set(range(np)) - set(ended))
        return Verdict(
            "partial",
            f"{shown}: rank {rank} of {np} ended without MPI_Finalize"
            f"{_last(captures.get(rank))}{_kept(captures)}",
        )
    problems = [
        f"rank {rank}: recording stopped early, the trace file could not be extended"
        for rank, capture in captures.items()
        if capture.header.stopped_early
    ]
    return Verdict("partial" if problems else "complete", None, problems)


def _captures(run_dir: Path) -> dict[int, Capture]:
    found = {}
    for path in sorted(run_dir.glob("rank-*.p3t")):
        try:
            capture = read_capture(path)
        except P3SError:
            continue
        found[capture.header.rank] = capture
    return found


def _kept(captures: dict[int, Capture]) -> str:
    return "; what was captured is kept" if captures else ""


def _op_name(capture: Capture, number: int) -> str:
    return capture.opnames.get(number, "an MPI call")


def _last(capture: Capture | None) -> str:
    """Return ", in MPI_X" or ", after MPI_X" of a rank."""
    if capture is None:
        return ", before MPI_Init returned"
    if capture.header.in_call:
        return f", inside {_op_name(capture, capture.header.in_call - 1)}"
    if len(capture.events):
        call = capture.calls[int(capture.events["call"][-1])]
        return f", after {_op_name(capture, int(call['op']))}"
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
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _first_line(path: Path) -> str:
    return _tail(path).strip().partition("\n")[0]


_LAUNCHER_TALK = re.compile(
    r"^\s*$|^[-=]{5,}|^=|mpirun|mpiexec|prterun|PRTE|hydra|HYDU|PMI|primary job|"
    r"Primary job|exit code|non-zero|aborted|process returned|user-direct|MPI_ABORT|"
    r"errorcode|NOTE:|You may or may not|exactly when|application called|"
    r"^Abort\(|YOUR APPLICATION|Process name|BAD TERMINATION|RUNNING AT|CLEANUP|"
    r"^\[[^\]]*:\d+\]|p3s: warning|signal \d+|invoking|with errorcode|This may|"
    r"Segmentation fault \(signal",
    re.IGNORECASE,
)


def _said(run_dir: Path) -> str:
    """Return the last line the program itself wrote, stderr first."""
    for name in ("stderr.txt", "stdout.txt"):
        lines = [
            line.strip()
            for line in _tail(run_dir / name).splitlines()
            if not _LAUNCHER_TALK.search(line)
        ]
        if lines:
            return lines[-1][:200]
    return ""


def _culprit(run_dir: Path, captures: dict[int, Capture]) -> int | None:
    """Return the rank that failed first, as far as launcher and captures tell."""
    for rank, capture in captures.items():
        if capture.header.aborting:
            return rank
    text = _tail(run_dir / "stderr.txt") + _tail(run_dir / "stdout.txt")
    match = re.search(r"process rank (\d+) with PID|\bRANK (\d+) PID", text)
    if match:
        return int(match[1] or match[2])
    match = re.search(r"\bPID (\d+) RUNNING AT", text)
    if match:
        for rank, capture in captures.items():
            if capture.header.pid == int(match[1]):
                return rank
    match = re.search(r"Process name: \[[^,\]]*,(\d+)\]", text)
    if match:
        return int(match[1])
    open_ends = [rank for rank, capture in captures.items() if not capture.complete]
    return open_ends[0] if len(open_ends) == 1 else None


def _death(code: int) -> str:
    number = -code if code < 0 else code - 128
    if number > 0:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            pass
    return f"exit code {code}"


def _failure(
    run_dir: Path, shown: str, np: int, code: int, captures: dict[int, Capture], traced: bool
) -> str:
    said = _said(run_dir)
    said = f": {said}" if said else ""
    if traced and not captures:
        return f"{shown}: failed at {np} ranks before MPI_Init returned ({_death(code)}){said}"
    if captures and all(capture.complete for capture in captures.values()):
        return f"{shown}: ended with {_death(code)} at {np} ranks{said}{_kept(captures)}"
    rank = _culprit(run_dir, captures)
    if rank is None:
        return f"{shown}: failed at {np} ranks ({_death(code)}){said}{_kept(captures)}"
    return (
        f"{shown}: rank {rank} of {np} died ({_death(code)}{_last(captures.get(rank))})"
        f"{said}{_kept(captures)}"
    )


def _nothing(run_dir: Path, command: Command) -> str:
    shown = command.program[0]
    warning = re.search(r"^p3s: warning: .*$", _tail(run_dir / "stderr.txt"), re.MULTILINE)
    if warning:
        return f"{shown}: nothing was captured: {warning[0].removeprefix('p3s: warning: ')}"
    program = executable(command.program[0])
    if program and library_of(program) is None and _is_elf(program):
        text = Path(program).read_bytes()
        if b"PMPI_Init" in text:
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
