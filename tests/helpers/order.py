"""What holds for every run: messages, collectives and program order against logical time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from p3s.capture import RankTrace
from p3s.methods.pas2p.logical import COMPLETION, MESSAGE, POST, TOGETHER, effects, logical_time
from p3s.methods.pas2p.match import Matching, match
from p3s.signature.calltable import call_table


def traced(run: Any) -> Any:
    """Turn a run of the corpus into RankTraces: a Wait completes all that is open before it."""
    ranks = []
    for rank in run.ranks:
        names = [run.calls[call].op for call in rank.call.tolist()]
        done, waiting = [], []
        for i, op in enumerate(names):
            if op in ("MPI_Irecv", "MPI_Isend"):
                waiting.append(i)
            elif op.startswith("MPI_Wait"):
                done += [(i, posted) for posted in waiting]
                waiting = []
        assert not waiting, "a request of the program is never completed"
        ranks.append(
            RankTrace(
                rank.rank,
                True,
                rank.call,
                rank.start_ns,
                rank.elapsed_ns,
                rank.work,
                done=np.array(done, dtype=np.int64).reshape(-1, 2),
                cancelled=np.zeros(len(done), dtype=bool),
            )
        )
    return SimpleNamespace(**{**vars(run), "ranks": ranks})


def partners(matching: Matching, rank: int) -> dict[int, tuple[int, int]]:
    """Return event -> (rank, event) of its partner for the events of a rank that have one."""
    sends, receives = matching.sends, matching.receives
    found = {}
    for receive, send in enumerate(matching.partner.tolist()):
        if send >= 0:
            ends = [
                (int(end.rank[k]), int(end.event[k]))
                for end, k in ((receives, receive), (sends, send))
            ]
            found.update({a[1]: b for a, b in (ends, ends[::-1]) if a[0] == rank})
    return found


def instances(matching: Matching, rank: int) -> dict[int, int]:
    """Return event -> instance of the collectives of a rank."""
    mine, events = matching.collectives.of(rank), matching.collectives.event
    return dict(zip(events[mine].tolist(), matching.instance[mine].tolist(), strict=True))


def violations(run: Any) -> tuple[Matching, dict[str, int]]:
    """Return how often a rule is broken: message, collective, completion, program."""
    table = call_table(run.calls, run.np)
    matching = match(run)
    ticks = logical_time(run, matching)
    bad = dict.fromkeys(("message", "collective", "completion", "program"), 0)
    shared = np.full(len(matching.arrivals), -1)
    latest_post = np.full(len(matching.arrivals), -1)
    found = [effects(matching, rank, run.ranks[rank], table) for rank in range(run.np)]
    for rank, each in enumerate(found):
        when = ticks[rank][each.event]
        together, post = each.kind == TOGETHER, each.kind == POST
        places = each.what[together]
        first = shared[places] < 0
        shared[places[first]] = when[together][first]
        bad["collective"] += int((shared[places] != when[together]).sum())
        np.maximum.at(latest_post, each.what[post], when[post])
    sent = np.zeros(len(matching.sends.event), dtype=np.int64)
    for rank in range(run.np):
        mine = matching.sends.of(rank)
        sent[mine] = ticks[rank][matching.sends.event[mine]]
    for rank, each in enumerate(found):
        trace, when = run.ranks[rank], ticks[rank][each.event]
        ends, comes = each.kind == COMPLETION, each.kind == MESSAGE
        bad["completion"] += int((when[ends] <= latest_post[each.what[ends]]).sum())
        bad["message"] += int((when[comes] <= sent[each.what[comes]]).sum())
        threads = np.zeros(len(trace.call)) if trace.thread is None else trace.thread
        for thread in np.unique(threads):
            bad["program"] += int((np.diff(ticks[rank][threads == thread]) < 0).sum())
    return matching, bad
