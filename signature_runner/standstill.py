"""Says what the ranks of a run were in when it was ended, or they died."""

from __future__ import annotations

from collections.abc import Mapping

from p3s.capture.capture import Capture

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


def unfinished(captures: Mapping[int, Capture], said: str) -> str:
    """Return where the ranks of a run that took too long were, and what to do.

    said: the program's last words, which are why a rank is done while others wait for it: a Python
    program whose exception ends one rank waits for the others in MPI_Finalize.
    """
    inside: dict[str, list[int]] = {}
    for rank, capture in captures.items():
        where = _FINALIZE if capture.complete else last_call(capture)[2:] or "running"
        inside.setdefault(where, []).append(rank)
    done = inside.pop(_FINALIZE, [])
    parts = [_ranks(ranks, where) for where, ranks in list(inside.items())[:3]]
    if done and inside:
        words = f" ({said})" if said else ""
        who = "it was" if len(done) == 1 else "they were"
        told = ",".join([*parts, _ranks(done, _FINALIZE)])
        return f"{told}{words}; see why {who} done before the others"
    return (",".join(parts) + ";" if parts else "") + " give it more time or a smaller problem"


def _ranks(ranks: list[int], where: str) -> str:
    shown = ", ".join(map(str, ranks[:4])) + (", ..." if len(ranks) > 4 else "")
    return f" rank{'s' if len(ranks) > 1 else ''} {shown} {where}"
