"""The communication matrix: what it counts, how it looks, and its command."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import corpus
import numpy as np
import pytest
from order import traced
from sketch import irecv, rank_file, recv, send, sketched, wait

from p3s.report.matrix import ASCII, BLOCKS, render, shade_levels
from p3s.report.pictures import matrix_picture
from p3s.signature.matrix import communication_matrix

BARRIER = ("Barrier",)


def square(found, what: str = "messages") -> list[list[int]]:
    return found.binned(what, found.np)[0].tolist()


# ---- what is counted ------------------------------------------------------------------------


def test_messages_and_bytes_by_source_and_destination(tmp_path: Path) -> None:
    found = communication_matrix(
        sketched(
            tmp_path,
            [
                send(1),
                send(1, nbytes=92),
                send(2),
                send(0),
                ("Sendrecv", {"peer": 1, "nbytes": 7}),
                ("Sendrecv_recv", {"peer": 2}),
                ("Allreduce", {"nbytes": 16}),
                BARRIER,
            ],
            [recv(0), recv(0), ("Send_init", {"peer": 0, "nbytes": 5}), wait(2), send(-3)],
            [recv(0), irecv(-2, -1), wait(cancels=[1])],
        )
    )
    assert square(found) == [[1, 3, 1], [1, 0, 0], [0, 0, 0]]
    assert square(found, "bytes") == [[8, 107, 8], [5, 0, 0], [0, 0, 0]]
    assert (found.collective_calls, found.collective_bytes, found.notes) == (2, 16, ())


def test_cancelled_sends_are_no_messages(tmp_path: Path) -> None:
    found = communication_matrix(
        sketched(tmp_path, [("Isend", {"peer": 1, "nbytes": 8}), wait(cancels=[0])], [BARRIER])
    )
    assert square(found) == [[0, 0], [0, 0]] and found.values("messages").sum() == 0


def test_events_that_were_only_counted_are_counted(tmp_path: Path) -> None:
    w = rank_file(0, 2, [send(1)])
    w.counts([(41, 1000, 10)])
    w.end()
    w.save(tmp_path)
    rank_file(1, 2, [recv(0)]).save(tmp_path)
    from p3s.capture import read_run

    assert square(communication_matrix(read_run(tmp_path))) == [[0, 42], [0, 0]]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    found = communication_matrix(sketched(tmp_path, [send(1)], None, [send(1)]))
    assert square(found) == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]
    assert found.notes == (
        "1 rank has no readable capture: what was sent there is not in the matrix",
    )


@pytest.mark.parametrize("n", [1, 4, 16])
def test_the_corpus_is_counted_as_it_is_written(n: int) -> None:
    run = corpus.run(corpus.halo3d(), n)
    truth = np.zeros((2, n, n), dtype=int)
    for rank in run.ranks:
        for number in rank.call.tolist():
            call = run.calls[number]
            if call.op == "MPI_Isend":
                truth[:, rank.rank, call.peer] += 1, call.bytes
    found = communication_matrix(traced(run))
    assert square(found) == truth[0].tolist() and square(found, "bytes") == truth[1].tolist()


def test_many_ranks_share_cells() -> None:
    run = traced(corpus.run(corpus.ring(steps=1), 50))
    cells, width = communication_matrix(run).binned("messages", 16)
    assert width == 4 and cells.shape == (13, 13) and cells.sum() == 50 * 49
    assert cells[0, 0] == 3 * 49 and cells[0, 1] == 49 and cells[12, 0] == 49


# ---- how it looks ---------------------------------------------------------------------------


def test_the_text_has_labels_totals_and_a_legend() -> None:
    run = traced(corpus.run(corpus.ring(steps=1), 4))
    assert render(communication_matrix(run), "messages", 100).splitlines() == [
        "4 ranks: 12 messages of 96,000 bytes in all, between 4 pairs of ranks",
        "",
        "    to rank",
        "    0 1 2 3",
        "   +--------+ sent",
        " 0 |  ##    |    3",
        " 1 |    ##  |    3",
        " 2 |      ##|    3",
        " 3 |##      |    3",
        "   +--------+",
        "messages per pair of ranks: # 3",
        "not in the matrix: 4 calls of collectives, with 32 bytes as their callers state them",
    ]


@pytest.mark.parametrize("n", [1, 2, 40, 100, 1000])
@pytest.mark.parametrize("width", [20, 80, 200])
def test_it_fits_the_width(n: int, width: int) -> None:
    run = traced(corpus.run(corpus.ring(bodies=5000, steps=1) if n < 200 else ends, n))
    text = render(communication_matrix(run), "bytes", width, BLOCKS).splitlines()
    rows = [line for line in text if "|" in line]
    assert len(rows) <= 64 and bool(rows) is (n > 1)
    assert max(map(len, rows), default=0) <= max(width, 40)


def ends(rec) -> None:
    """Only the last rank sends, to the first."""
    if rec.rank == rec.n - 1:
        rec("Send", peer=0, nbytes=8)


def test_nothing_is_never_shown_as_something_nor_the_other_way_round() -> None:
    values = np.array([[0, 1], [2, 1000]])
    assert shade_levels(values, 4)[0].tolist() == [[0, 1], [1, 4]] and shade_levels(values, 4)[1]
    assert shade_levels(values // 2, 1)[0].tolist() == [[0, 0], [1, 1]]
    assert shade_levels(np.array([[5, 5], [0, 5]]), 4)[0].tolist() == [[4, 4], [0, 4]]
    assert shade_levels(np.zeros((2, 2), dtype=int), 4)[0].sum() == 0
    text = render(communication_matrix(traced(corpus.run(ends, 1000))), "messages", 80)
    assert [line.count("#") for line in text.splitlines() if "|" in line].count(1) == 1


def test_the_picture_is_the_same_each_time(tmp_path: Path) -> None:
    found = communication_matrix(traced(corpus.run(corpus.jacobi2d(), 9)))
    for what in ("messages", "bytes"):
        for name in ("a.png", "b.png"):
            matrix_picture(found, what, (4.0, 4.0)).save(tmp_path / name)
        assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    empty = communication_matrix(traced(corpus.run(corpus.fft2d(), 4)))
    matrix_picture(empty, "bytes", (4.0, 4.0)).save(tmp_path / "empty.png")


# ---- the command ----------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_gets_blocks_unless_it_wants_none(
    plain: bool, named: Callable[[str], Path]
) -> None:
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    env |= {"PYTHONIOENCODING": "utf-8", "COLUMNS": "60"} | ({"NO_COLOR": "1"} if plain else {})
    main, other = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "p3s", "matrix", str(named("RUNS"))],
        stdout=other,
        timeout=300,
        env=env,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(other)
    shown = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(main)
    assert done.returncode == 0 and done.stderr == b""
    assert (BLOCKS[-1] in shown.decode()) is not plain
    assert (ASCII[-1] in shown.decode()) is plain
