"""What holds for every run: messages, collectives and program order against logical time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from p3s.capture import RankTrace
from p3s.methods.pas2p.logical import LogicalTime, effects, logical_time
from p3s.methods.pas2p.match import Matching, match
from p3s.signature.calltable import call_table


def traced(run: Any) -> Any:
    """Turn a run of corpus.py into RankTraces: a Wait completes all that is open before it."""
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


def violations(run: Any) -> tuple[Matching, LogicalTime, dict[str, int]]:
    """Return how often a rule is broken: message, collective, completion, program.

    Every partner must also name the event that names it ("mutual").
    """
    table = call_table(run.calls, run.np)
    matching = match(run)
    time = logical_time(run, matching)
    ticks = [time.of(rank) for rank in range(run.np)]
    partners = [matching.of(rank) for rank in range(run.np)]
    bad = dict.fromkeys(("message", "collective", "completion", "program", "mutual"), 0)
    cut = time.cut_instances
    shared = np.full(matching.instances, -1)
    latest_post = np.full(matching.instances, -1)
    for rank in range(run.np):
        found = effects(matching, rank, run.ranks[rank], table)
        events, places = found.joint
        first = shared[places] < 0
        shared[places[first]] = ticks[rank][events[first]]
        wrong = shared[places] != ticks[rank][events]
        bad["collective"] += int(wrong[~np.isin(places, list(cut))].sum())
        np.maximum.at(latest_post, found.posted[1], ticks[rank][found.posted[0]])
    for rank in range(run.np):
        trace = run.ranks[rank]
        found = effects(matching, rank, trace, table)
        events, places = found.completed
        bad["completion"] += int((ticks[rank][events] <= latest_post[places]).sum())
        at, peer, _ = matching.received(rank)
        done = np.full(len(trace.call), -1)
        done[trace.done[:, 1]] = trace.done[:, 0]
        posted = np.isin(
            [run.calls[c].op for c in trace.call[at]],
            ["MPI_Irecv", "MPI_Recv_init", "MPI_Imrecv", "MPI_Isendrecv_recv"],
        )
        for i, source, later in zip(at.tolist(), peer.tolist(), posted.tolist(), strict=True):
            send = int(partners[rank].index[i])
            assert partners[rank].rank[i] == source
            back = partners[source]
            bad["mutual"] += not (back.rank[send] == rank and back.index[send] == i)
            effect = int(done[i]) if later else i
            if effect >= 0:
                bad["message"] += int(ticks[rank][effect] <= ticks[source][send])
        threads = np.zeros(len(trace.call)) if trace.thread is None else trace.thread
        for thread in np.unique(threads):
            bad["program"] += int((np.diff(ticks[rank][threads == thread]) < 0).sum())
    return matching, time, bad
