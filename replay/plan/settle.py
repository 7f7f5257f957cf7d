"""Programs that are proven to end: what stands in the way is buffered, left out, or refused."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Ints
from p3s.base.errors import P3SError
from p3s.replay.plan.build import build_program
from p3s.replay.plan.build_traffic import MAX_MESSAGE_BYTES, WHY_TEXT, Traffic, Why
from p3s.replay.plan.check import Verdict, check, describe
from p3s.replay.plan.loaded import Loaded
from p3s.replay.plan.noise import Noise
from p3s.replay.plan.program import Program
from p3s.replay.plan.world import MEASURED, World
from p3s.simulate.steps import LeftOut

#: Blocking sends of up to this many bytes are taken to be buffered by every MPI library.
EAGER_BYTES = 4096
#: Messages left out at most, one after the other.
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
    every = (-1, EAGER_BYTES, MAX_MESSAGE_BYTES)
    excluded = (np.zeros(len(loaded.steps), dtype=bool), np.zeros(len(loaded.steps), dtype=bool))
    for _ in range(_MOST_REPAIRS):
        for nbytes in every:
            made = build_program(
                loaded, world, what=what, noise=noise, buffered_bytes=nbytes, excluded=excluded
            )
            verdict = check(made.program)
            if verdict.ends:
                notes = _notes(loaded, nbytes)
                return Settled(made.program, _left_out(loaded, made.traffic), notes)
        sends = _culprits(loaded, world, verdict)
        if not sends or verdict.uneven or verdict.faults:
            break
        excluded[0][sends] = True
    raise P3SError(
        f"{_title(loaded)} cannot be replayed: {describe(verdict)} would wait for ever; the model "
        "has the order of calls wrong"
    )


def _title(loaded: Loaded) -> str:
    return f"section {loaded.section} on nodes {loaded.pair[0]} and {loaded.pair[1]}"


def _notes(loaded: Loaded, nbytes: int) -> tuple[str, ...]:
    if nbytes < 0:
        return ()
    size = f"of up to {nbytes} B" if nbytes < MAX_MESSAGE_BYTES else "of any size"
    return (f"{_title(loaded)}: relies on the library to buffer blocking sends {size}",)


def _culprits(loaded: Loaded, world: World, verdict: Verdict) -> list[int]:
    """Return the send to leave out: that of the first message that is waited for; none: no such.

    A black hole never waits for anything but its own measured rank, so it is never to blame.
    """
    measured = [process.role == MEASURED for process in world.processes]
    for entry in verdict.stuck:
        for missing in entry.waits_for:
            local = np.flatnonzero(loaded.step == missing.step)
            if len(local) and measured[missing.source] and measured[missing.target]:
                return [int(local[0])]
    return []


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
