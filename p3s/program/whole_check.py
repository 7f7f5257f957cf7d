"""Whole programs as Steps: whether all ranks come to their end, and what can be done if not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from p3s.program.calls import RankProgram, programs_of_steps, sums
from p3s.program.order.pairs import pair
from p3s.program.order.unstick import ends, moved_earlier, unstuck
from p3s.simulate.steps import Op, Steps

#: Runs of more events than this are written without a look at whether they can be executed.
MOST_EVENTS = 2_000_000


def steps_of_programs(programs: Iterable[RankProgram], n: int) -> Steps:
    """Return programs of ranks as Steps, sends and receives paired.

    Collectives that are still calls are taken to be calls of all ranks.
    """
    mine = sorted(programs, key=lambda program: program.rank)
    names = tuple(dict.fromkeys(name for program in mine for name in program.table.names)) or ("",)
    number = {name: k for k, name in enumerate(names)}

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(p.table, name)[p.at] for p in mine])

    call = np.concatenate(
        [
            np.array([number[x] for x in p.table.names] or [0])[np.maximum(p.table.call, 0)][p.at]
            for p in mine
        ]
    )
    start = sums(np.array([len(program) for program in mine]))
    size = int(start[-1])
    none = np.full(size, -1, dtype=np.int64)
    op = column("op")
    steps = Steps(
        n=n,
        ranks=np.array([program.rank for program in mine], dtype=np.int64),
        start=start,
        op=op,
        peer=column("peer"),
        tag=column("tag"),
        comm=np.zeros(size, dtype=np.int64),
        bytes=column("bytes"),
        peer2=none,
        tag2=none,
        bytes2=np.zeros(size, dtype=np.int64),
        call=call,
        work_ns=column("work_ns"),
        number=np.where(
            op == int(Op.WAIT), np.concatenate([np.diff(program.done_start) for program in mine]), 0
        ),
        row=none,
        weight=np.ones(size),
        turn=np.zeros(size, dtype=np.int64),
        done_start=sums(np.concatenate([np.diff(program.done_start) for program in mine])),
        done=np.concatenate(
            [program.done + at for program, at in zip(mine, start.tolist(), strict=False)]
        ),
        to=none,
        source=none,
        calls=names,
        members={0: np.arange(n, dtype=np.int64)},
    )
    to, source = pair(steps)
    return Steps(**{**vars(steps), "to": to, "source": source})


def executable(programs: Sequence[RankProgram], n: int) -> tuple[Sequence[RankProgram], list[str]]:
    """Return programs in which no rank waits for ever, and what was changed for that."""
    steps = steps_of_programs(programs, n)
    if ends(steps):
        return programs, []
    moved, number = unstuck(steps)
    if not number:
        return programs, [
            "ranks wait for each other for ever: the order of events of the model "
            "cannot be executed, a simulator will not come to an end"
        ]
    return list(programs_of_steps(moved)), [moved_earlier(number)]
