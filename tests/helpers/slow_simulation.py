"""A plain simulator, one event after the other by time, that the fast one is compared with.

It shares no code with p3s/simulate: every begin of a call is an event, nobody runs ahead.
"""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from p3s.simulate.steps import RECEIVES, Op

BEGIN, BOTH, EGRESS, TRUNK, INGRESS, CHOICE = range(6)
SYNCHRONOUS = {Op.SSEND, Op.ISSEND, Op.START_SSEND}
STARTED_SENDS = {Op.ISEND, Op.ISSEND, Op.START_SEND, Op.START_SSEND}
STARTED_RECEIVES = {Op.IRECV, Op.START_RECV}


class Simulation:
    """All ranks of some steps on a network; ``run`` returns begin, end and waiting per step."""

    def __init__(
        self,
        steps: Any,
        node_of: Any,
        network: Any,
        distance: Any = None,
        collective_ns: Any = None,
        extra_ns: Any = None,
    ) -> None:
        self.s, self.node_of, self.net, self.distance = steps, node_of, network, distance
        self.extra = np.zeros(len(steps)) if extra_ns is None else extra_ns
        self.collective_ns = np.zeros(len(steps)) if collective_ns is None else collective_ns
        self.collective_ns = np.maximum(self.collective_ns + self.extra, 0)
        self.rank_of = [int(r) for r in steps.rank]
        self.last = {int(r): int(steps.start[i + 1]) for i, r in enumerate(steps.ranks)}
        size = self.size = len(steps)
        self.begin, self.end, self.waiting = ([math.nan] * size for _ in range(3))
        self.began: dict[int, float] = {}
        self.arrival: dict[int, float] = {}
        self.gone: dict[int, float] = {}
        self.rendezvous: set[int] = set()
        self.used: set[int] = set()
        self.inside: dict[int, int] = {}  # rank -> step that it is blocked in
        self.filled: dict[tuple[str, int], float] = {}
        self.heap: list[tuple[float, int, int]] = []
        self.turn: dict[tuple[int, int], int] = {}
        self.groups: dict[tuple[int, int], list[int]] = {}
        self.group_of: dict[int, tuple[int, int]] = {}
        self.over: dict[int, tuple[float, float]] = {}

    def path(self, a: int, b: int) -> Any:
        one, two = int(self.node_of[a]), int(self.node_of[b])
        hops = int(one != two) if self.distance is None else int(self.distance[one][two])
        return self.net.path(hops)

    def message(self, i: int) -> tuple[Any, float]:
        return self.path(self.rank_of[i], int(self.s.peer[i])), float(self.s.bytes[i])

    def push(self, ns: float, kind: int, what: int) -> None:
        heapq.heappush(self.heap, (ns, kind, what))

    def go_on(self, rank: int, after: int, ns: float) -> None:
        if after + 1 < self.last[rank]:
            self.push(ns + float(self.s.work_ns[after + 1]), BEGIN, after + 1)

    def run(self) -> tuple[Any, Any, Any]:
        for i, rank in enumerate(self.s.ranks):
            if self.s.start[i] < self.s.start[i + 1]:
                self.go_on(int(rank), int(self.s.start[i]) - 1, 0.0)
        while self.heap:
            ns, kind, what = heapq.heappop(self.heap)
            if kind == BEGIN:
                self.start(what, ns)
            elif kind == BOTH:
                self.both(what, ns)
            elif kind == EGRESS:
                self.egress(what, ns)
            elif kind == TRUNK:
                self.trunk(what % self.size, what // self.size, ns)
            elif kind == INGRESS:
                self.ingress(what, ns)
            elif self.inside.get(what) is not None:
                self.finish(what, ns)
        assert not self.inside, f"ranks {sorted(self.inside)} wait for ever"
        return tuple(np.array(column) for column in (self.begin, self.end, self.waiting))

    def start(self, i: int, ns: float) -> None:
        op, rank = Op(int(self.s.op[i])), self.rank_of[i]
        self.begin[i] = ns
        if op == Op.REST:
            self.close(i, ns, ns)
            return
        cost = self.net.post
        if op in STARTED_SENDS | {Op.SEND, Op.SSEND, Op.BSEND, Op.SENDRECV}:
            cost = self.send(i, op, ns)
        if op in RECEIVES:
            source = int(self.s.source[i])
            if source >= 0 and source != i and source in self.rendezvous:
                self.meet(source)
        if op in (Op.COLLECTIVE, Op.ICOLLECTIVE):
            self.join(i)
        if op in STARTED_SENDS | STARTED_RECEIVES | {Op.BSEND, Op.ICOLLECTIVE}:
            self.close(i, ns + cost, ns + cost)
            return
        self.inside[rank] = i
        self.finish(rank, ns)

    def send(self, i: int, op: Op, ns: float) -> float:
        if self.s.peer[i] < 0:
            return float(self.net.post)
        path, nbytes = self.message(i)
        meets = op in SYNCHRONOUS or (op != Op.BSEND and nbytes > path.eager_bytes)
        if self.s.to[i] < 0 or not meets:
            self.transfer(i, ns)
            return float(path.send.at(nbytes))
        self.rendezvous.add(i)
        if not math.isnan(self.begin[int(self.s.to[i])]):
            self.meet(i)
        return float(self.net.post)

    def meet(self, i: int) -> None:
        both = max(self.begin[i], self.begin[int(self.s.to[i])])
        if self.net.background:
            self.transfer(i, both)
        else:
            self.push(both, BOTH, i)

    def both(self, i: int, ns: float) -> None:
        blocking = self.s.op[i] in (Op.SEND, Op.SSEND, Op.SENDRECV)
        mine = i if blocking or i + 1 >= self.last[self.rank_of[i]] else i + 1
        later = ns
        for step in (mine, int(self.s.to[i])):
            last, known = self.last[self.rank_of[step]], step
            while known < last and self.end[known] < ns:
                known += 1
            if known < last:
                here = self.begin[known]
                if math.isnan(here):  # computing: its begin is already an event
                    here = next(t for t, kind, k in self.heap if kind == BEGIN and k == known)
                later = max(later, here)
        if later > ns:
            self.push(later, BOTH, i)
        else:
            self.transfer(i, ns)

    def transfer(self, i: int, ns: float) -> None:
        path, nbytes = self.message(i)
        self.began[i] = ns
        if path.linked and (math.isfinite(self.net.rate) or self.way(i)):
            self.push(ns, EGRESS, i)
        else:
            self.arrive(i, ns + self.taken(i))

    def taken(self, i: int) -> float:
        path, nbytes = self.message(i)
        return max(float(path.transfer.at(nbytes)) + float(self.extra[i]), 0)

    def way(self, i: int) -> list[tuple[str, int]]:
        """The limited links between switches that a message passes, found by going up both ways."""
        trunks = self.net.trunks
        if trunks is None:
            return []

        def above(node: int) -> list[int]:
            switches, switch = [], trunks.switch_of[node]
            while switch >= 0:
                switches.append(switch)
                switch = trunks.up[switch]
            return switches

        one = above(int(self.node_of[self.rank_of[i]]))
        other = above(int(self.node_of[int(self.s.peer[i])]))
        links = [("up", s) for s in one if s not in other]
        links += [("down", s) for s in reversed(other) if s not in one]
        return [link for link in links if math.isfinite(trunks.rate[link[1]])]

    def carries(self, link: tuple[str, int]) -> tuple[float, float]:
        if link[0] in ("out", "in"):
            return self.net.rate, self.net.burst
        return self.net.trunks.rate[link[1]], self.net.trunks.burst[link[1]]

    def bucket(self, link: tuple[str, int], ns: float, nbytes: float) -> tuple[float, float]:
        """When its last byte has passed, and when its first one is at the next link."""
        rate, burst = self.carries(link)
        filled = max(self.filled.get(link, -math.inf), ns) + nbytes / rate
        self.filled[link] = filled
        past = max(ns, filled - burst / rate)
        return past, max(ns, past - nbytes / rate)

    def egress(self, i: int, ns: float) -> None:
        _, nbytes = self.message(i)
        self.gone[i], first = self.bucket(("out", int(self.node_of[self.rank_of[i]])), ns, nbytes)
        self.on(i, 0, first)

    def on(self, i: int, hop: int, ns: float) -> None:
        if hop < len(self.way(i)):
            self.push(ns, TRUNK, hop * self.size + i)
        else:
            self.push(ns, INGRESS, i)

    def trunk(self, i: int, hop: int, ns: float) -> None:
        past, first = self.bucket(self.way(i)[hop], ns, self.message(i)[1])
        self.gone[i] = max(self.gone[i], past)
        self.on(i, hop + 1, first)

    def ingress(self, i: int, ns: float) -> None:
        path, nbytes = self.message(i)
        into = ("in", int(self.node_of[int(self.s.peer[i])]))
        here, _ = self.bucket(into, ns, nbytes)
        least = max(
            max(nbytes - burst, 0) / rate for rate, burst in map(self.carries, [into, *self.way(i)])
        )
        delay = max(max(here, self.gone[i]) - (self.began[i] + least), 0)
        self.arrive(i, self.began[i] + self.taken(i) + delay)

    def arrive(self, i: int, ns: float) -> None:
        self.arrival[i] = ns
        for step in (i, int(self.s.to[i])):
            if step >= 0 and self.rank_of[step] in self.inside:
                self.finish(self.rank_of[step], -math.inf)

    def rid(self, i: int) -> float:
        path, nbytes = self.message(i)
        held = self.net.sender_buffer / self.net.rate if path.linked else 0
        return max(
            self.began[i] + float(path.send.at(nbytes)),
            self.arrival[i] - float(path.transfer.at(0)) - held,
        )

    def receive(self, j: int) -> tuple[float, float, float] | None:
        """When the message was begun, is here, and what taking it in costs; None: not known."""
        i, half = int(self.s.source[j]), self.s.op[j] == Op.SENDRECV
        if i < 0:
            peer = int((self.s.peer2 if half else self.s.peer)[j])
            nbytes = float((self.s.bytes2 if half else self.s.bytes)[j])
            cost = (
                self.net.post
                if peer < 0
                else float(self.path(peer, self.rank_of[j]).receive.at(nbytes))
            )
            return self.begin[j], self.begin[j], cost
        if i not in self.arrival:
            return None
        path, nbytes = self.message(i)
        return self.began[i], self.arrival[i], float(path.receive.at(nbytes))

    def done(self, q: int) -> float | None:
        """When a request is complete; None: not known."""
        op = Op(int(self.s.op[q]))
        if op in STARTED_RECEIVES:
            found = self.receive(q)
            return None if found is None else found[1]
        if op == Op.ICOLLECTIVE:
            return self.over[q][1] if q in self.over else None
        if q not in self.rendezvous:
            return self.end[q]
        return self.rid(q) if q in self.arrival else None

    def finish(self, rank: int, now: float) -> None:
        i = self.inside[rank]
        op = Op(int(self.s.op[i]))
        own, least = 0.0, 0.0
        receives, ends = [], []
        if op in (Op.WAIT, Op.WAITANY, Op.WAITSOME):
            least = float(self.net.post)
            listed = [int(q) for q in self.s.done[self.s.done_start[i] : self.s.done_start[i + 1]]]
            active = [q for q in dict.fromkeys(listed) if q not in self.used]
            known = [q for q in active if self.done(q) is not None]
            chosen = active
            if op != Op.WAIT:
                number = min(1 if op == Op.WAITANY else int(self.s.number[i]), len(active))
                known.sort(key=lambda q: (max(self.done(q), self.begin[i]), listed.index(q)))
                chosen = known[:number]
                if len(known) < len(active) and number:
                    if len(known) < number:
                        return
                    certain = max(self.done(chosen[-1]), self.begin[i])
                    if now < certain:
                        self.push(certain, CHOICE, rank)
                        return
            elif len(known) < len(active):
                return
            for q in chosen:
                self.used.add(q)
                if self.s.op[q] in STARTED_RECEIVES:
                    receives.append(self.receive(q))
                elif self.s.op[q] == Op.ICOLLECTIVE:
                    ends.append(self.over[q])
                elif q in self.rendezvous:
                    ends.append((self.began[q], self.rid(q)))
        elif op == Op.COLLECTIVE:
            if i not in self.over:
                return
            ends.append(self.over[i])
        if op in (Op.SEND, Op.SSEND, Op.SENDRECV):
            path, nbytes = self.message(i) if self.s.peer[i] >= 0 else (None, 0)
            own = self.net.post
            if i in self.rendezvous:
                if i not in self.arrival:
                    return
                ends.append((self.began[i], self.rid(i)))
            elif path is not None:
                own = float(path.send.at(nbytes))
        if op in (Op.RECV, Op.SENDRECV):
            found = self.receive(i)
            if found is None:
                return
            receives.append(found)
        begin = self.begin[i]

        def last(in_time: bool) -> float:
            def early(began: float, ns: float) -> float:
                return ns - max(began - begin, 0) if in_time else ns

            ns = begin + own
            for began, here, cost in sorted(receives, key=lambda r: early(r[0], r[1]) - r[2]):
                ns = max(ns + cost, early(began, here))
            return max([ns, begin + least, *(early(*end) for end in ends)])

        del self.inside[rank]
        self.close(i, last(False), min(last(True), last(False)))

    def close(self, i: int, end: float, in_time: float) -> None:
        self.end[i], self.waiting[i] = end, end - in_time
        self.go_on(self.rank_of[i], i, end)

    def join(self, i: int) -> None:
        """Bcast and the like: members of kinds as in the text of ``simulate``."""
        comm = int(self.s.comm[i])
        turn = self.turn.get((self.rank_of[i], comm), 0)
        self.turn[self.rank_of[i], comm] = turn + 1
        group = self.groups.setdefault((comm, turn), [])
        group.append(i)
        name = self.s.calls[self.s.call[i]].removeprefix("MPI_").lower()
        begin, cost = self.begin, self.collective_ns
        members = [int(r) for r in self.s.members[comm]]
        root = next((k for k in group if self.s.peer[k] == self.rank_of[k]), None)
        ends: dict[int, tuple[float, float]] = {}
        full = len(group) == len(members)
        if name in ("bcast", "scatter", "ibcast"):
            if root is not None:
                ends = {
                    k: (max(begin[k], begin[root]), max(begin[k], begin[root]) + cost[k])
                    for k in group
                }
        elif name in ("reduce", "gather", "ireduce"):
            ends = {
                k: (begin[k], begin[k] + float(self.message(k)[0].send.at(self.s.bytes[k])))
                for k in group
                if k != root
            }
            if full:
                latest = max(begin[k] for k in group)
                ends[root] = (latest, latest + cost[root])
        elif name in ("scan", "exscan"):
            ns = -math.inf
            by_rank = {self.rank_of[k]: k for k in group}
            for rank in members:
                if rank not in by_rank:
                    break
                k = by_rank[rank]
                ends[k] = (max(ns, begin[k]), max(ns, begin[k]) + cost[k])
                ns = ends[k][1]
        elif full:
            latest = max(begin[k] for k in group)
            ends = {k: (latest, latest + cost[k]) for k in group}
        for k, end in ends.items():
            if k not in self.over:
                self.over[k] = end
                if k != i and self.rank_of[k] in self.inside:
                    self.finish(self.rank_of[k], -math.inf)
