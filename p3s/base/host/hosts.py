"""Host lists as people and batch systems write them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress

from p3s.base.errors import P3SError

#: A mistyped range must not become a list that fills the memory.
MOST_HOSTS = 1_000_000
_MOST_BYTES = 64 << 20
_PIECE = re.compile(r"\[([^][]*)\]|([^][]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?")


def expand_hosts(text: str) -> list[str]:
    """Return the hosts that a list names, in its order: ``a,n[0-3,7],r[0-1]n[08-11]``.

    Numbers keep the leading zeros of the start of their range; of several brackets the last one
    changes fastest. Spaces around commas are ignored. Errors: P3SError.
    """
    hosts: list[str] = []
    for entry in _split(text):
        hosts += _expand(entry.strip(), text, MOST_HOSTS - len(hosts))
    return hosts


def _split(text: str) -> list[str]:
    """Return the parts between commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if depth not in (0, 1):
            raise P3SError(f"hosts {text[:60]!r}: brackets do not match; write n[0-3,7]")
        if char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    if depth:
        raise P3SError(f"hosts {text[:60]!r}: brackets do not match; write n[0-3,7]")
    return [*parts, text[begin:]]


def _expand(entry: str, text: str, room: int) -> list[str]:
    names = [""]
    for bracket, plain in _PIECE.findall(entry):
        endings = [plain] if plain else _numbers(bracket, text, room)
        if len(names) * len(endings) > room:
            raise P3SError(f"hosts {text[:60]!r}: names more than {MOST_HOSTS:,} hosts")
        names = [start + end for start in names for end in endings]
    if "[]" in entry or not all(_NAME.fullmatch(name) for name in names[:1]):
        raise P3SError(
            f"hosts {text[:60]!r}: {entry[:60]!r} is not a host name; write n0,n1 or n[0-3]"
        )
    return names


def _numbers(inside: str, text: str, room: int) -> list[str]:
    """Return the numbers that a bracket names, as text."""
    numbers: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise P3SError(
                f"hosts {text[:60]!r}: {part[:30]!r} is not a number or a range such as 0-3"
            )
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise P3SError(f"hosts {text[:60]!r}: range {part.strip()[:30]} runs backwards")
        if int(last) - int(first) >= room - len(numbers):
            raise P3SError(f"hosts {text[:60]!r}: names more than {MOST_HOSTS:,} hosts")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers


def allocated_hosts(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the nodes of the job of Slurm, PBS or LSF this process is in, none outside of one.

    Errors: P3SError when the list of a Slurm job cannot be read.
    """
    env = os.environ if environ is None else environ
    if env.get("SLURM_JOB_ID"):
        text = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or ""
        return expand_hosts(text) if text else []
    names: list[str] = []
    if env.get("PBS_JOBID") and env.get("PBS_NODEFILE"):
        with suppress(OSError, UnicodeDecodeError), open(env["PBS_NODEFILE"]) as file:
            names = file.read(_MOST_BYTES).split()
    elif env.get("LSB_JOBID"):  # a name and its slots in turn; LSB_HOSTS is not set for large jobs
        names = env.get("LSB_MCPU_HOSTS", "").split()[::2] or env.get("LSB_HOSTS", "").split()
    return list(dict.fromkeys(name for name in names if _NAME.fullmatch(name)))
