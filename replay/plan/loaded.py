"""What two loaded ranges do: the steps of their ranks, and what is known of absent partners."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from p3s.base.arrays import Bools, Floats, Ints, starts
from p3s.program.mapping import RankMap
from p3s.replay.plan.classes import Whole
from p3s.replay.plan.executed import fits
from p3s.simulate.steps import PLAIN, Op, Steps, of_ranks


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
    ``call_class``: class of the call. -1: none.
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
    call_class: Ints


def restrict(steps: Steps, ranks: Ints) -> tuple[Steps, Ints]:
    """Return the steps of some ranks, and their numbers among all."""
    is_kept = np.repeat(np.isin(steps.ranks, ranks), np.diff(steps.start))
    return of_ranks(steps, ranks), np.flatnonzero(is_kept)


def load(
    whole: Whole, mapping: RankMap, pair: tuple[int, int], begin_ns: Floats | None = None
) -> Loaded:
    """Return what the ranks of two nodes do (of one, if the pair is twice the same).

    ``begin_ns``: when each full step begins in the full run.
    """
    ranks = np.unique(np.concatenate([mapping.ranks_of(node) for node in pair]))
    full = whole.full
    loaded_steps, where = restrict(full, ranks)
    original, given_where = (
        (loaded_steps, where) if full is whole.given else restrict(whole.given, ranks)
    )
    stays = np.zeros(len(whole.given) + 1, dtype=bool)
    stays[given_where] = fits(original, ranks)
    steps = _without_foreign(loaded_steps, stays[whole.origin[where]])
    steps, step, origin = _with_direct(
        steps, where, whole.origin[where], original, given_where, stays[given_where]
    )
    direct = steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)
    source, to = (np.where(direct, -1, column[step]) for column in (full.source, full.to))
    own_bytes = np.where(full.op[step] == Op.SENDRECV, full.bytes2[step], full.bytes[step])
    arrives = np.where(source >= 0, full.bytes[source], own_bytes)
    begin = np.append(np.full(len(full), np.nan) if begin_ns is None else begin_ns, np.nan)
    calls = np.where(steps.op == Op.REST, -1, whole.call_of[step])
    return Loaded(
        section=whole.section,
        pair=pair,
        steps=steps,
        step=step,
        origin=origin,
        side=np.where(mapping.node_of[steps.rank] == pair[0], 0, 1),
        slot=mapping.slot_of[steps.rank],
        arrives=np.where(direct, steps.bytes, arrives),
        sends_to_me_ns=begin[source],
        takes_mine_ns=begin[to],
        message_class=np.where(direct, -1, whole.message_of[step]),
        call_class=np.where(direct, whole.direct_of[origin], calls),
    )


def _without_foreign(steps: Steps, stays: Bools) -> Steps:
    """Iteration collectives that neither stay nor were expanded into computation."""
    foreign = steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE) & ~stays
    if not foreign.any():
        return steps
    keep = ~foreign[steps.done]
    return replace(
        steps,
        op=np.where(foreign, int(Op.REST), steps.op),
        done=steps.done[keep],
        done_start=starts(keep)[steps.done_start],
    )


def _with_direct(
    steps: Steps, step: Ints, origin: Ints, original: Steps, given_where: Ints, stays: Bools
) -> tuple[Steps, Ints, Ints]:
    """Put the collectives that stay in the place of their messages; the same of both columns.

    ``original``: the ranks' steps as given, ``given_where``: their numbers, ``stays``: which stay.
    """
    direct = np.flatnonzero(stays)  # numbers in `original`
    if len(direct) == 0:
        return steps, step, origin
    is_replaced = np.isin(origin, given_where[direct])
    order = np.maximum.accumulate(origin)
    anchor = np.searchsorted(order, given_where[direct], "left")
    kept_steps = np.flatnonzero(~is_replaced)
    rank = np.concatenate((steps.rank[kept_steps], original.rank[direct]))
    place = np.lexsort((np.concatenate((2 * kept_steps + 1, 2 * anchor)), rank))
    # New number of every old step, and of every collective that stays.
    new = np.empty(len(place), dtype=np.int64)
    new[place] = np.arange(len(place))
    of_old = np.full(len(steps) + 1, -1, dtype=np.int64)
    of_old[kept_steps] = new[: len(kept_steps)]
    of_direct = np.full(len(original), -1, dtype=np.int64)
    of_direct[direct] = new[len(kept_steps) :]

    names = list(dict.fromkeys((*steps.calls, *original.calls)))
    columns: dict[str, Any] = {}
    for name in PLAIN:
        mine, other = getattr(steps, name), getattr(original, name)[direct]
        if name == "call":
            other = np.array([names.index(call) for call in original.calls] or [0])[other]
        columns[name] = np.concatenate((mine[kept_steps], other))[place]
    none = np.full(len(direct), -1, dtype=np.int64)
    ranks = steps.ranks
    lengths = np.bincount(np.searchsorted(ranks, rank), minlength=len(ranks))
    waits, targets = _requests(steps, origin, original, given_where, of_old, of_direct)
    sort = np.lexsort((targets, waits))
    counts = np.bincount(waits, minlength=len(place))
    merged = replace(
        steps,
        start=starts(lengths),
        calls=tuple(names),
        members={**original.members, **steps.members},
        done=targets[sort],
        done_start=starts(counts),
        to=np.concatenate((of_old[steps.to[kept_steps]], none))[place],
        source=np.concatenate((of_old[steps.source[kept_steps]], none))[place],
        **columns,
    )
    first = np.full(len(direct), -1, dtype=np.int64)
    begun = np.minimum(anchor, len(steps) - 1)
    same_call = origin[begun] == given_where[direct]
    first[same_call] = step[begun[same_call]]
    return (
        merged,
        np.concatenate((step[kept_steps], first))[place],
        np.concatenate((origin[kept_steps], given_where[direct]))[place],
    )


def _requests(
    steps: Steps, origin: Ints, original: Steps, given_where: Ints, of_old: Ints, of_direct: Ints
) -> tuple[Ints, Ints]:
    """Return which step waits for which, both by their new numbers."""
    by = np.repeat(np.arange(len(steps)), np.diff(steps.done_start))
    waits, targets = of_old[by], of_old[steps.done]
    real = (waits >= 0) & (targets >= 0)
    # Requests of collectives that stay: what waits for them is known from the section itself.
    mine = np.repeat(np.arange(len(original)), np.diff(original.done_start))
    use = of_direct[original.done] >= 0
    last = np.full(len(original), -1, dtype=np.int64)
    waiting = np.flatnonzero(steps.is_op(Op.WAIT, Op.WAITANY, Op.WAITSOME))
    original_waits = np.searchsorted(given_where, origin[waiting])
    last[original_waits] = of_old[waiting]
    more_waits, more = last[mine[use]], of_direct[original.done[use]]
    is_waited = more_waits >= 0
    pairs = np.unique(
        np.stack(
            (
                np.concatenate((waits[real], more_waits[is_waited])),
                np.concatenate((targets[real], more[is_waited])),
            )
        ),
        axis=1,
    )
    return pairs[0], pairs[1]
