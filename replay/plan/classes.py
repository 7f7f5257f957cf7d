"""Classes of messages and of calls: those that cost the same, as far as the replay can tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MessageClass:
    """Messages of the same bytes over the same distance under the same load.

    ``distance``: 0 inside a node, else how many hops the two nodes are apart in the network
    (1: flat, not known). ``load``: how many messages share the sender's link to other nodes in
    the full run at that time, rounded up to a power of two; 1 inside a node. ``events``: how many
    messages of the run.
    """

    bytes: int
    distance: int
    load: int
    events: float


@dataclass(frozen=True)
class CallClass:
    """Calls of one name that move the same bytes over the same distance under the same load.

    ``bytes`` of a completion: of all messages that it completes (``requests`` of them).
    ``distance``: the largest of its messages. ``members``: of a collective, else 0. ``events``:
    how many calls of the run.
    """

    call: str
    kind: str
    bytes: int
    distance: int
    load: int
    requests: int
    members: int
    events: float
