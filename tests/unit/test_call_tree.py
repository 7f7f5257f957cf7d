"""Call paths with their times, what a flame graph makes of them, and lines of source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from made_predictions import made_prediction, phase_at, record

from p3s.capture.callpath import FrameInfo
from p3s.capture.quoted import SourceQuote, Sources
from p3s.predict.types import PhaseAt, Prediction
from p3s.report.call_tree import Node, Spent, tree_of
from p3s.report.charts.curves import comparison
from p3s.report.charts.figures import on_page
from p3s.report.charts.flame import flame_chart, frames_of, growth, step_of
from p3s.report.compare import compare, page_of
from p3s.report.html import call_rows, render_page
from p3s.signature.phase_file import Call, Loop, Phase, PhaseCost, Phases, Trips

MS = 1_000_000
#: Frames of a call, innermost first: main calls solve, and that exchange.
EXCHANGE, NORM, SETUP = ("exchange", "solve", "main"), ("norm", "solve", "main"), ("main",)


def call(number: int, op: str, site: str, ms: int) -> Call:
    at = {8: 1}
    return Call(number, site, op, "always", at, at, {8: (0, 0)}, {8: ms * MS})


def phase(number: int, loop: int, parent: int | None, calls: Sequence[int]) -> Phase:
    cost = PhaseCost(1, 1, 8, 1, 0, 0, 0, 0.5, True, {})
    return Phase(number, loop, parent, 0, f"p{number}", tuple(calls), {8: cost}, None, True, False)


def made() -> tuple[Phases, dict[str, FrameInfo], Prediction]:
    """Return a program: set up, then a loop of two calls in exchange around a loop in norm."""
    trips = {8: Trips(5, 5, 1, (5, 5))}
    inner = Loop(2, None, trips, (call(3, "MPI_Allreduce", "n", 16),))
    outer = Loop(
        1, None, trips, (call(1, "MPI_Isend", "e", 8), call(2, "MPI_Recv", "e", 24), inner)
    )
    tree = Loop(0, None, {8: Trips(1, 1, 1, (1, 1))}, (call(0, "MPI_Bcast", "s", 32), outer))
    phases = (phase(0, 0, None, [0]), phase(1, 1, 0, [1, 2]), phase(2, 2, 1, [3]))
    sites = {"e": EXCHANGE, "n": NORM, "s": SETUP}
    found = Phases((8,), "cpu_ns", sites, tree, phases, {})
    names = {name for frames in sites.values() for name in frames}
    places = {name: FrameInfo(name, "app", name, "/app.c", 7) for name in names}
    whole = record(made_prediction((4, 16), 3))
    rows = [replace(row, phases=_phases(row.n)) for row in whole.counts]
    return found, places, replace(whole, counts=tuple(rows))


def _phases(n: int) -> tuple[PhaseAt, ...]:
    return tuple(
        phase_at(k, f"p{k}", kind="rest" if k == 0 else "loop", **times)
        for k, times in enumerate(_times(n))
    )


def _times(n: int) -> list[dict[str, float]]:
    """Phase 0 computes 1 s at any count, 1 scales from 8 s, 2 waits for n/4 s."""
    nothing = {"transfer_s": 0.0, "software_s": 0.0}
    return [
        {"time_s": 1.0, "compute_s": 1.0, "comm_s": 0.0, "waiting_s": 0.0, **nothing},
        {"time_s": 32 / n, "compute_s": 32 / n, "comm_s": 0.0, "waiting_s": 0.0, **nothing},
        {"time_s": n / 4, "compute_s": 0.0, "comm_s": n / 4, "waiting_s": n / 4, **nothing},
    ]


def by_name(root: Node) -> dict[str, Node]:
    return {node.name: node for _, node in root.walk()}


def test_functions_loops_and_calls_are_one_tree() -> None:
    tree = tree_of(*made())
    shape = [(depth, node.kind, node.name) for depth, node in tree.root.walk()]
    assert shape == [
        (0, "program", "whole program"),
        (1, "function", "main"),
        (2, "call", "MPI_Bcast"),
        (2, "function", "solve"),
        (3, "loop", "p1"),
        (4, "function", "exchange"),
        (5, "call", "MPI_Isend"),
        (5, "call", "MPI_Recv"),
        (4, "function", "norm"),
        (5, "loop", "p2"),
        (6, "call", "MPI_Allreduce"),
    ]


def test_times_stand_where_they_are_known() -> None:
    found = by_name(tree_of(*made()).root)
    assert found["whole program"].traced_s == pytest.approx(0.080 / 8)  # mean over the ranks
    assert found["p1"].traced_s == pytest.approx(0.048 / 8), "with the loop in it"
    spent = {name: node.spent and node.spent.total() for name, node in found.items()}
    assert spent["whole program"] == 1 + 2 + 4 and spent["solve"] == spent["p1"] == 2 + 4
    assert spent["exchange"] == 2, "all calls of the phase, but for the loop inside"
    assert spent["MPI_Isend"] is None, "one of two calls of a phase"
    assert spent["MPI_Bcast"] == 1 and spent["norm"] == spent["p2"] == 4
    before = found["p2"].before
    assert before is not None and before.total() == 1


def test_a_flame_graph_says_what_grows() -> None:
    tree = tree_of(*made())
    frames = {(frame.level, frame.name): frame for frame in frames_of(tree)}
    top = frames[0, "whole program"]
    assert top.then is not None
    assert (top.x, top.width, top.now.total(), top.then.total()) == (0.0, 1.0, 7.0, 10.0)
    waits = frames[6, "waiting"]
    assert waits.width == pytest.approx(4 / 7)
    assert growth(tree, waits.now, waits.then) == pytest.approx(16 * 4 / (4 * 1))
    assert growth(tree, Spent(compute=2.0), Spent(compute=8.0)) == 1.0
    assert growth(tree, Spent(compute=1.0), Spent()) is None
    assert [step_of(ratio) for ratio in (0.5, 1.0, 1.5, 3.0, 9.0, None)] == [0, 1, 2, 3, 4, 4]
    for level in range(7):  # no frame lies over another one
        row = sorted((f for f in frames_of(tree) if f.level == level), key=lambda f: f.x)
        for one, other in zip(row, row[1:], strict=False):
            assert one.x + one.width <= other.x + 1e-9
    assert 'role="treeitem"' in flame_chart(tree)


def test_rows_of_the_tree_can_be_sorted() -> None:
    found, places, prediction = made()
    rows = call_rows(tree_of(found, places, prediction), prediction)
    assert rows.head[1] == "traced at 8" and rows.head[-1] == "core time over that at 4"
    cells = {row.node.name: row.cells for row in rows.rows}
    assert [cell[1] for cell in cells["p2"]] == ["0.002", "0.2", "4", "0.5714", "0", "4", "16"]
    assert cells["MPI_Isend"][2] == ("–", "")


def test_phases_of_other_runs_have_no_times() -> None:
    found, places, prediction = made()
    others = tuple(replace(e, name="x") if e.phase == 2 else e for e in found.phases)
    root = tree_of(replace(found, phases=others), places, prediction).root
    assert by_name(root)["x"].spent is None and root.spent is None


def test_lines_of_source_are_those_of_the_traced_program(tmp_path: Path) -> None:
    file = tmp_path / "a.c"
    file.write_text("int x;\n  MPI_Send(a,\tb);\n")
    secret = tmp_path / "secret.txt"
    secret.write_text("password\n")
    link = tmp_path / "link.c"
    link.symlink_to(secret)
    late = file.stat().st_mtime_ns + 1
    inner = FrameInfo("f", "m", "f", "/none/there.c", 3)
    here = FrameInfo("g", "m", "g", str(file), 2)
    assert Sources(late).quoted([inner, here]) == SourceQuote("a.c:2", "MPI_Send(a, b);")
    assert Sources(None).quoted([here]) is not None
    os.utime(file, ns=(late + 1, late + 1))
    assert Sources(late).quoted([here]) is None, "written after the run"
    for path, line in ((secret, 1), (link, 1), (file, 9), (Path("a.c"), 1), (tmp_path, 1)):
        assert Sources(None).quoted([FrameInfo("h", "m", "h", str(path), line)]) is None


def test_two_predictions_are_a_page() -> None:
    one, other = (record(made_prediction(phases=k)) for k in (2, 3))
    hostile = "<script>alert(1)</script>"
    both = compare(one, other, names=("a", f"b{hostile}"))
    text = render_page(page_of(both, partial(on_page, partial(comparison, found=both))))
    assert hostile not in text and text.count("<script>") == 1
    words = " ".join(text.split())
    assert "Phases at 512 processes, largest change first" in words and "Allreduce" in words
    assert '<svg class="chart"' in text and "script-src 'sha256-" in text
