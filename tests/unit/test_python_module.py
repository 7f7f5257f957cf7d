"""The model as a Python module: its functions return what the scaled trace has."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import corpus
import models
import pytest
from corpus.cases import GRIDS

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.model.evaluate import generate, phase_weight
from p3s.model.functions import VERSION, bare, phases
from p3s.model.holdout import build_model
from p3s.model.reasons import Code, Reason
from p3s.report.python_module import render

ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import equations
out = []
for n, ranks in json.loads(sys.argv[2]):
    for k, phase in equations.PHASES.items():
        rows = [[r, row.call, row.slot, row.stage, row.turn, row.partner, row.bytes, row.times,
                 row.root, row.work] for r in ranks for row in phase.rows(r, n)]
        lists = [[phase.destinations(r, n), phase.sources(r, n), phase.bytes(r, n)] for r in ranks]
        out.append([n, k, phase.weight(n), phase.work(n), rows, lists])
json.dump(out, sys.stdout)
"""
COLUMNS = ("rank", "item", "slot", "stage", "turn", "peer", "nbytes", "repeat", "root", "work")


def ask(source: str, folder: Path, questions: list[tuple[int, list[int]]]) -> list:
    """Return what the module says in a process of its own."""
    (folder / "equations.py").write_text(source, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", ASK, str(folder), json.dumps(questions)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def check(model, folder: Path, questions: list[tuple[int, list[int]]]) -> dict[int, str]:
    source, left_out = render(model, {})
    scaled = {n: generate(model, n) for n, _ in questions}
    asked = dict(questions)
    for n, k, weight, work, rows, lists in ask(source, folder, questions):
        phase, true = model.phases[k], scaled[n]
        assert weight == phase_weight(phase, true.grid)
        assert work == float(phase.work.law.value(n))
        wanted = [
            [getattr(true, name)[i].item() for name in COLUMNS]
            for r in asked[n]
            for i in ((true.phase == k) & (true.rank == r)).nonzero()[0]
        ]
        assert [row[:-1] for row in rows] == [row[:-1] for row in wanted]
        assert [row[-1] for row in rows] == pytest.approx([row[-1] for row in wanted])
        kinds = [item.kind for item in model.items]
        for rank, (to, came_from, sizes) in zip(asked[n], lists, strict=True):
            mine = [row for row in rows if row[0] == rank]
            sends = [row for row in mine if kinds[row[1]] == "send"]
            assert to == [row[5] for row in sends] and sizes == [row[6] for row in sends]
            assert came_from == [row[5] for row in mine if kinds[row[1]] == "recv"]
    return left_out


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("jacobi2d", (12, 35, 64)),
        ("ring", (16, 37, 64)),
        ("cg", (16, 64)),
        ("halo3d", (8, 64, 125)),
        ("wavefront", (16, 48)),
        ("one-phase", (8, 37)),
        ("empty", (4,)),
        ("300-calls", (12, 35)),
        ("turned", (25, 49, 64)),
    ],
)
def test_it_says_what_the_model_says(name, counts, tmp_path):
    questions = [(n, sorted({0, 1, n // 2, n // 3, n - 2, n - 1})) for n in counts]
    assert check(models.ALL[name](), tmp_path, questions) == {}


@pytest.mark.slow
@pytest.mark.parametrize("case", GRIDS, ids=[c[0] for c in GRIDS])
def test_all_grids_partners_and_communicators_are_evaluated(case, tmp_path):
    _, program, counts, targets = case
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    questions = [
        (n, sorted({0, 1, n // 2, n // 3, n - 2, n - 1})) for n in (counts[-1], targets[0])
    ]
    left_out = check(model, tmp_path, questions)
    assert set(left_out) == {
        i for i, item in enumerate(model.items) if any(s.guard is None for s in item.slots)
    }


def test_what_has_no_rule_is_left_out_and_named(tmp_path):
    model = models.built("ring")
    lost = [i for i, item in enumerate(model.items) if item.kind == "recv"]
    model = replace(
        model,
        items=tuple(
            replace(
                item,
                slots=(replace(item.slots[0], guard=None), *item.slots[1:]),
                why=(Reason(Code.NO_RANKS),),
            )
            if i in lost
            else item
            for i, item in enumerate(model.items)
        ),
    )
    left_out = check(model, tmp_path, [(8, [0, 7])])
    assert set(left_out) == set(lost)
    source, _ = render(model, {})
    assert f"{lost[0]}: 'no rule found for which ranks take part'" in source


def test_it_holds_every_equation_in_words_and_as_a_literal():
    model = models.ALL["jacobi2d"]()
    source, _ = render(model, {})
    assert "#   to c1 + 1" in source and "8*block_first(97, p0, c0) bytes" in source
    docstring, import_, *assigned, last = ast.parse(source).body
    assert isinstance(docstring, ast.Expr) and isinstance(import_, ast.ImportFrom)
    values = {each.targets[0].id: ast.literal_eval(each.value) for each in assigned}
    assert values["MODEL"] == to_data(bare(model))
    assert ast.unparse(last.value).startswith("phases(")
    assert max(map(len, source.split("\n"))) <= 100


def test_hostile_names_are_text_and_nothing_else(tmp_path):
    source, left_out = render(models.hostile(), {})
    assert not left_out
    for each in ast.parse(source).body[2:-1]:
        ast.literal_eval(each.value)
    assert all(c == "\n" or c.isprintable() for c in source)
    assert ask(source, tmp_path, [(12, [0, 5])])


def test_equal_models_give_equal_modules():
    assert render(models.built("ring"), {}) == render(models.built("ring"), {})


def phases_of(model):
    return phases(VERSION, to_data(bare(model)))


def test_counts_without_a_grid_and_ranks_that_are_none_are_refused():
    turned = phases_of(models.ALL["turned"]())[2]
    assert turned.weight(36) == 10
    for n in (37, 0, -4):
        with pytest.raises(ValueError, match="process grid"):
            turned.weight(n)
    for rank in (-1, 36):
        with pytest.raises(ValueError, match="ranks are 0 to 35"):
            turned.rows(rank, 36)


def test_data_of_another_version_are_refused():
    with pytest.raises(P3SError, match="p3s model --python"):
        phases(VERSION + 1, {})
