"""What the tables of MPI calls are made of: one row for one wrapper."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wrapper:
    """One MPI call: its arguments and the C text around the real call."""

    args: str
    after: str = ""
    before: str = ""
    always: str = ""
    passed: dict[str, str] = field(default_factory=dict)
    nested: str = ""  # before the real call, if it is made inside another one
    traced: bool = True  # False: bookkeeping only, the wrapper does not enter


#: A request that a call has made: what its handle once meant is forgotten.
POSTED = "p3s_posted(P3S_HANDLE(*request));"


def names(text: str) -> tuple[str, ...]:
    """Return the names in a text."""
    return tuple(text.split())
