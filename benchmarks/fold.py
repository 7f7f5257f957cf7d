"""What folding costs: events per second of each pass, and peak memory.

    python benchmarks/fold.py [--events 10000000] [--ranks 16] [--huge] [--run DIR] [--json]

Each line is measured in a process of its own, so that its peak memory is its own. The synthetic
runs are made rank by rank while they are read, as captures are. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

TIMEOUT_S = 3600.0
HUGE = 100_000_000

#: What is aimed at: see README.md beside this file.
TARGETS = {"regular": ">= 5", "irregular": ">= 1"}

Call = tuple[str, str, int]


def one_call(number: int, op: str, peer: int, size: int) -> SimpleNamespace:
    """Return a call of the world communicator at a site of its own."""
    return SimpleNamespace(
        op="MPI_" + op, site=number, comm=0, peer=peer, bytes=size, elem_bytes=8, tag=0, root=-1
    )


#: A turn: four neighbours of a halo, an inner loop of three calls, a guarded call, a reduction.
OPS = (
    "Init",
    "Irecv",
    "Irecv",
    "Isend",
    "Isend",
    "Waitall",
    "Send",
    "Recv",
    "Wait",
    "Bcast",
    "Allreduce",
    "Finalize",
)
HALO, INNER, GUARDED, END = (1, 2, 3, 4, 5), (6, 7, 8), 9, 10


def sequence(events: int, rank: int, irregular: bool) -> np.ndarray:
    """Return about so many events of one rank as numbers into OPS.

    Regular: three inner turns and the guarded call in every turn. Irregular: none to four by
    chance, and by chance the guarded call, on every rank differently.
    """
    turns = [
        np.array([*HALO, *INNER * k, *([GUARDED] if guarded else []), END])
        for guarded in (False, True)
        for k in range(5)
    ]
    if not irregular:
        return np.concatenate([[0], np.tile(turns[8], max(events // len(turns[8]), 1)), [11]])
    chance = np.random.default_rng(rank)
    chosen = chance.integers(0, len(turns), size=max(events // 13, 1))
    length = np.array([len(t) for t in turns])
    start = np.concatenate([[0], np.cumsum(length)[:-1]])
    number = length[chosen]
    begin = np.repeat(start[chosen] - (np.cumsum(number) - number), number)
    body = np.concatenate(turns)[begin + np.arange(len(begin))]
    return np.concatenate([[0], body, [11]])


class Ranks:
    """The ranks of a synthetic run, each made when it is asked for and not kept."""

    def __init__(self, events: int, ranks: int, irregular: bool) -> None:
        self.events, self.size, self.irregular = events, ranks, irregular

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rank: int) -> Any:
        call = sequence(self.events // self.size, rank, self.irregular)
        call = (call + rank * len(OPS)).astype(np.uint32)
        same = np.full(len(call), 700, dtype=np.int64)
        return SimpleNamespace(
            rank=rank,
            complete=True,
            call=call,
            elapsed_ns=same,
            work=same,
            start_ns=np.arange(len(call)) * 1400,
            failed_polls=0,
            failed_poll_ns=0,
            counted_events=0,
            thread=None,
            tracer_ns=0,
        )

    def __iter__(self) -> Iterator[Any]:
        return (self[rank] for rank in range(self.size))


def synthetic(events: int, ranks: int, irregular: bool) -> Any:
    """Return a run in the shape of p3s.trace.RunTrace."""
    calls = [
        one_call(i, op, (rank + (1 if i % 2 else -1)) % ranks, 800)
        if op in ("Irecv", "Isend", "Send", "Recv")
        else one_call(i, op, -1, 8)
        for rank in range(ranks)
        for i, op in enumerate(OPS)
    ]
    world = SimpleNamespace(
        members=tuple(range(ranks)), ordinal=0, op="", parent=-1, dims=None, periods=None
    )
    return SimpleNamespace(
        np=ranks,
        path="synthetic",
        wall_ns=1,
        unmodelled={},
        work_unit="cpu_ns",
        calls=calls,
        comms=[world],
        ranks=Ranks(events, ranks, irregular),
        sites=[SimpleNamespace(key=f"{i:02d}{op}", frames=(op,)) for i, op in enumerate(OPS)],
    )


def measure(run: Any) -> dict[str, Any]:
    """Fold one run; return seconds of the passes, events, loops and bytes of the tree."""
    from p3s.characterize.parse import loop_indices, parse
    from p3s.characterize.phases import phases_json
    from p3s.characterize.structure import structure
    from p3s.characterize.tables import point_table

    clock = [time.perf_counter()]
    table = point_table([run])
    clock.append(time.perf_counter())
    found = structure([table])
    clock.append(time.perf_counter())
    text = json.dumps(phases_json(found))
    clock.append(time.perf_counter())
    number = {node: v for v, node in enumerate(found.nodes)}
    of_call = np.array(
        [number[run.sites[c.site].key if c.site >= 0 else "", c.op] for c in run.calls]
    )
    second = 0.0
    for rank in run.ranks:
        nodes = of_call[np.asarray(rank.call)]
        begin = time.perf_counter()
        loop_indices(parse(found.nest, nodes))
        second += time.perf_counter() - begin
    return {
        "events": int(table.events),
        "loops": len(found.nest.loops) - 1,
        "graph_s": clock[1] - clock[0],
        "tree_s": clock[2] - clock[1],
        "phases_s": clock[3] - clock[2],
        "second_s": second,
        "tree_bytes": len(text),
        "reading_s": reading_seconds(run),
    }


def reading_seconds(run: Any) -> float:
    """Return how long it takes to make or read all ranks, which is in the graph pass too."""
    begin = time.perf_counter()
    for rank in run.ranks:
        np.asarray(rank.call)
    return time.perf_counter() - begin


def one(what: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one line in this process."""
    if what == "captured":
        from p3s.trace import read_run

        run = read_run(Path(options.run))
    else:
        events = HUGE if what.startswith("huge") else options.events
        ranks = 64 if what.startswith("huge") else options.ranks
        run = synthetic(events, ranks, "irregular" in what)
    out = measure(run)
    out["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"what": what, **out}


def main() -> None:
    """Measure every line in a process of its own and print the table."""
    parser = argparse.ArgumentParser(description="What folding costs.")
    parser.add_argument("--events", type=int, default=10_000_000, help="of a synthetic run")
    parser.add_argument("--ranks", type=int, default=16, help="of a synthetic run")
    parser.add_argument("--huge", action="store_true", help=f"also {HUGE} events on 64 ranks")
    parser.add_argument("--run", help="directory of a captured run, for example of LAMMPS")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(one(options.only, options)))
        return
    wanted = ["regular", "irregular"]
    wanted += ["huge regular", "huge irregular"] if options.huge else []
    wanted += ["captured"] if options.run else []
    rows = []
    for what in wanted:
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--only", what],
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        rows.append(json.loads(done.stdout))
    if options.json:
        print(json.dumps({"rows": rows}, indent=1))
        return
    print(
        f"{'run':<15} {'events':>11} {'loops':>5} {'graph':>7} {'tree':>7} {'second':>7} "
        f"{'all':>6} {'aim':>5} {'peak':>9}"
    )
    print(f"{'':<15} {'':>11} {'':>5} {'M/s':>7} {'s':>7} {'M/s':>7} {'M/s':>6} {'':>5} {'MiB':>9}")
    for row in rows:
        million = row["events"] / 1e6
        graph = max(row["graph_s"] - row["reading_s"], 1e-9)
        all_s = graph + row["tree_s"] + row["second_s"]
        print(
            f"{row['what']:<15} {row['events']:>11} {row['loops']:>5} {million / graph:>7.1f} "
            f"{row['tree_s']:>7.2f} {million / row['second_s']:>7.1f} {million / all_s:>6.1f} "
            f"{TARGETS.get(row['what'].split()[-1], ''):>5} {row['peak_mib']:>9.0f}"
        )


if __name__ == "__main__":
    main()
