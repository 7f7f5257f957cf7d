"""Programs that are proven to end: what stands in the way is buffered, left out, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.replay.plan.build import Built, build_program
from p3s.replay.plan.build_holes import Noise
from p3s.replay.plan.build_traffic import MAX_MESSAGE_BYTES, WHY_TEXT, Traffic, Why
from p3s.replay.plan.check import Verdict, check, describe
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import MEASURED, World
from p3s.simulate.steps import LeftOut

#: Blocking sends of up to this many bytes are taken to be buffered by every MPI library.
EAGER_BYTES = 4096
#: Messages left out one at a time; then all that anybody waits for at once.
_ONE_BY_ONE = 20
_MOST_REPAIRS = 40


@dataclass(frozen=True)
class Settled:
    """A proven program, the calls it leaves out, and what it takes for granted, in words."""

    program: Program
    left_out: tuple[LeftOut, ...]
    notes: tuple[str, ...]


def settled(
    loaded: Loaded, world: World, *, what: str = "trace", noise: Noise | None = None
) -> Settled:
    """Return the program of two loaded ranges, proven to end.

    Executed as if nothing was buffered it should end. If not, blocking sends of up to
    EAGER_BYTES return at once, then all of them (many programs only end because the library
    buffers; ``notes`` say so). If that does not help either, calls are left out (``left_out``).
    Errors: P3SError names the events where that does not help.
    """
    excluded = (np.zeros(len(loaded.steps), dtype=bool), np.zeros(len(loaded.steps), dtype=bool))

    every = (-1, EAGER_BYTES, MAX_MESSAGE_BYTES)

    def attempt(buffered: Sequence[int]) -> tuple[Built, Verdict, int]:
        for nbytes in buffered:
            made = build_program(
                loaded, world, what=what, noise=noise, buffered_bytes=nbytes, excluded=excluded
            )
            verdict = check(made.program)
            if verdict.uneven or verdict.faults:
                raise P3SError(
                    f"{_title(loaded)} cannot be replayed: {describe(verdict)}; this "
                    "is a fault of the plan"
                )
            if verdict.ends:
                break
        return made, verdict, nbytes

    for repair in range(_MOST_REPAIRS):
        made, verdict, nbytes = attempt(every[-1:] if repair else every)
        if verdict.ends and repair:  # what was left out may have been all that needed buffers
            made, verdict, nbytes = attempt(every)
        if verdict.ends:
            left_out = _left_out(loaded, made.traffic)
            return Settled(made.program, left_out, _notes(loaded, nbytes))
        sends = _culprits(loaded, world, verdict, several=repair >= _ONE_BY_ONE)
        if not sends:
            raise P3SError(
                f"{_title(loaded)} cannot be replayed: {_events(loaded, verdict)} would wait for "
                "ever; the model has the order of calls wrong"
            )
        excluded[0][sends] = True
    raise P3SError(
        f"{_title(loaded)} cannot be replayed: too many calls would wait for ever; the "
        "model has the order of calls wrong"
    )


def _title(loaded: Loaded) -> str:
    return f"section {loaded.section} on nodes {loaded.pair[0]} and {loaded.pair[1]}"


def _notes(loaded: Loaded, nbytes: int) -> tuple[str, ...]:
    if nbytes < 0:
        return ()
    size = f"of up to {nbytes} B" if nbytes < MAX_MESSAGE_BYTES else "of any size"
    return (f"{_title(loaded)}: relies on the library to buffer blocking sends {size}",)


def _local(loaded: Loaded, step: int) -> int:
    """Return the loaded step of a step of the section."""
    found = np.flatnonzero(loaded.step == step)
    return int(found[0]) if step >= 0 and len(found) else -1


def _culprits(loaded: Loaded, world: World, verdict: Verdict, several: bool) -> list[int]:
    """Return the sends to leave out: of the first message between loaded ranks, or of all.

    A black hole never waits for anything but its own measured rank, so it is never to blame.
    """
    found: list[int] = []
    roles = [process.role for process in world.processes]
    for entry in verdict.stuck:
        for missing in entry.waits_for:
            step = _local(loaded, missing.step)
            if (
                step >= 0
                and roles[missing.source] == MEASURED
                and roles[missing.target] == MEASURED
            ):
                found.append(step)
                if not several:
                    return found
    return found


def _events(loaded: Loaded, verdict: Verdict) -> str:
    """Name the first events that wait: rank, call, peer, tag, bytes."""
    names = [
        _name(loaded, _local(loaded, entry.step))
        for entry in verdict.stuck
        if _local(loaded, entry.step) >= 0
    ]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return "; ".join(names[:4]) + more if names else describe(verdict)


def _name(loaded: Loaded, i: int) -> str:
    steps = loaded.steps
    words = [f"rank {steps.rank[i]} {steps.calls[steps.call[i]]}"]
    if steps.peer[i] >= 0:
        words.append(f"peer {steps.peer[i]} tag {steps.tag[i]} {steps.bytes[i]} B")
    elif steps.done_start[i + 1] > steps.done_start[i]:
        first = int(steps.done[steps.done_start[i]])
        words.append(
            f"for {steps.calls[steps.call[first]]} peer {steps.peer[first]} "
            f"tag {steps.tag[first]} {steps.bytes[first]} B"
        )
    return " ".join(words)


def _left_out(loaded: Loaded, traffic: Traffic) -> tuple[LeftOut, ...]:
    """Return the calls that do not run, by call and reason."""
    steps = loaded.steps
    why = np.maximum(traffic.why_send, traffic.why_receive)
    found = []
    for reason in Why:
        here = np.flatnonzero(why == reason) if reason != Why.RUNS else np.zeros(0, dtype=int)
        for call in np.unique(steps.call[here]).tolist():
            mine = here[steps.call[here] == call]
            rows: Ints = np.unique(steps.row[mine])
            found.append(
                LeftOut(
                    steps.calls[call],
                    WHY_TEXT[reason],
                    float(steps.weight[mine].sum()),
                    rows[rows >= 0],
                )
            )
    return tuple(found)


def refuse_unproven(program: Program, what: str) -> None:
    """Raise P3SError when a program that needs no repair would not end."""
    verdict = check(program)
    if not verdict.ends:
        raise P3SError(
            f"the program of {what} would never end: {describe(verdict)}; this is a "
            "fault of the plan"
        )
