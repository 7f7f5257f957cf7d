"""How fast messages are matched and events get their logical time, and in how much memory.

    python benchmarks/match.py [--events 4000000] [--ranks 16] [--repeats 5] [--json]

The runs are made up, a rank at a time when it is asked for, so that what is measured is the
matching alone. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from p3s.capture import Call, Comm, RankTrace, RunTrace, Site
from p3s.methods.pas2p.logical import logical_time
from p3s.methods.pas2p.match import match

#: What is aimed at: see README.md beside this file.
TARGET = ">= 1"
DIMS = (4, 4)


@dataclass(frozen=True)
class Turn:
    """The events of one turn of a rank's loop, as numbers of calls, and what completes what."""

    call: list[int]
    done: list[tuple[int, int]]


class Maker:
    """Collects calls and the turn of each rank."""

    def __init__(self, ranks: int, sizes: int) -> None:
        self.ranks, self.sizes = ranks, sizes
        self.calls: dict[tuple[Any, ...], int] = {}

    def call(self, op: str, peer: int = -1, size: int = 0, tag: int = -1, site: int = 0) -> int:
        """Return the number of a call; one of a message stands for ``sizes`` in a row."""
        key = (op, site, peer, size, tag)
        if key not in self.calls:
            several = self.sizes if peer >= 0 else 1
            first = len(self.calls)
            for k in range(several):
                self.calls[key if k == 0 else (*key, k)] = first + k
        return self.calls[key]

    def table(self) -> tuple[Call, ...]:
        """Return all calls."""
        return tuple(
            Call(
                op,
                site,
                -1 if op in ("MPI_Wait", "MPI_Waitall") else 0,
                peer,
                size + 8 * (more[0] if more else 0),
                8,
                tag,
                -1,
            )
            for op, site, peer, size, tag, *more in self.calls
        )


def halo(make: Maker, rank: int) -> Turn:
    """A periodic 2-D halo: four Irecv, four Isend, Waitall, Allreduce."""
    rows, columns = make.ranks // DIMS[1], DIMS[1]
    x, y = divmod(rank, columns)
    near = [
        ((x + dx) % rows * columns + (y + dy) % columns, k)
        for k, (dx, dy) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1)))
    ]
    call = [make.call("MPI_Irecv", peer, 800, k ^ 1) for peer, k in near]
    call += [make.call("MPI_Isend", peer, 800, k) for peer, k in near]
    call += [make.call("MPI_Waitall"), make.call("MPI_Allreduce", size=8)]
    return Turn(call, [(8, k) for k in range(8)])


def mixed(make: Maker, rank: int) -> Turn:
    """As LAMMPS: ten steps of two times six swaps (Irecv, Send, Wait), then exchange and sums."""
    call: list[int] = []
    done: list[tuple[int, int]] = []

    def swap(distance: int, site: int) -> None:
        at = len(call)
        call.append(make.call("MPI_Irecv", (rank + distance) % make.ranks, 4000, 0, site))
        call.append(make.call("MPI_Send", (rank - distance) % make.ranks, 4000, 0, site))
        call.append(make.call("MPI_Wait", site=site))
        done.append((at + 2, at))

    for _ in range(10):
        for site in (1, 2):
            for distance in (1, -1, 4, -4, 8, -8):
                swap(distance, site)
    for distance in (1, -1, 4):
        call.append(make.call("MPI_Sendrecv", (rank + distance) % make.ranks, 4, 0, 3))
        call.append(make.call("MPI_Sendrecv_recv", (rank - distance) % make.ranks, 4, 0, 3))
    call += [make.call("MPI_Allreduce", size=8, site=4)] * 3
    return Turn(call, done)


class Ranks:
    """Ranks that are made when they are asked for, as a large run's are read."""

    def __init__(self, turns: list[Turn], repeats: int, sizes: int, varied: np.ndarray) -> None:
        self.turns, self.repeats, self.sizes, self.varied = turns, repeats, sizes, varied

    def __len__(self) -> int:
        return len(self.turns)

    def __iter__(self) -> Iterator[RankTrace]:
        return (self[rank] for rank in range(len(self)))

    def __getitem__(self, rank: int) -> RankTrace:
        turn = self.turns[rank]
        length = len(turn.call)
        call = np.tile(np.array(turn.call, dtype=np.int32), self.repeats)
        if self.sizes > 1:  # the sizes of messages change from time to time
            call += self.varied[call] * (np.arange(len(call), dtype=np.int32) // 997 % self.sizes)
        shift = np.repeat(np.arange(self.repeats, dtype=np.int64) * length, len(turn.done))
        done = np.tile(np.array(turn.done, dtype=np.int64), (self.repeats, 1)) + shift[:, None]
        none = np.zeros(len(call), dtype=np.int64)
        return RankTrace(
            rank, True, call, none, none, none, done=done, cancelled=np.zeros(len(done), dtype=bool)
        )


def made_up(kind: str, ranks: int, events: int) -> tuple[RunTrace, int]:
    """Return (a run of about that many events, how many it has)."""
    sizes = 1 if kind == "halo" else 100
    make = Maker(ranks, sizes)
    turns = [(halo if kind == "halo" else mixed)(make, rank) for rank in range(ranks)]
    repeats = max(events // sum(len(turn.call) for turn in turns), 1)
    table = make.table()
    varied = np.array([call.peer >= 0 for call in table], dtype=np.int32)
    comm = Comm(tuple(range(ranks)), "MPI_COMM_WORLD", -1, None, None, 0)
    run = RunTrace(
        ranks,
        Path(kind),
        table,
        (comm,),
        (Site("0" * 16, ("main",)),),
        Ranks(turns, repeats, sizes, varied),  # type: ignore[arg-type]
    )
    return run, repeats * sum(len(turn.call) for turn in turns)


def peak_mib() -> float:
    """Return the peak resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def measure(kind: str, ranks: int, events: int, repeats: int) -> dict[str, Any]:
    """Return events per second of CPU time of both stages (median), and what they found."""
    run, total = made_up(kind, ranks, events)
    seconds: dict[str, list[float]] = {"making": [], "match": [], "logical": []}
    for _ in range(repeats):
        begin = time.process_time()
        for _rank in run.ranks:
            pass
        made = time.process_time()
        matching = match(run)
        matched = time.process_time()
        ticks = logical_time(run, matching)
        end = time.process_time()
        seconds["making"].append(made - begin)
        seconds["match"].append(matched - made)
        seconds["logical"].append(end - matched)
    assert matching.messages == len(matching.sends.event) and len(ticks) == ranks
    making = statistics.median(seconds["making"])  # once in each stage, not to be counted
    rate = {
        name: total / (statistics.median(seconds[name]) - making) / 1e6
        for name in ("match", "logical")
    }
    return {
        "run": kind,
        "ranks": ranks,
        "events": total,
        "messages": matching.messages,
        "calls": len(run.calls),
        "match_million_events_per_s": rate["match"],
        "logical_million_events_per_s": rate["logical"],
        "peak_mib": peak_mib(),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=4_000_000, help="of each run")
    parser.add_argument("--ranks", type=int, default=16, help="a multiple of 4")
    parser.add_argument("--repeats", type=int, default=5, help="median of so many")
    parser.add_argument("--run", choices=("halo", "mixed"), help="only this one")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    asked = parser.parse_args()
    if asked.ranks < 4 or asked.ranks % DIMS[1]:
        sys.exit("--ranks: give a multiple of 4")
    kinds = [asked.run] if asked.run else ["halo", "mixed"]
    rows = [measure(kind, asked.ranks, asked.events, asked.repeats) for kind in kinds]
    if asked.json:
        print(json.dumps({"rows": rows}, indent=1))
        return
    for row in rows:
        print(
            f"{row['run']}: {row['events']:,} events, {row['ranks']} ranks,"
            f" {row['messages']:,} messages, {row['calls']:,} calls"
        )
        for name, key in (("matching", "match"), ("logical time", "logical")):
            value = row[f"{key}_million_events_per_s"]
            print(f"  {name + ' [million events/s]':<40} {value:10.2f}  {TARGET}")
        print(f"  {'peak memory of the process [MiB]':<40} {row['peak_mib']:10.0f}")


if __name__ == "__main__":
    main()
