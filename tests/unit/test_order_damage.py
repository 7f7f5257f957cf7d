"""Damaged captures: matching, logical time, phases and matrix end in a result or in one line."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from sketch import irecv, isend, rank_file, recv, send, wait

from p3s.base.errors import P3SError
from p3s.capture import read_run
from p3s.methods.pas2p.logical import logical_time
from p3s.methods.pas2p.match import match
from p3s.methods.pas2p.phases import thesis_phases
from p3s.signature.matrix import communication_matrix

SIZE = 3


def turn(rank: int, at: int) -> list:
    """One turn of a ring with nonblocking calls; ``at``: events before it."""
    there, here = (rank + 1) % SIZE, (rank - 1) % SIZE
    return [
        irecv(-2, -1, found=(here, 3)),
        isend(there, 3),
        wait(at, at + 1),
        ("Allreduce",),
        send(there),
        recv(here),
        ("Ibarrier",),
        wait(at + 6),
        ("cut",),
    ]


def intact(rank: int) -> bytes:
    events = [event for k in range(12) for event in turn(rank, 8 * k)]
    w = rank_file(rank, SIZE, [*events, ("Finalize",)])
    w.end()
    return w.data()


@pytest.mark.parametrize("seed", range(40))
def test_random_damage(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for rank in range(SIZE):
        data = bytearray(intact(rank))
        for _ in range(rng.randrange(4)):
            what, at = rng.randrange(3), rng.randrange(len(data))
            if what == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif what == 1:
                data[at : at + 4096] = bytes(4096)
            else:
                del data[max(at, 4096) :]
        (tmp_path / f"rank-{rank:06d}.p3t").write_bytes(data)
    try:
        run = read_run(tmp_path)
        phases = thesis_phases(run)
        assert communication_matrix(run).messages.sum() <= 2 * 12 * SIZE
    except P3SError as error:
        assert "\n" not in str(error)
        return
    held = sum(len(rank.call) for rank in run.ranks)
    assert sum(phase.events for phase in phases) <= held


def test_the_intact_run_is_matched_completely(tmp_path: Path) -> None:
    for rank in range(SIZE):
        (tmp_path / f"rank-{rank:06d}.p3t").write_bytes(intact(rank))
    run = read_run(tmp_path)
    matching = match(run)
    assert matching.messages == 2 * 12 * SIZE == len(matching.sends.event)
    assert all((np.diff(each) >= 0).all() for each in logical_time(run, matching))
