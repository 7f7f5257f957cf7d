"""What a failed run has written: the program's last words, the launcher's reason, a crash."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_TAIL_BYTES = 65536
_SHOWN = 240
#: Characters of what a program said last.
_SAID = 200
OUTPUTS = ("stderr.txt", "stdout.txt")


@dataclass(frozen=True)
class Words:
    """What somebody wrote, as one line, and the name of the file with all of it.

    ``error``: the line itself says that it is of an error.
    """

    text: str = ""
    file: str = ""
    error: bool = False


def tail(path: Path) -> str:
    """Return the end of a text file, printable; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
            return "".join(c for c in text if c.isprintable() or c in "\n\t")
    except OSError:
        return ""


# What the launchers say when a rank fails; the rest of the output is the program's.
_BLOCKS = re.compile(r"^(-{20,})$(?P<text>.*?)^\1$|^(={20,})$.*?^\3$", re.MULTILINE | re.DOTALL)
_LAUNCHER_TALK = re.compile(
    r"^\s*$|^-{20,}|^={20,}|^YOUR APPLICATION TERMINATED|^This typically refers to a problem"
    r"|^Please see the FAQ page|^Primary job +terminated|^a non-zero exit code|^\[[^\]]*:\d+\]"
    r"|^\[(?:mpiexec|proxy)|^Abort\(\d+\) on node|^application called MPI_Abort|^p3s: "
    r"|^srun: |^slurmstepd[-\w.]*: |^prterun|^\*\*\* |^\[warn\] Epoll (?:ADD|MOD|DEL)\("
)
# What libraries print of a crash (a line with an address is of a stack); the signal says it all.
_CRASH_TALK = re.compile(
    r"\b0x[0-9a-fA-F]{6,}|^=+ backtrace|Backtrace for this error|^Error termination\. Backtrace"
    r"|^Program received signal SIG|^#\d+ |^\s+at \S+:\d+$|^Signal(?: code)?: "
    r"|^Failing at address: "
)
_CRASH = re.compile(
    r"^\[[^\]]*\] Caught signal (\d+) \(|^\[[^\]]*\] Signal: [^(\n]*\((\d+)\)$", re.MULTILINE
)
# Of an Open MPI help text: how a rank ended, which is told from it elsewhere.
_ABOUT_A_RANK = re.compile(
    r"Primary job +terminated|noticed that process rank|with non-zero status|MPI_ABORT was invoked"
    r"|exiting improperly|terminated by signal"
)
#: Of a program's last lines the one that says what is wrong: others may follow it. The C and C++
#: libraries name the function, or what was found.
_ERROR, _LAST = (
    re.compile(
        r"\W*(?:fatal |internal |fortran runtime )?error\b|[a-z_]+\(\): |double free or corruption"
        r"|terminate called |corrupted |.*\bassertion\b.* failed",
        re.IGNORECASE,
    ),
    20,
)
#: An exception that Python prints, a line of a traceback, files of Python itself and of libraries.
_EXCEPTION = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')
_OF_LIBRARIES = re.compile(r"^<|/(?:site|dist)-packages/|/lib/python\d|\.(?:pyx|pxi)$")
_ERROR_IN = re.compile(
    r"An error occurred in MPI_(?P<here>\w+)"
    r"|Fatal error in (?:internal_|PMPI_|MPI_)(?P<there>\w+): (?P<what>[^,\n]*)"
)
_ERROR_CLASS = re.compile(r"\*\*\* (MPI_ERR_\w+(?:: .*)?)")
_SRUN_ERROR = re.compile(r"^srun: (?:error|fatal): (?!\S+: task )", re.MULTILINE)
_HYDRA_ERROR = re.compile(r"^\[(?:mpiexec|proxy[:\d]*)@[^\]]*\] (.*)$", re.MULTILINE)


def program_said(run_dir: Path) -> Words:
    """Return the last words of the program itself, stderr first: a line that says error, if any.

    Of a Python program's exception its last line, and where in the program it was. Else the last
    message, which may be of several lines, as one line.
    """
    for name in OUTPUTS:
        every = _BLOCKS.sub("", tail(run_dir / name)).splitlines()
        own_lines = ["" if _is_talk(line) else " ".join(line.split()) for line in every]
        lines = [line for line in own_lines if line]
        errors = [line for line in lines[-_LAST:] if _ERROR.match(line)]
        if exception := _exception(lines):
            return Words(exception, name, True)
        if lines:
            return Words(
                (errors[-1] if errors else _last_message(own_lines))[:_SAID], name, bool(errors)
            )
    return Words()


def _exception(lines: Sequence[str]) -> str:
    """Return the exception that ended a Python program, with the last line of its own in it."""
    if not any(line.startswith("Traceback (most recent call last)") for line in lines):
        return ""
    at = max((k for k, line in enumerate(lines) if _EXCEPTION.match(line)), default=0)
    frames = [match for line in lines[:at] if (match := _FRAME.match(line))]
    own_frames = [frame for frame in frames if not _OF_LIBRARIES.search(frame["file"])] or frames
    if not own_frames:
        return ""
    where = f" ({Path(own_frames[-1]['file']).name}:{own_frames[-1]['line']})"
    return lines[at][: _SAID - len(where)] + where


def _is_talk(line: str) -> bool:
    """Tell whether a line says nothing (it has no letter), or is the launcher's, or of a crash."""
    says = any(map(str.isalpha, line))
    return not says or bool(_LAUNCHER_TALK.search(line) or _CRASH_TALK.search(line))


def _last_message(lines: Sequence[str]) -> str:
    """Return the last lines that belong together, joined; "" separates others from them.

    Each rank may have written them: they begin after a line that is like one of them but for its
    numbers, and are no more than fit.
    """
    message: list[str] = []
    alike: set[str] = set()
    for line in reversed(lines):
        kind = re.sub(r"\d+", "0", line)
        if message and (not line or kind in alike or len(" ".join([line, *message])) > _SAID):
            break
        if line:
            message.insert(0, line)
            alike.add(kind)
    return " ".join(message)


def mpi_error(text: str) -> str:
    """Return " in CALL (ERROR)" of an error that ended a rank, as Open MPI and MPICH print it.

    Empty, or without the error, where they don't say it.
    """
    call = _ERROR_IN.search(text)
    if call is None:
        return ""
    match = _ERROR_CLASS.search(text, call.end())
    error = call["what"] or (match[1] if match else "")
    return f" in MPI_{call['here'] or call['there']}" + f" ({error.strip()[:_SAID]})" * bool(error)


def launcher_said(run_dir: Path, launcher: str) -> Words:
    """Return what the launcher gives as the reason why it started nothing, or MPI did not."""
    for name in OUTPUTS:
        text = tail(run_dir / name)
        starts = [match.start() for match in _SRUN_ERROR.finditer(text)]
        if starts:
            return Words(text[starts[-1] :].partition("\n")[0].strip()[:200], name)
        blocks = [match["text"] for match in _BLOCKS.finditer(text) if match["text"]]
        blocks = [block for block in blocks if not _ABOUT_A_RANK.search(block)]
        if blocks:
            return Words(f"{launcher}: {_shorten_block(blocks[0]).rstrip('.')}", name)
    return Words()


def launcher_error(run_dir: Path, launcher: str) -> Words:
    """Return the first line that MPICH's launcher wrote; after a crash it tells little."""
    for name in OUTPUTS:
        if match := _HYDRA_ERROR.search(tail(run_dir / name)):
            return Words(f"{launcher}: {match[1].strip()[:_SHOWN]}", name)
    return Words()


def crash_signal(run_dir: Path) -> int:
    """Return the signal that a library has caught and reported, 0 where none has."""
    for name in OUTPUTS:
        if match := _CRASH.search(tail(run_dir / name)):
            return int(match[1] or match[2])
    return 0


def _shorten_block(block: str) -> str:
    """Return a text of paragraphs as one line: of a long one the first sentence and the end."""
    parts = [" ".join(part.split()) for part in re.split(r"\n\s*\n", block.strip())]
    whole = " ".join(parts)
    if len(whole) <= _SHOWN:
        return whole
    first = re.match(r".*?[.:](?= |$)", whole)
    return f"{first[0] if first else parts[0]} ... {parts[-1]}"[: 2 * _SHOWN]
