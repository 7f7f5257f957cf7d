"""The model as a Python module: alone, with nothing but the standard library, it says the same."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import corpus
import models
import pytest
import test_grids_corpus

from p3s.laws.counts import WorkLaw
from p3s.model.evaluate import generate, phase_weight
from p3s.model.fit import build_model
from p3s.model.grid import grids
from p3s.model.partners import relations
from p3s.report import plain_grids, plain_partners
from p3s.report.python_guards import NotExpressible, condition
from p3s.report.python_module import render

ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import equations
out = []
for n, ranks in json.loads(sys.argv[2]):
    for k, phase in equations.PHASES.items():
        rows = [[r, row.call, row.slot, row.stage, row.partner, row.bytes, row.times, row.root]
                for r in ranks for row in phase.rows(r, n)]
        sends = [[phase.destinations(r, n), phase.bytes(r, n)] for r in ranks]
        out.append([n, k, phase.weight(n), phase.work(n), rows, sends])
assert not {"numpy", "sympy", "p3s"} & set(sys.modules)
json.dump(out, sys.stdout)
"""


def ask(source: str, folder: Path, questions: list[tuple[int, list[int]]]) -> list:
    """Return what the module says, run where nothing but the standard library can be imported."""
    (folder / "equations.py").write_text(source, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ASK, str(folder), json.dumps(questions)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def messages(rows: list[list[int]], kinds: list[str]) -> list[list[int]]:
    return [row for row in rows if kinds[row[1]] != "completion"]


def completions(rows: list[list[int]], kinds: list[str]) -> Counter[tuple[int, int]]:
    """Return (rank, call) -> how often, however many stages they are written for."""
    out: Counter[tuple[int, int]] = Counter()
    for row in rows:
        if kinds[row[1]] == "completion":
            out[(row[0], row[1])] += row[6]
    return out


def check(model, folder: Path, questions: list[tuple[int, list[int]]]) -> dict[int, str]:
    source, left_out = render(model, {})
    scaled = {n: generate(model, n) for n, _ in questions}
    asked = dict(questions)
    for n, k, weight, work, rows, sends in ask(source, folder, questions):
        phase, true = model["phases"][k], scaled[n]
        assert weight == phase_weight(phase, true.grid)
        assert work == pytest.approx(float(WorkLaw.from_json(phase["work"]["law"]).value(n)))
        mine = [
            i
            for i in range(len(true.rank))
            if true.phase[i] == k and true.rank[i] in asked[n] and int(true.item[i]) not in left_out
        ]
        wanted = [
            [
                int(column[i])
                for column in (
                    true.rank,
                    true.item,
                    true.slot,
                    true.stage,
                    true.peer,
                    true.nbytes,
                    true.repeat,
                    true.root,
                )
            ]
            for i in sorted(mine, key=lambda i: asked[n].index(true.rank[i]))
        ]
        kinds = [item["kind"] for item in model["items"]]
        assert messages(rows, kinds) == messages(wanted, kinds)
        assert completions(rows, kinds) == completions(wanted, kinds)
        for rank, (to, sizes) in zip(asked[n], sends, strict=True):
            assert [to, sizes] == [
                [row[4] for row in rows if row[0] == rank and kinds[row[1]] == "send"],
                [row[5] for row in rows if row[0] == rank and kinds[row[1]] == "send"],
            ]
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
@pytest.mark.parametrize(
    "case", test_grids_corpus.CASES, ids=[c[0] for c in test_grids_corpus.CASES]
)
def test_all_grids_partners_and_communicators_have_a_plain_form(case, tmp_path):
    _, program, counts, targets = case
    model = build_model([corpus.table(program, n) for n in counts], holdout=False)
    questions = [
        (n, sorted({0, 1, n // 2, n // 3, n - 2, n - 1})) for n in (counts[-1], targets[0])
    ]
    left_out = check(model, tmp_path, questions)
    assert set(left_out) <= {
        i for i, item in enumerate(model["items"]) if any(s["guard"] is None for s in item["slots"])
    }, left_out


def test_what_has_no_rule_is_left_out_and_named(tmp_path):
    model = models.built("ring")
    lost = [i for i, item in enumerate(model["items"]) if item["kind"] == "recv"]
    for i in lost:
        model["items"][i]["slots"][0]["guard"] = None
        model["items"][i]["why"] = ["no rule found for which ranks take part"]
    odd = next(i for i, item in enumerate(model["items"]) if item["kind"] == "send")
    model["items"][odd]["slots"][0]["relation"] = {"kind": "os.system"}
    left_out = check(
        {
            **model,
            "items": [
                {**item, "slots": [{**s, "guard": None} for s in item["slots"]]}
                if i == odd
                else item
                for i, item in enumerate(model["items"])
            ],
        },
        tmp_path,
        [(8, [0, 7])],
    )
    assert set(left_out) == {*lost, odd}
    source, left_out = render(model, {})
    assert "LEFT_OUT = {\n" in source and set(left_out) == {*lost, odd}
    assert "os.system" not in source.replace("os.system has no plain Python form", "").replace(
        "# MPI_Sendrecv to os.system,", ""
    )


def test_hostile_names_are_text_and_nothing_else(tmp_path):
    model = models.hostile()
    source, left_out = render(model, {})
    assert not left_out
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"exec", "eval", "__import__", "SystemExit", "open", "compile"}
    assert not any(
        isinstance(node, ast.Raise) and "SystemExit" in ast.unparse(node)
        for node in ast.walk(ast.parse(source))
    )
    assert all(c == "\n" or c.isprintable() for c in source)
    assert ask(source, tmp_path, [(12, [0, 5])])


def test_equal_models_give_equal_modules_with_only_what_they_need():
    one, other = render(models.built("ring"), {})[0], render(models.built("ring"), {})[0]
    assert one == other
    assert "def shifted" in one and "def part_of" not in one
    assert max(map(len, one.split("\n"))) <= 160


def test_every_atom_of_a_guard_reads_as_python():
    said, used = condition([["peer"], ["notfirst", 0], ["mod", 1, 4, 2], ["rank", -1]], 2, False)
    assert said == "partner >= 0 and c0 != 0 and c1 % 4 == 2 and rank == n - 1"
    assert used == {"c0", "c1"}
    assert condition([["peer"]], 2, True) == ("", set())
    assert (
        condition([["not", ["first", 0], ["last", 1]]], 2, True)[0]
        == "not (c0 == 0 and c1 == p1 - 1)"
    )
    with pytest.raises(NotExpressible):
        condition([["__import__('os')"]], 2, True)


@pytest.mark.parametrize("n", [1, 2, 6, 12, 36, 60, 64, 97, 128, 360])
@pytest.mark.parametrize("ndims", [2, 3, 4])
def test_grids_are_those_of_the_model(n, ndims):
    assert plain_grids.dims_greedy(n, ndims) == grids.dims_greedy(n, ndims)
    assert plain_grids.dims_balanced(n, ndims) == grids.dims_balanced(n, ndims)
    grid = plain_grids.Grid("balanced", ndims)
    for rank in range(n):
        assert grid.rank(grid.coordinates(rank, n), n) == rank
    with pytest.raises(ValueError, match="no form at 7 processes"):
        plain_grids.Grid("cube", ndims).dims(7)


FAMILIES = [
    grids.Line(1),
    grids.Cube(2),
    grids.Balanced(2),
    grids.GreedyUp(3),
    grids.Nested(3),
    grids.Power2(2, (1, 0)),
    grids.Bits(2, (0, 1)),
    grids.Bits(2, (1, 0), 1),
    grids.Fixed(2, (1,), 2),
    grids.Fixed(3, (0,), 2, "balanced"),
    grids.Balanced(2, layout="column"),
    grids.Balanced(3, layout="reverse"),
    grids.Cube(2, part="last"),
    grids.Balanced(2, part="first"),
    grids.Cube(2, part="root"),
    grids.Line(1, part="power"),
    grids.Balanced(3, layout="102"),
    grids.Listed(3, listed=((16, (1, 8, 2)),), rest="", layout="column"),
]
AXES: list = [
    None,
    0,
    {"kind": "modulo", "k": 3},
    {"kind": "parts", "k": 2, "cut": "first"},
    {"kind": "without", "rank": -1, "order": "reverse"},
]
RELATIONS: list = [
    {"kind": "self"},
    {"kind": "root", "rank": -1},
    {"kind": "root", "rank": "half"},
    {"kind": "opposite"},
    {"kind": "modulo", "k": 3},
    *(
        {"axis": axis, **rest}
        for axis in AXES
        for rest in (
            {"kind": "mirror"},
            {"kind": "place", "rank": "half"},
            {"kind": "place", "rank": "c0"},
            {"kind": "skew", "of": 0, "sign": -1},
            {"kind": "along", "by": -2, "wrap": True},
            {"kind": "along", "by": 3, "wrap": False},
            {"kind": "far", "k": 2, "sign": 1, "wrap": False},
            {"kind": "far", "k": 3, "sign": -1, "wrap": True},
            {"kind": "fold", "sign": 1},
            {"kind": "fold", "sign": -1},
            {"kind": "xor"},
            {"kind": "xor", "descending": True},
            {"kind": "xor", "fold": "power"},
            {"kind": "xor", "fold": "pairs"},
            {"kind": "stride", "sign": 1, "wrap": True},
            {"kind": "stride", "sign": -1, "wrap": False, "base": 3},
            {"kind": "level", "sign": 1, "wrap": True},
            {"kind": "level", "sign": -1, "wrap": False, "all": True},
            {"kind": "level", "sign": 1, "wrap": False, "anchor": "last"},
            {"kind": "tree", "sign": 1},
            {"kind": "tree", "sign": -1, "root": 1},
            {"kind": "tree", "sign": 1, "root": "half", "base": 3},
            {"kind": "tree", "sign": -1, "form": "low"},
            {"kind": "heap", "k": 2, "sign": 1},
            {"kind": "heap", "k": 3, "sign": -1},
            {"kind": "others"},
            *({"kind": "others", "walk": w} for w in ("minus", "xor", "up", "down", "meet")),
            {"kind": "steps", "by": 3},
        )
    ),
]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f"{f.kind}{f.ndims}{f.layout}{f.part}")
@pytest.mark.parametrize("n", [8, 9, 16, 17])
def test_partners_are_those_of_the_model(family, n):
    at = family.at(n)
    plain = plain_grids.Grid(
        family.kind,
        family.ndims,
        family.order,
        family.extent,
        family.rest,
        family.layout,
        family.part,
        family.listed,
    )
    if at is None:
        with pytest.raises(ValueError, match="no form"):
            plain.dims(n)
        return
    assert plain.dims(n) == at.dims
    assert [plain.coordinates(r, n) for r in range(n)] == [tuple(c) for c in at.coords.T.tolist()]
    shifts = [
        {"kind": "shift", "vec": [k] * family.ndims, "wrap": [w] * family.ndims}
        for k in (1, -1)
        for w in (True, False)
    ]
    more = [{"kind": "transpose"}] if family.ndims == 2 else []
    for relation in (*RELATIONS, *shifts, *more):
        wanted = relations.partners(relation, at)
        assert [
            plain_partners.partners(relation, r, n, plain) for r in range(n)
        ] == wanted.T.tolist(), relation
