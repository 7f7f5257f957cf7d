"""What two loaded ranges do: the steps of their ranks, and what is known of absent partners."""

from __future__ import annotations

from dataclasses import dataclass

from replay.steps import Floats, Ints, Steps


@dataclass(frozen=True)
class Loaded:
    """Steps of the ranks of a pair of ranges; every array has one entry per step of ``steps``.

    ``section``: number of the section; ``pair``: the two nodes of the full mapping. ``steps``
    holds the loaded ranks only; a collective stays one where all its members are loaded, else its
    messages are there. ``step``: number among the fully expanded steps of the section (of a
    collective that stayed: its first one). ``origin``: number among the section's own steps.
    ``side`` (0 or 1) and ``slot``: which measured process the step's rank is. ``arrives``: bytes
    of the message that a receive really gets. ``sends_to_me_ns``: when the absent partner sends
    what is received here; ``takes_mine_ns``: when it posts the receive of what is sent here (NaN:
    not known). ``message_class``: class of what a step sends, of a receive of what it receives;
    ``message_class2``: of the receive half of a SENDRECV. ``call_class``: class of the call. -1:
    none.
    """

    section: int
    pair: tuple[int, int]
    steps: Steps
    step: Ints
    origin: Ints
    side: Ints
    slot: Ints
    arrives: Ints
    sends_to_me_ns: Floats
    takes_mine_ns: Floats
    message_class: Ints
    message_class2: Ints
    call_class: Ints
