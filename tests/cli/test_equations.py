"""What people see of a model on a terminal: the page, one phase, what to trace next."""

from __future__ import annotations

import shlex
import unicodedata
from dataclasses import replace
from pathlib import Path

import corpus
import models
import pytest
from commands import cli

from p3s.base.errors import UsageError
from p3s.base.study import Study, write_json
from p3s.laws.expr import num
from p3s.model.holdout import build_model
from p3s.model.law_types import Amount, CountLaw, SizeLaw
from p3s.model.nextcount import Question, next_counts
from p3s.model.notation import TEXT
from p3s.model.partners.relation import Shift
from p3s.model.reasons import Verdict
from p3s.model.stage import as_file
from p3s.model.text import destination, partner
from p3s.model.types import NO_SHARE, Model, Share
from p3s.report import equations, explain
from p3s.report import next as next_
from p3s.report.show import wrap_cell

WIDTH = 100


def explanation(model: Model, phase: int, call: int | None = None, everything: bool = False) -> str:
    """Return what p3s explain prints of a phase, without places."""
    return explain.render(model, {}, phase, call, everything)


def printable(text: str) -> bool:
    return not any(
        unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        for c in text.replace("\n", "")
    )


@pytest.mark.parametrize("name", models.ALL)
@pytest.mark.parametrize("everything", [False, True])
def test_pages_fit_and_hold_nothing_a_terminal_obeys(name, everything):
    model = models.ALL[name]()
    pages = [equations.render(model, {}, everything), next_.render(model, "p3s characterize")]
    pages += [explanation(model, k, None, everything) for k in range(len(model.phases))]
    for page in pages:
        assert page and printable(page)
        assert all(len(line) <= WIDTH for line in page.split("\n")), max(page.split("\n"), key=len)


def test_a_phase_has_destination_volume_weight_and_verdict():
    page = equations.render(models.built("jacobi2d"))
    assert "process grid: 2-D" in page and "weight w = 3  [exact]" in page
    row = next(line for line in page.split("\n") if " Isend " in line and "c0 - 1" in line)
    assert "to c0 - 1" in row and "8*block_first(61, p1, c1)" in row
    assert row.split()[-1] in ("exact", "ambiguous", "fitted"), "the verdict is the last column"
    assert "block_first(L, p, c) block c of L in p blocks, one more in the first" in " ".join(
        page.split()
    )
    assert "messages" in page and "hold-out: fitted without 12 processes" in page


def test_the_only_coordinate_is_the_rank():
    page = equations.render(models.built("ring"))
    assert "(r + 1) mod n" in page and "c0" not in page and "p0" not in page


def test_hundreds_of_calls_are_cut_and_said_so():
    model = models.many()
    page = equations.render(model)
    assert len(page.split("\n")) < 100
    assert "more rules with" in page and "--all shows them" in page
    assert len(equations.render(model, {}, True).split("\n")) > 600
    shown = explanation(model, 1)
    assert "more calls of this phase: --all shows them" in shown


def test_the_largest_share_comes_first():
    model = models.built("cg")
    shares = {
        i: Share(*(0.02 * (1 + phase.phase),) * 3) for phase in model.phases for i in phase.items
    }
    items = tuple(
        replace(item, share=shares.get(i, item.share)) for i, item in enumerate(model.items)
    )
    model = replace(model, items=items)
    page = equations.render(model)
    order = [
        int(line.split()[1].rstrip(":")) for line in page.split("\n") if line.startswith("phase ")
    ]
    assert len(order) == len(model.phases)
    time = {k: sum(model.items[i].share.time for i in p.items) for k, p in enumerate(model.phases)}
    assert order == sorted(order, key=lambda k: -time[k])


def test_calls_of_one_rule_are_one_row():
    def program(rec):
        for _ in range(4):
            for line in range(6):
                rec("Allreduce", site=f"prog.py:step:{line + 1}", nbytes=8)

    model = build_model([corpus.table(program, n) for n in (2, 4, 8)])
    page = equations.render(model)
    rows = [line for line in page.split("\n") if " Allreduce " in line and " on all ranks " in line]
    assert len(rows) == 1 and "+5" in rows[0]
    assert "step prog.py:1-6" in page


def test_cells_break_where_people_would():
    assert wrap_cell("240*ceil(25/p0)*ceil(25/p1)", 16) == ["240*ceil(25/p0)*", "ceil(25/p1)"]
    assert wrap_cell("2*n**(-1/2) + 1", 11) == ["2*n**(-1/2)", "+ 1"]
    assert wrap_cell("Neighbor_alltoallv_recv", 20) == ["Neighbor_alltoallv", "_recv"]
    assert wrap_cell("", 5) == [""] and wrap_cell("abcdefgh", 3) == ["abc", "def", "gh"]


def test_a_call_of_many_sizes_is_one_row():
    model = models.built("ring")
    first = next(i for i, item in enumerate(model.items) if item.kind == "send")
    sent = model.items[first]
    slots = tuple(
        replace(sent.slots[0], elements=SizeLaw(expr=num(size), points=4, free=1))
        for size in (3, 9, 1, 200, 17)
    )
    items = list(model.items)
    items[first] = replace(sent, slots=slots)
    model = replace(model, items=tuple(items))
    page = equations.render(model)
    row = next(line for line in page.split("\n") if line.startswith(f"  {first} "))
    assert "8..1,600, 5 sizes" in row and f"  {first}.0" not in page


def test_turns_and_what_changes_with_them_are_named():
    page = equations.render(models.turned())
    assert "t iteration of the loop" in " ".join(page.split())
    assert "root t" in page and "in 4 iterations t = 0, 1, ..." in page
    assert " in phase 1 (w = 2): " in page, "a loop without calls of its own"


def test_a_relation_reads_as_a_function():
    shift = Shift(vec=(0, -2), wrap=(False, True))
    assert partner(shift) == "(c1 - 2) mod p1"
    assert partner(Shift(vec=(3,), wrap=(False,))) == "r + 3"
    assert partner(None) == "?"
    model = models.built("ring")
    sent = next(i for i in model.items if i.kind == "send")
    assert destination(sent, sent.slots[0]) == "(r + 1) mod n"
    assert TEXT.in_words_of(model, "c0 mod 2 == 0 and p0 > 2") == "r mod 2 == 0 and n > 2"
    assert TEXT.volume(replace(sent, kind="completion"), sent.slots[0]) == ""
    assert TEXT.law(CountLaw(follows=(1,), factor=(1, 2))) == "as posted x 1/2"


# ---- explain -----------------------------------------------------------------------------------
def test_explain_puts_traced_values_beside_the_rules():
    def program(rec):
        if rec.rank in (0, 3) or (rec.n == 16 and rec.rank % 5 == 1):
            rec("Barrier")
        size = 1001 // rec.n + (rec.rank < 1001 % rec.n)
        rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=8 * size)

    model = build_model([corpus.table(program, n) for n in (4, 7, 11, 16)])
    items = tuple(
        replace(item, verdict=Verdict.EXACT, why=()) if item.kind == "send" else item
        for item in model.items
    )
    model = replace(model, items=items)
    page = explanation(model, 0)
    assert "5 (rules 0)" in page and "none" in page
    assert "unknown: no rule found for which ranks take part" in page
    sent = next(k for k, i in enumerate(model.items) if i.kind == "send")
    one = explanation(model, 0, sent)
    assert "9 like rank 0" in one and "1 of 504 B, partner 1" in one and "the same" in one
    assert "the simplest law that reproduces 4 counts" in one
    assert (
        "exact: every call at every traced count is as the rules say, and by the fit without "
        "16 processes" in " ".join(one.split())
    )
    assert "phase 0" not in one.split("\n")[0]


def test_explain_names_what_fits_as_well():
    def program(rec):
        size = -(-1007 // rec.n)
        mine = min(1007, (rec.rank + 1) * size) - min(1007, rec.rank * size)
        rec("Sendrecv", peer=(rec.rank + 1) % rec.n, nbytes=8 * mine)

    model = build_model([corpus.table(program, n) for n in (2, 4, 8, 16)])
    page = " ".join(explanation(model, 0).split())
    assert "ambiguous:" in page and "fits as well: " in page
    said = next_.render(model, "p3s characterize -n 3")
    assert f"{model.next[0].n} processes" in said and "p3s characterize -n 3" in said
    assert "open now: 1 call with" in said


@pytest.mark.parametrize(
    ("phase", "call", "says"),
    [
        (99, None, "PHASE 99: the model has phases 0 to 1"),
        (-1, None, "phases 0 to 1"),
        (1, 999, "CALL 999: phase 1 has the calls "),
    ],
)
def test_explain_refuses_numbers_that_are_not_there(phase, call, says):
    with pytest.raises(UsageError, match=says):
        explanation(models.built("jacobi2d"), phase, call)


# ---- commands ----------------------------------------------------------------------------------
LAUNCH = ["mpiexec", "-n", "{np}", "./my app", "--nx=97"]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    made = Study.create(tmp_path / "a study", LAUNCH)
    monkeypatch.setattr("p3s.pipeline.stages.ensure_model", lambda *_, **__: None)
    write_json(made.model_path, as_file(models.built("halo3d")))
    return made


def test_next_prints_a_command_that_can_be_run(study):
    last = cli("next", study.root).out.strip().split("\n")[-1]
    counts = sorted(each.n for each in models.built("halo3d").next)
    assert counts
    assert shlex.split(last) == [
        "p3s",
        "characterize",
        "-n",
        ",".join(map(str, counts)),
        "-o",
        str(study.root),
        "--",
        *LAUNCH,
    ]
    assert "{np}" in last and "'{np}'" not in last
    found = cli("next", study.root, "--json").data
    assert found["schema"] == "p3s.next" and found["counts"][0]["n"] == counts[-1]
    assert found["command"] == shlex.split(last)


@pytest.mark.parametrize(("least", "proposed"), [(9, 9), (13, 16), (17, 18), (33, 36), (63, 64)])
def test_next_proposes_a_round_count_where_it_decides_as_much(
    least: int, proposed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks a batch system for 13, 17 or 63 processes where 16, 18 or 64 tell the same."""
    asked = Question("who the partners are", 1.0, lambda grid: grid.n >= least)
    monkeypatch.setattr("p3s.model.nextcount.questions", lambda *_: [asked])
    assert [each.n for each in next_counts(models.built("halo3d"))] == [proposed]


def test_next_with_nothing_open_says_so(study):
    model = models.built("ring")
    shares = {**model.shares, "ambiguous": Share(0.5, 0.5, 0.5)}
    model = replace(model, next=(), shares=shares)
    write_json(study.model_path, as_file(model))
    assert cli("next", study.root, "--json").data["counts"] == []
    assert "are ambiguous, but no count" in " ".join(cli("next", study.root).out.split())
    items = tuple(replace(item, verdict=Verdict.EXACT) for item in model.items)
    model = replace(model, items=items, shares={**shares, "ambiguous": NO_SHARE})
    write_json(study.model_path, as_file(model))
    cli("next", study.root, out="No further count is known to decide anything")


def test_explain_as_a_command(study):
    cli("explain", study.root, "1", out="phase 1: ")
    found = cli("explain", study.root, "1", "--json").data
    assert found["schema"] == "p3s.explain" and found["phase"]["phase"] == 1
    assert {call["call"] for call in found["calls"]} == set(found["phase"]["items"])
    assert all(call["measured"] and call["place"] for call in found["calls"])
    assert cli("explain", study.root, "99", code=2).err.startswith("p3s: PHASE 99: ")


def test_hostile_names_on_the_command_line(study):
    write_json(study.model_path, as_file(models.hostile()))
    for words in (["next"], ["explain", "1", "--all"]):
        streams = cli(words[0], study.root, *words[1:])
        assert printable(streams.out) and printable(streams.err)


def test_model_as_latex_python_or_json_but_one_of_them(study):
    text = cli("model", study.root, "--latex", code=3).out  # its hold-out missed messages
    assert text.startswith("% Equations fitted at 2, 4, 8 processes")
    source = cli("model", study.root, "--python", code=3).out
    assert source.startswith('"""Equations of an MPI program') and "\nPHASES = phases(" in source
    assert cli("model", study.root, "--json", code=3).data["schema"] == "p3s.model"
    cli("model", study.root, "--all", code=3, out="process grid: ")
    cli("model", study.root, "--latex", "--json", code=2, err="--latex: not with --json")


def test_a_statistical_size_is_said_in_bytes():
    expr = ["add", ["mul", ["num", 11512345, 100000], ["pow", ["sym", "n"], -1, 2]], ["num", 3, 1]]
    sent = next(i for i in models.built("ring").items if i.kind == "send")
    slot = replace(sent.slots[0], elements=SizeLaw(stat=Amount(expr, 0.1, 16, 4)), elem_bytes=8)
    assert TEXT.volume(sent, slot) == "about 24 + 921.0/sqrt(n)"
