"""Values of options: what their texts mean, or UsageError that says how to write them."""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Any

from p3s.base.errors import P3SError, UsageError

if TYPE_CHECKING:
    from p3s.capture.recording_plan import Enough
    from p3s.pipeline.tracing.runs import CountRequest
    from p3s.replay.settings import ReplaySettings

#: No study goes above this; larger numbers are typing errors.
MAX_COUNT = 1 << 24
#: Ranks that can be asked for by number.
MAX_RANKS = 1 << 20
_TIME = re.compile(r"(\d+(?:\.\d*)?)\s*(s|m|min|h)?", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LONGEST_S = 30 * 86400.0


def whole(text: str, most: int = MAX_COUNT, least: int = 1) -> int | None:
    """Return a whole number within limits; None for any other text."""
    text = text.strip()
    number = int(text[:15]) if text.isascii() and text.isdigit() else -1
    return number if least <= number <= most else None


def parse_counts(text: str, option: str = "-n") -> list[int]:
    """Return the distinct process counts of ``2,4,8`` in ascending order.

    Raises UsageError for anything that is not a list of whole numbers of at least 1.
    """
    counts: set[int] = set()
    for word in map(str.strip, text.split(",")):
        if (count := whole(word, 10**15)) is None:
            raise UsageError(
                f"{option} {text}: {word!r} is not a process count; "
                f"give whole numbers separated by commas, for example {option} 2,4,8,16"
            )
        if count > MAX_COUNT:
            raise UsageError(f"{option} {text}: {word} is more than {MAX_COUNT:,}, the maximum")
        counts.add(count)
    return sorted(counts)


def one_count(text: str, expected: str) -> int:
    """Return the only count of -n, 0 where none is given; ``expected``: how many are wanted."""
    counts = parse_counts(text) if text else [0]
    if len(counts) > 1:
        raise UsageError(f"-n {text}: {expected}")
    return counts[0]


def parse_asked(text: str, option: str = "-n", *, largest: bool = True) -> CountRequest:
    """Return the counts of ``2,4,8`` or, where that will do, of ``..32``; UsageError otherwise."""
    from p3s.pipeline.tracing.runs import CountRequest

    if not (largest and text.startswith("..")):
        return CountRequest(tuple(parse_counts(text, option)))
    if (top := whole(text.removeprefix(".."))) is None:
        raise UsageError(
            f"{option} {text}: write the largest count after the dots, as {option} ..32"
        )
    return CountRequest(top=top)


def parse_ranks(text: str, option: str = "--ranks") -> list[int]:
    """Return the distinct ranks of ``0,4096-4099`` in ascending order; UsageError otherwise."""
    ranks: set[int] = set()
    for word in map(str.strip, text.split(",")):
        ends = [whole(end, 10**12, 0) for end in word.split("-")]
        first, last = ends[0], ends[-1]
        if first is None or last is None or len(ends) > 2 or last < first:
            raise UsageError(
                f"{option} {text}: {word!r} is neither a rank nor a range of ranks; "
                f"give them separated by commas, for example {option} 0,4096-4099"
            )
        if last - first >= MAX_RANKS:
            raise UsageError(f"{option} {text}: more than {MAX_RANKS:,} ranks, the maximum")
        ranks.update(range(first, last + 1))
    return sorted(ranks)


def parse_threads(text: str) -> list[int]:
    """Return numbers of threads, ascending; raises UsageError for anything else."""
    numbers = {whole(word, 10**9) for word in text.split(",")}
    if None in numbers:
        raise UsageError(f"--threads {text}: give numbers of threads, for example --threads 1,2,4")
    return sorted(number for number in numbers if number)


def parse_share(text: str, option: str, most: float = math.inf) -> float:
    """Return a share of an option such as 10% or 0.1, below ``most``; raises UsageError."""
    try:
        number = float(text.strip().rstrip("%")) / (100.0 if text.strip().endswith("%") else 1.0)
    except ValueError:
        number = math.nan
    if not 0.0 < number < most:
        raise UsageError(f"{option} {text}: is no share; give one as in {option} 10%")
    return number


def parse_enough(width: str, confidence: str, turns: str) -> Enough:
    """Return what --width, --confidence and --turns ask for; UsageError names the option."""
    from p3s.capture.recording_plan import Enough

    least, _, most = (whole(word, 10**9, 2) for word in turns.replace("-", " - ").partition(" - "))
    if least is None or most is None or most < least:
        raise UsageError(
            f"--turns {turns}: not a range of at least 2; give for example --turns 20-1000"
        )
    shares = (parse_share(width, "--width", 1.0), parse_share(confidence, "--confidence", 1.0))
    return Enough(*shares, least, most)


def seconds_of(text: str, option: str) -> float:
    """Return a time like 30s, 10m or 1h in seconds."""
    match = _TIME.fullmatch(text.strip())
    value = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if not 0.0 < value <= _LONGEST_S:
        raise UsageError(f"{option} {text}: give a time, for example 30s, 10m or 1h")
    return value


def words_of(text: str, option: str) -> tuple[str, ...]:
    """Return the words of a text as a shell reads them."""
    try:
        return tuple(shlex.split(text))
    except ValueError as err:
        raise UsageError(f"{option} {text}: {err}") from err


def hosts_of(text: str) -> tuple[str, ...]:
    """Return host names from a list with commas; n[0-3] stands for n0,n1,n2,n3."""
    from p3s.base.host.hosts import expand_hosts

    try:
        return tuple(expand_hosts(text)) if text.strip() else ()
    except P3SError as err:
        raise UsageError(f"--hosts: {err}") from err


def settings_of(hosts: str, cores: int, budget: str, launcher: str, **more: Any) -> ReplaySettings:
    """Return ReplaySettings from the options of a command."""
    from p3s.replay.settings import MAPPINGS, NOISES, PAGES, ReplaySettings

    for name, choices in (("mapping", MAPPINGS), ("pages", PAGES), ("noise", NOISES)):
        if (value := more.get(name)) is not None and value not in choices:
            raise UsageError(
                f"--{name} {value}: there are {', '.join(choices[:-1])} and {choices[-1]}"
            )
    return ReplaySettings(
        hosts=hosts_of(hosts),
        cores_per_node=cores or None,
        budget_s=seconds_of(budget, "--budget"),
        launcher=words_of(launcher, "--launcher"),
        **more,
    )
