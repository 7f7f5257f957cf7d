"""Put sends ahead where ranks would otherwise wait for each other for ever.

A model's order of events need not be one that can be executed: that of a program whose order
differs from run to run, for one. Where all ranks wait, a send that one of them waits for, and that
its sender would only come to later, is moved before the call that the sender waits in.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque

import numpy as np

from p3s.base.errors import P3SError
from p3s.base.text import plural
from p3s.simulate.network import rough_network
from p3s.simulate.steps import REQUESTS, SENDS, WAITS, Op, Steps, select_steps

_SENDS, _WAITS = frozenset(int(op) for op in SENDS), frozenset(int(op) for op in WAITS)
_NONBLOCKING = frozenset(int(op) for op in REQUESTS | {Op.BSEND, Op.REST})
#: Moved sends, at most: beyond that the order is of no use.
_MOST = 100_000
#: Of more steps nothing is said of whether they can be executed.
_CHECKED = 2_000_000


def moved_earlier(number: int) -> str:
    """Say how many sends were moved so that all ranks come to their end."""
    return (
        f"{plural(number, 'send')} {'is' if number == 1 else 'are'} made earlier than in the "
        "order of the trace, in which ranks would wait for each other for ever"
    )


def unstuck(steps: Steps) -> tuple[Steps, int]:
    """Return steps that can be executed to the end, and how many sends were moved for it.

    Sends are taken to return at once. Where moving sends does not help, the steps are returned as
    they are.
    """
    if ends(steps):
        return steps, 0
    moves = _Execution(steps).run()
    if not moves:
        return steps, 0
    moved = _reorder_steps(steps, moves)
    return (moved, len(moves)) if ends(moved) else (steps, 0)


def endless(steps: Steps) -> tuple[str, ...]:
    """Say that ranks wait for each other for ever, where they do; nothing of very many steps."""
    if len(steps) > _CHECKED or ends(steps):
        return ()
    return (
        "ranks wait for each other for ever: the order of events of the model "
        "cannot be executed, a simulator will not come to an end",
    )


def ends(steps: Steps) -> bool:
    """Tell whether all ranks come to their last step when sends return at once."""
    from p3s.simulate.packed import surely_end

    return surely_end(steps) or _ends_simulated(steps)


def _ends_simulated(steps: Steps) -> bool:
    """Tell the same whatever the steps are, with more time and memory."""
    from p3s.simulate.simulate import simulate

    network = rough_network(eager_bytes=math.inf, inside_eager_bytes=math.inf)
    try:
        simulate(steps, np.zeros(steps.n, dtype=np.int64), network)
    except P3SError:
        return False
    return True


class _Execution:
    """Executes steps one by one, as far as they go; ``before[u] = s``: move u before step s."""

    def __init__(self, steps: Steps) -> None:
        self.op, self.source = steps.op.tolist(), steps.source.tolist()
        self.start, self.ranks = steps.start.tolist(), steps.ranks.tolist()
        self.rank = np.repeat(np.arange(len(self.ranks)), np.diff(steps.start)).tolist()
        self.done, self.done_start = steps.done.tolist(), steps.done_start.tolist()
        self.number, self.comm = steps.number.tolist(), steps.comm.tolist()
        self.at = self.start[:-1]
        self.sent = [False] * len(steps)
        # each rank once: one that waits for many sends is tried again after every one of them
        self.waiting: dict[int, dict[int, None]] = defaultdict(dict)
        self.before: dict[int, int] = {}
        index = {rank: i for i, rank in enumerate(self.ranks)}
        self.members = {
            comm: [index[r] for r in them.tolist() if r in index]
            for comm, them in steps.members.items()
        }
        self.come: dict[tuple[int, int], set[int]] = defaultdict(set)
        self.calls: dict[tuple[int, int], int] = defaultdict(int)
        self.instance: dict[int, tuple[int, int]] = {}

    def run(self) -> list[tuple[int, int]]:
        """Return the moves (send, step that it goes before); none if they do not help."""
        ready = deque(range(len(self.ranks)))
        while True:
            while ready:
                self._advance(ready.popleft(), ready)
            stuck = [i for i in range(len(self.ranks)) if self.at[i] < self.start[i + 1]]
            if not stuck:
                return list(self.before.items())
            send = self._send_to_move(stuck)
            if send is None or len(self.before) >= _MOST:
                return []
            rank = self.rank[send]
            self.before[send] = self.at[rank]
            self._send(send, ready)

    def _send(self, step: int, ready: deque[int]) -> None:
        self.sent[step] = True
        ready.extend(self.waiting.pop(step, ()))

    def _advance(self, i: int, ready: deque[int]) -> None:
        while self.at[i] < self.start[i + 1]:
            step = self.at[i]
            op = self.op[step]
            if op in _SENDS and not self.sent[step]:
                self._send(step, ready)
            if op in (Op.COLLECTIVE, Op.ICOLLECTIVE) and step not in self.instance:
                self._arrive(i, step, ready)
            if op not in _NONBLOCKING:
                missing = self._missing(step)
                if missing:
                    for one in missing:
                        self.waiting[one][i] = None
                    return
            self.at[i] = step + 1

    def _arrive(self, i: int, step: int, ready: deque[int]) -> None:
        comm = self.comm[step]
        key = comm, self.calls[comm, i]
        self.calls[comm, i] += 1
        self.instance[step] = key
        self.come[key].add(i)
        if len(self.come[key]) >= len(self.members.get(comm, ())):
            ready.extend(self.waiting.pop(-1 - step, ()))
            for other in self.members.get(comm, ()):
                ready.append(other)

    def _open(self, step: int) -> list[int]:
        """Return what a request or receive waits for: a send, or -1 - step for a collective."""
        if self.op[step] in (Op.COLLECTIVE, Op.ICOLLECTIVE):
            key = self.instance[step]
            return [] if len(self.come[key]) >= len(self.members.get(key[0], ())) else [-1 - step]
        source = self.source[step]
        return [] if source < 0 or self.sent[source] else [source]

    def _missing(self, step: int) -> list[int]:
        """Return what must happen before a blocking step is over; empty: nothing."""
        if self.op[step] not in _WAITS:
            return self._open(step)
        listed = self.done[self.done_start[step] : self.done_start[step + 1]]
        missing = [one for request in listed for one in self._open(request)]
        if self.op[step] == Op.WAIT:
            return missing
        return missing if len(listed) - len(missing) < self.number[step] else []

    def _send_to_move(self, stuck: list[int]) -> int | None:
        """Return the send that is moved: of those in the circle the one closest to its turn."""
        index: dict[int, int] = {}
        path: list[tuple[int, int]] = []  # (rank, send or -1)
        i = stuck[0]
        while i not in index:
            index[i] = len(path)
            missing = self._missing(self.at[i])
            sends = [one for one in missing if one >= 0 and self.op[one] != Op.SENDRECV]
            if sends:
                send = min(sends, key=lambda s: s - self.at[self.rank[s]])
                path.append((i, send))
                i = self.rank[send]
                continue
            others = [j for one in missing if one < 0 for j in self._absent(-1 - one)] or [
                self.rank[one] for one in missing if one >= 0
            ]
            if not others:
                return None
            path.append((i, -1))
            i = others[0]
        circle = [send for _, send in path[index[i] :] if send >= 0]
        return min(circle, key=lambda s: s - self.at[self.rank[s]]) if circle else None

    def _absent(self, step: int) -> list[int]:
        key = self.instance[step]
        return [j for j in self.members.get(key[0], ()) if j not in self.come[key]]


def _reorder_steps(steps: Steps, moves: list[tuple[int, int]]) -> Steps:
    """Return the steps with some of them moved before others of the same rank."""
    key = np.arange(len(steps), dtype=np.float64)
    for k, (step, before) in enumerate(moves):
        key[step] = before - 1.0 + (k + 1.0) / (len(moves) + 1.0)
    return select_steps(steps, np.argsort(key, kind="stable"))
