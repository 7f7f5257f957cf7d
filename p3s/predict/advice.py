"""What helps where a prediction is not to be trusted: in words, with complete commands.

A command that traces comes last, behind a colon: it may be one in parentheses.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from p3s.laws.statistics import PER_DOUBLING
from p3s.predict.commands import Proposals
from p3s.predict.distribution import draws, ends_of
from p3s.predict.estimated import TYPICAL
from p3s.predict.types import Count

#: A typical network that is proposed where messages cannot be measured as in a run.
_NETWORK = "infiniband-hdr"
#: Points of a per cent of half width below which a run is not worth naming.
_LESS = 1.0
#: Repeats that tell a disturbed run from the others.
_REPEATS = 3


def again(counts: int | Sequence[int], commands: Proposals) -> str:
    """Return the command that traces counts again with repeats."""
    return commands.trace(counts, _REPEATS)


def another(commands: Proposals, traced: Sequence[int] = ()) -> str:
    """Return which count to trace next; what else helps where none is known.

    ``traced``: the counts of which repeats would tell something, too.
    """
    if commands.names_counts():
        return f"trace another count ({commands.next()} names the most useful one)"
    larger = commands.larger(max(traced, default=1))
    if larger:
        return f"trace a larger count: {commands.trace(larger)}"
    none = "no other count is known to work with this program"
    if traced:
        return f"{none}; trace these with repeats: {again(traced, commands)}"
    return f"{none}; a larger input may allow more"


def narrower_by(row: Count, traced: Sequence[int], commands: Proposals) -> str:
    """Return how wide a row's interval would be with the next larger count traced; "" if no less.

    What comes from laws of work and of cost shrinks with the doublings from the largest count, as
    the half width of a mean does and as laws of cost drift; the rest stays.
    """

    largest = max(traced, default=0)
    more = commands.larger(largest) if largest else None
    if more is None or not largest < row.n:
        return ""
    before, after = (max(math.log2(row.n / n), 0.0) for n in (largest, more))
    less = {"cost": after / before}
    less["work"] = (1.0 + PER_DOUBLING * after) / (1.0 + PER_DOUBLING * before) * (after > 0.0)
    parts = row.interval_parts.known()
    narrower = {
        name: (low ** less.get(name, 1.0), high ** less.get(name, 1.0))
        for name, (low, high) in parts.items()
    }
    rivals = row.interval_parts.rivals
    now, then = (ends_of(draws(each, rivals)) for each in (parts, narrower))
    old, new = (50.0 * (high - low) for low, high in (now, then))
    if not old - new > _LESS:
        return ""
    return f"tracing {more} too would narrow it from {old:.0f} % to about {new:.0f} % at {row.n}"


def measure(counts: Sequence[int], commands: Proposals, typical: bool = False) -> str:
    """Return what gives costs of messages that tell how fast a run is.

    ``typical``: those of a typical cluster are taken already.
    """
    here = "measure messages on nodes with a core for each rank (--hosts names them)"
    if typical:
        return here
    command = commands.predict(counts, "--network", _NETWORK)
    return f"{here}, or predict for a typical cluster ({command})"


def smaller(n: int, commands: Proposals) -> str:
    """Return how to show what a process computes at ``n``: with a smaller workload, if at all."""
    if named := smaller_named(n, commands):
        return named
    found = commands.smaller_input(n)
    if found and found["unmatched"]:
        counted = commands.trace(commands.traced(), work="instructions")
        return f"count instructions, which tell what a smaller workload stands for: {counted}"
    return another(commands)


def smaller_named(n: int, commands: Proposals) -> str:
    """Return that a smaller workload helps, where ``p3s next`` says which; else ""."""
    found = commands.smaller_input(n)
    if found is not None and (not found["phases"] or found["unmatched"]):
        return ""
    if found is None or found["arguments"]:
        return f"add a smaller workload ({commands.next(n)} names one)"
    return (
        "add a smaller workload, in another input file or build "
        f"({commands.next(n)} says how much smaller)"
    )


def narrower(
    part: str, row: Count, traced: Sequence[int], commands: Proposals, odd: Collection[int] = ()
) -> str:
    """Return what would make a part of a row's interval narrower.

    ``odd``: counts that contradict the others, whose points widen what the laws say.
    """
    if part in ("work", "cost") and odd:
        without = ",".join(map(str, sorted(odd)))
        command = commands.of("model", "--without", without)
        return f"leave out what contradicts the others ({command})"
    if part == "cost" and traced:
        named = smaller_named(row.n, commands)
        return f"{named + ', or ' if named else ''}trace with repeats: {again(traced, commands)}"
    if part == "replay":
        return measure([row.n], commands, row.estimator == TYPICAL)
    if part == "files":
        return (
            "measure the file system that the program uses, with as many processes as it will be "
            f"used by: {commands.measure_files()}"
        )
    if part == "residual" and traced:
        return f"trace these counts again on idle cores: {again(traced, commands)}"
    return another(commands, traced)
