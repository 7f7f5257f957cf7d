"""Classes of messages and of calls: those that cost the same, as far as the replay can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.program.mapping import RankMap
from p3s.program.order.pairs import codes_of
from p3s.replay.plan.executed import Transit, completers, fits, logical_time
from p3s.simulate.steps import RECEIVES, SENDS, WAITS, Op, Steps

SEND = "send"
RECV = "recv"
COMPLETION = "completion"
COLLECTIVE = "collective"
KINDS = (SEND, RECV, COMPLETION, COLLECTIVE)

#: So many different sizes are kept apart; when there are more, neighbours share a class.
MOST_SIZES = 48
#: A size in a class is this far from that of the class at most.
SIZE_TOLERANCE = 0.05
#: What a message costs beside its bytes, in bytes.
_MESSAGE_BYTES = 4096
#: Nodes that are loaded at a time.
_LOADED = 2


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


@dataclass(frozen=True)
class Whole:
    """A section (by number) with all its ranks, and the classes of its steps (-1: none).

    ``given``: steps of the section; ``full``: those with all collectives expanded; ``origin``:
    given step of each of these. ``message_of``, per full step: class of the message that it sends
    or receives (of a SENDRECV: sends); ``call_of``: of the call. ``direct_of``, per given step:
    call class of a collective whose members are all on two nodes, so that it can be executed as
    such. ``transit``: what is on its way between nodes.
    """

    section: int
    given: Steps
    full: Steps
    origin: Ints
    message_of: Ints
    call_of: Ints
    direct_of: Ints
    transit: Transit


@dataclass(frozen=True)
class SectionClasses:
    """The classes of some sections, and the sections; ``notes``: what was merged."""

    messages: tuple[MessageClass, ...]
    calls: tuple[CallClass, ...]
    wholes: tuple[Whole, ...]
    notes: tuple[str, ...]


def node_loads(sent_from: Ints, sent: Ints, taken_at: Ints) -> Ints:
    """Return how many messages are on their way from the node that sends each of these.

    ``sent_from``: node; ``sent``, ``taken_at``: ticks, the message is on its way in between. The
    larger of the numbers when it starts and just before it is taken.
    """
    if len(sent) == 0:
        return np.zeros(0, dtype=np.int64)
    taken_at = np.maximum(taken_at, sent + 1)
    span = np.int64(max(int(taken_at.max()), 0) + 2)
    begin, end = np.sort(sent_from * span + sent), np.sort(sent_from * span + taken_at)

    def on_the_way(tick: Ints) -> Ints:
        key = sent_from * span + tick
        return np.asarray(
            np.searchsorted(begin, key, "right") - np.searchsorted(end, key, "right"),
            dtype=np.int64,
        )

    return np.maximum(on_the_way(sent), on_the_way(taken_at - 1))


def power_of_two(values: Ints) -> Ints:
    """Round up to a power of two."""
    safe = np.maximum(values, 1)
    return np.asarray(2 ** np.ceil(np.log2(safe)).astype(np.int64), dtype=np.int64)


def size_bins(sizes: Ints, most: int = MOST_SIZES) -> tuple[Ints, Ints]:
    """Return the class of each of these ascending sizes, and the size of each class.

    Nothing is merged up to ``most`` sizes; beyond, sizes within SIZE_TOLERANCE of the middle of
    their class.
    """
    if len(sizes) <= most:
        return np.arange(len(sizes)), sizes.copy()
    start, firsts = 0, []
    width = (1 + SIZE_TOLERANCE) / (1 - SIZE_TOLERANCE)
    while start < len(sizes):
        firsts.append(start)
        start = int(np.searchsorted(sizes, max(sizes[start] * width, sizes[start]), "right"))
    edges = np.array([*firsts, len(sizes)], dtype=np.int64)
    low, high = sizes[edges[:-1]], sizes[edges[1:] - 1]
    return np.repeat(np.arange(len(firsts)), np.diff(edges)), (low + high) // 2


def merge_sizes(parts: Sequence[Ints], subject: str) -> tuple[list[Ints], tuple[str, ...]]:
    """Return the sizes of all sections, those of one class alike, and a note on it, if any."""
    sizes = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *parts]))
    code, middle = size_bins(sizes)
    note = (
        f"{len(sizes)} sizes of {subject} are taken together in {len(middle)} classes, sizes"
        f" within {100 * SIZE_TOLERANCE:.0f} % of their class"
    )
    alike = [middle[code[np.searchsorted(sizes, part)]] for part in parts]
    return alike, () if len(middle) == len(sizes) else (note,)


def classify(
    sections: Sequence[Steps],
    full: Sequence[Steps],
    origins: Sequence[Ints],
    mapping: RankMap,
    distance: Ints,
) -> SectionClasses:
    """Give the messages and calls of every section their classes.

    ``sections``: steps as given; ``full``, ``origins``: as of Whole (``full[i]``'s steps may be
    those of ``sections[i]``). ``distance``: hops, nodes x nodes.
    """
    if not full:
        return SectionClasses((), (), (), ())
    drafts = [_Draft(steps, mapping, distance) for steps in full]
    sizes, notes = merge_sizes([draft.bytes for draft in drafts], "messages")
    message_keys = [
        np.stack((size, d.distance, d.load)) for size, d in zip(sizes, drafts, strict=True)
    ]
    unique, codes, events = _code_columns(message_keys, [d.weight for d in drafts])
    message_classes = tuple(
        MessageClass(int(b), int(d), int(load), float(e))
        for (b, d, load), e in zip(unique.T.tolist(), events.tolist(), strict=True)
    )
    names: dict[str, int] = {}
    message_of, parts = [], []
    for draft, steps, code in zip(drafts, full, codes, strict=True):
        one, two = draft.spread(code)
        message_of.append(one)
        parts.append(draft.calls(steps, unique, one, two, names))
    parts += [_direct(steps, mapping, distance, names) for steps in sections]
    both, rows_of = (*full, *sections), [rows for rows, _ in parts]
    call_keys = [keys for _, keys in parts]
    call_weights = [steps.weight[rows] for steps, rows in zip(both, rows_of, strict=True)]
    call_sizes, call_notes = merge_sizes([keys[2] for keys in call_keys], "calls")
    for keys, size in zip(call_keys, call_sizes, strict=True):
        keys[2] = size
    unique_calls, call_codes, call_events = _code_columns(call_keys, call_weights)
    texts = list(names)
    calls = tuple(
        CallClass(texts[call], KINDS[kind], nbytes, far, load, requests, members, float(events))
        for (call, kind, nbytes, far, load, requests, members), events in zip(
            unique_calls.T.tolist(), call_events.tolist(), strict=True
        )
    )
    class_of = [
        _place_codes(len(steps), rows, code)
        for steps, rows, code in zip(both, rows_of, call_codes, strict=True)
    ]
    columns = zip(
        range(len(sections)),
        sections,
        full,
        origins,
        message_of,
        class_of[: len(full)],
        class_of[len(full) :],
        [draft.transit() for draft in drafts],
        strict=True,
    )
    return SectionClasses(
        message_classes, calls, tuple(Whole(*each) for each in columns), notes + call_notes
    )


def worth_measuring(messages: Sequence[MessageClass], most: int) -> Ints:
    """Return the numbers of at most ``most`` classes that tell the cost of all of them.

    Of each distance the smallest and the largest size, then what moves the most; a message counts
    as its bytes and some more for being one. The others lie between them.
    """
    if len(messages) <= most:
        return np.arange(len(messages))
    size = np.array([cls.bytes for cls in messages], dtype=np.float64)
    far = np.array([cls.distance for cls in messages])
    amount = np.array([cls.events for cls in messages]) * (size + _MESSAGE_BYTES)
    ends = []
    for distance in np.unique(far).tolist():
        mine = np.flatnonzero(far == distance)
        ends += [int(mine[np.argmin(size[mine])]), int(mine[np.argmax(size[mine])])]
    amount[ends] = np.inf
    return np.sort(np.argsort(-amount, kind="stable")[:most])


def _place_codes(total: int, rows: Ints, code: Ints) -> Ints:
    codes = np.full(total, -1, dtype=np.int64)
    codes[rows] = code
    return codes


def _names(steps: Steps, names: dict[str, int]) -> Ints:
    """Return the numbers of a section's call names in a list common to all sections."""
    return np.array(
        [names.setdefault(name, len(names)) for name in steps.calls] or [0], dtype=np.int64
    )


def _code_columns(
    keys: Sequence[Ints], weights: Sequence[Floats]
) -> tuple[Ints, list[Ints], Floats]:
    """Return the different columns of all keys, the number of each column, and summed weights."""
    together = np.concatenate(keys, axis=1)
    _, first, code = np.unique(codes_of(list(together)), return_index=True, return_inverse=True)
    code = code.reshape(-1)
    all_weights = np.concatenate(list(weights))
    events = np.bincount(code, weights=all_weights, minlength=len(first))
    cuts = np.cumsum([key.shape[1] for key in keys])[:-1]
    return together[:, first], np.split(code, cuts), events.astype(np.float64)


class _Draft:
    """Messages of one section: bytes, distance, load and weight of each."""

    def __init__(self, steps: Steps, mapping: RankMap, distance: Ints) -> None:
        self.steps, rank = steps, steps.rank
        sends = self.sends = np.flatnonzero(steps.is_op(*SENDS) & (steps.to >= 0))
        receives = self.receives = steps.to[sends]
        self.bytes = steps.bytes[sends]
        source, target = mapping.node_of[rank[sends]], mapping.node_of[rank[receives]]
        self.distance = distance[source, target]
        self.weight = steps.weight[sends]
        begin, end = logical_time(steps)
        self.end = int(end.max()) if len(steps) else 1
        self.sent = begin[sends]
        # A message is taken by its receive, or by what completes that; -1: nothing does.
        blocking = steps.is_op(Op.RECV, Op.SENDRECV)[receives]
        taker = np.where(blocking, receives, completers(steps)[receives])
        taken_at = np.where(taker >= 0, end[np.maximum(taker, 0)], self.end)
        self.taken = np.maximum(taken_at, self.sent + 1)
        self.source, self.target = source, target
        self.load = np.ones(len(source), dtype=np.int64)
        away = source != target
        self.load[away] = power_of_two(node_loads(source[away], self.sent[away], self.taken[away]))

    def transit(self) -> Transit:
        """Return the messages that are on their way between nodes."""
        away = self.source != self.target
        return Transit(
            self.source[away],
            self.target[away],
            self.sent[away],
            self.taken[away],
            self.bytes[away],
            self.end,
        )

    def spread(self, code: Ints) -> tuple[Ints, Ints]:
        """Return the class of the message of each step, and of the second half of SENDRECVs."""
        one = np.full(len(self.steps), -1, dtype=np.int64)
        two = np.full(len(self.steps), -1, dtype=np.int64)
        both = self.steps.op[self.receives] == Op.SENDRECV
        one[self.receives[~both]] = code[~both]
        two[self.receives[both]] = code[both]
        one[self.sends] = code
        return one, two

    def calls(
        self, steps: Steps, classes: Ints, one: Ints, two: Ints, names: dict[str, int]
    ) -> tuple[Ints, Ints]:
        """Return the steps that are calls, and (name, kind, bytes, distance, load, requests,
        members) of each."""
        total = len(steps)
        # Without a partner among the steps: its own bytes, distance and load not known.
        columns = np.concatenate((classes, np.zeros((3, 1), dtype=np.int64)), axis=1)
        nbytes = np.where(one >= 0, columns[0][one], steps.bytes)
        far, load = columns[1][one], np.maximum(columns[2][one], 1)
        far = np.where(two >= 0, np.maximum(far, columns[1][two]), far)
        load = np.where(two >= 0, np.maximum(load, columns[2][two]), load)
        requests = np.zeros(total, dtype=np.int64)
        members = np.zeros(total, dtype=np.int64)
        kind = np.full(total, -1, dtype=np.int64)
        kind[steps.is_op(*RECEIVES)] = KINDS.index(RECV)
        kind[steps.is_op(*SENDS)] = KINDS.index(SEND)
        collective = steps.is_op(Op.COLLECTIVE, Op.ICOLLECTIVE)
        kind[collective] = KINDS.index(COLLECTIVE)
        sizes = {comm: len(ranks) for comm, ranks in steps.members.items()}
        for comm in np.unique(steps.comm[collective]).tolist():
            members[collective & (steps.comm == comm)] = sizes.get(comm, steps.n)
        waits = np.flatnonzero(steps.is_op(*WAITS))
        if len(waits):
            kind[waits] = KINDS.index(COMPLETION)
            listed = np.diff(steps.done_start)
            # Only waits have requests, so those of one wait follow each other in `done`.
            sums = np.concatenate(([0], np.cumsum(nbytes[steps.done])))
            total_bytes = np.diff(sums[steps.done_start])[waits]
            takes = np.where(
                steps.op[waits] == Op.WAIT,
                listed[waits],
                np.minimum(np.maximum(steps.number[waits], 1), listed[waits]),
            )
            share = takes / np.maximum(listed[waits], 1)
            nbytes = nbytes.copy()
            nbytes[waits] = np.rint(total_bytes * share).astype(np.int64)
            requests[waits] = takes
            waits_with_list = waits[listed[waits] > 0]
            if len(waits_with_list):
                begin = steps.done_start[waits_with_list]
                far[waits_with_list] = np.maximum.reduceat(far[steps.done], begin)
                load[waits_with_list] = np.maximum.reduceat(load[steps.done], begin)
        rows = np.flatnonzero(kind >= 0)
        keys = np.stack(
            (
                _names(steps, names)[steps.call[rows]],
                kind[rows],
                nbytes[rows],
                far[rows],
                load[rows],
                requests[rows],
                members[rows],
            )
        )
        return rows, keys.astype(np.int64)


def _direct(
    steps: Steps, mapping: RankMap, distance: Ints, names: dict[str, int]
) -> tuple[Ints, Ints]:
    """Return the collectives whose members are on two nodes at most, and keys as _Draft.calls."""
    collective = np.flatnonzero(fits(steps, steps.ranks))
    comms = steps.comm[collective]
    near: dict[int, tuple[int, int]] = {}
    for comm in np.unique(comms).tolist():
        ranks = steps.members[comm]
        nodes = np.unique(mapping.node_of[ranks])
        if len(nodes) <= _LOADED:
            near[comm] = (int(distance[nodes[0], nodes[-1]]), len(ranks))
    rows = collective[np.isin(comms, list(near))] if near else collective[:0]
    facts = np.array([near[comm] for comm in steps.comm[rows].tolist()], dtype=np.int64)
    far, members = facts.reshape(-1, 2).T
    call, one = _names(steps, names)[steps.call[rows]], np.ones(len(rows), dtype=np.int64)
    kind = one * KINDS.index(COLLECTIVE)
    return rows, np.stack((call, kind, steps.bytes[rows], far, one, 0 * one, members))
