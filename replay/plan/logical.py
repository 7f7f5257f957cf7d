"""The logical order of steps: who can be done before whom, whatever anything costs (Lamport)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from replay.steps import RECEIVES, SENDS, WAITS, Ints, Op, Steps

#: Sweeps over all ranks; a longer chain of dependencies is cut off here, which only makes the
#: number of messages on the way less exact.
MAX_SWEEPS = 100


@dataclass(frozen=True)
class Messages:
    """Messages of some steps, one entry per message.

    ``sent``: the step that sends; ``received``: the step that posts the receive; ``taken``: the
    step that completes the receive (-1: none does), ``done``: the one that completes the send.
    ``half``: 1 where the receive is the second half of a SENDRECV.
    """

    sent: Ints
    received: Ints
    taken: Ints
    done: Ints


def messages(steps: Steps) -> Messages:
    """Return the messages between the ranks of these steps."""
    completer = completers(steps)
    sent = np.flatnonzero(steps.is_op(*SENDS) & (steps.to >= 0))
    received = steps.to[sent]
    blocking_recv = steps.is_op(Op.RECV, Op.SENDRECV)[received]
    blocking_send = steps.is_op(Op.SEND, Op.SSEND, Op.BSEND, Op.SENDRECV)[sent]
    return Messages(sent, received, np.where(blocking_recv, received, completer[received]),
                    np.where(blocking_send, sent, completer[sent]))


def completers(steps: Steps) -> Ints:
    """Return for each step the one that completes its request, -1 where none does."""
    found = np.full(len(steps), -1, dtype=np.int64)
    found[steps.done] = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    return found


def logical_time(steps: Steps, found: Messages | None = None) -> Ints:
    """Return the logical time of every step, in ticks from the start of the section.

    A step comes at least one tick after the one before it on its rank, and one that completes a
    receive at least one tick after the send (thesis A.4.2 counts receives a tick earlier).
    """
    total = len(steps)
    if total == 0:
        return np.zeros(0, dtype=np.int64)
    found = messages(steps) if found is None else found
    lengths = np.diff(steps.start)
    place = np.arange(total) - np.repeat(steps.start[:-1], lengths)
    group = np.repeat(np.arange(len(lengths)), lengths)
    use = found.taken >= 0
    order = np.argsort(found.taken[use], kind="stable")
    source, target = found.sent[use][order], found.taken[use][order]
    if len(target) == 0:
        return place
    first = np.flatnonzero(np.concatenate(([True], target[1:] != target[:-1])))
    target = target[first]
    # slack = time - place never falls along a rank, so a running maximum keeps the order.
    # Ranks are told apart by an offset that no slack reaches.
    offset = group * np.int64(4 * total + 4)
    slack = offset.copy()
    for _ in range(MAX_SWEEPS):
        at_least = np.maximum.reduceat(slack[source] - offset[source] + place[source], first)
        wanted = np.minimum(at_least + 1 - place[target], 4 * total) + offset[target]
        if (wanted <= slack[target]).all():
            break
        slack[target] = np.maximum(slack[target], wanted)
        slack = np.maximum.accumulate(slack)
    return np.asarray(slack - offset + place, dtype=np.int64)


def is_wait(steps: Steps) -> Ints:
    """Return the numbers of steps that complete requests."""
    return np.flatnonzero(steps.is_op(*WAITS))


__all__ = ["MAX_SWEEPS", "Messages", "RECEIVES", "completers", "is_wait", "logical_time",
           "messages"]
