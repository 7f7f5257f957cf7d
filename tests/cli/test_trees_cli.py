"""``p3s baseline`` with trees: grow, check, predict, advise; bad input in one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import hybrid_machine as machine
import numpy as np
import pytest
from commands import cli
from named_studies import FIT_TREE, TRAINING, written

from p3s.methods.baseline.trees.types import Table

VALIDATION = machine.workloads(machine.VALIDATION["nb"])[2:-8:6]
NODE = (
    '<topology version="2.0"><object type="Machine"><object type="Package">'
    + '<object type="L2Cache"><object type="Core"/><object type="Core"/></object>' * 2
    + "</object></object></topology>"
)


EXPRESSION = ["--expression", machine.EXPRESSION["nb"]]
ASK = ["--input", "workload=5000"]


@pytest.fixture
def files(named: Callable[[str], Path], tmp_path: Path) -> dict[str, Path]:
    """Runs, those of fresh workloads, and a tree, to be changed."""
    for path in named("TREES").iterdir():
        shutil.copy(path, tmp_path)
    return {name: tmp_path / f"{name}.csv" for name in ("train", "fresh")} | {
        "tree": tmp_path / "tree.json"
    }


def said(words: list[str], code: int = 0) -> str:
    return cli(*words, code=code).out


def test_fit_tells_what_it_grew(files: dict[str, Path]) -> None:
    words = [*FIT_TREE, str(files["train"]), "-o", str(files["tree"]), "--expression"]
    split = (machine.EXPRESSION["nb"], "--split", "workload,workers,w1")
    after = f"next: p3s baseline check {files['tree']}"
    cli(*words, *split, out=("1,120 runs at 20 workloads", "splits on"), err=after)
    found = json.loads(said([*words, machine.EXPRESSION["nb"], "--json"]))
    assert found["schema"] == "p3s.tree" and found["others"] == 1
    assert found["tree"]["expression"] == machine.EXPRESSION["nb"]
    assert found["workers"] == [float(k) for k in machine.WORKERS]
    assert files["tree"].with_name("tree.json.1").exists(), "the tree before is kept"


def test_check(files: dict[str, Path]) -> None:
    words = ["baseline", "check", str(files["tree"])]
    out = said([*words, str(files["fresh"])])
    assert "the tree passes: median error" in out and "advice, as workers x threads" in out
    found = json.loads(said([*words, str(files["fresh"]), "--json"]))
    assert found["verdict"]["passed"] and len(found["best"]) == len(VALIDATION)
    assert sum(found["kinds"].values()) == pytest.approx(1)
    out = said([*words, str(files["train"])], 3)
    assert "errors of the tree's own runs" in out and "workload" in out


def test_a_tree_that_does_not_pass(files: dict[str, Path], tmp_path: Path) -> None:
    noisy = written(tmp_path / "noisy.csv", machine.runs("nb", VALIDATION, 0.5, 1))
    out = said(["baseline", "check", str(files["tree"]), str(noisy)], 3)
    assert "does not pass (median" in out and "measure next: workload" in out


def test_advise(files: dict[str, Path]) -> None:
    words = ["baseline", "advise", str(files["tree"]), *ASK, "--max-cores", "24"]
    found = json.loads(said([*words, "--json"]))
    assert len(found["best"]) == 3
    for best in found["best"]:
        assert best["workers"] * best["threads"] <= 24 and best["n"] == best["workers"] + 1
    assert (found["best"][0]["workers"], found["best"][0]["threads"]) == (4, 4)
    out = said([*words, "--top", "5", "--objective", "core-hours"])
    assert len(out.splitlines()) == 6 and "core hours" in out
    asked = ["-n", "3,5-7", "--threads", "2-3"]
    found = json.loads(said([*words, *asked, "--top", "99", "--json"]))
    assert {(b["n"], b["threads"]) for b in found["best"]} == {
        (n, t) for n in (3, 5, 6, 7) for t in (2, 3)
    }
    said([*words[:3], "--input", "W=1e9"], 3)


def test_predict(files: dict[str, Path]) -> None:
    words = ["baseline", "predict", str(files["tree"]), "-n", "5,9", *ASK]
    found = json.loads(said([*words, "--input", "threads=4", "--json"]))
    true, _ = machine.times("nb", np.full(2, 5000.0), np.array([4.0, 8.0]), np.array([4, 4]))
    assert [r["value"] for r in found["configurations"]] == pytest.approx(true, rel=0.06)
    words[4] = "99"
    assert "outside the runs" in said([*words, "--input", "threads=4"], 3)


def test_the_index(files: dict[str, Path]) -> None:
    tree = files["tree"].with_name("index.json")
    cli(*FIT_TREE, files["train"], "-o", tree, "--target", "index")
    words = ["--input", "workload=20000", "--json", "--top", "1", "--objective"]
    time = json.loads(said(["baseline", "advise", str(files["tree"]), *words, "time"]))
    index = json.loads(said(["baseline", "advise", str(tree), *words, "index"]))
    assert index["best"][0]["workers"] < time["best"][0]["workers"]
    cli(f"baseline advise {tree}", *words, "time", code=2)


def test_pruned_with_workloads_kept_out(files: dict[str, Path]) -> None:
    tree = files["tree"].with_name("pruned.json")
    words = [*FIT_TREE, str(files["train"]), "-o", str(tree), "--validate", "4", "--json"]
    whole = json.loads(said(words))
    out = cli(f"baseline check {tree} {files['train']} --json", code=(0, 3)).out
    assert len(json.loads(out)["best"]) == 20 - len(whole["tree"]["workloads"]) == 4
    pruned = json.loads(said([*words, "--prune"]))
    assert len(pruned["tree"]["nodes"]) <= len(whole["tree"]["nodes"])
    assert len(pruned["tree"]["workloads"]) == 20


def test_placement(tmp_path: Path) -> None:
    """Far runs are slower by a third: the tree splits on the placement, and advises close."""
    node = tmp_path / "node.xml"
    node.write_text(NODE)
    runs = machine.runs("nb", TRAINING, 0.02, 0)
    close = written(tmp_path / "close.csv", runs, ",affinity", ",close").read_text()
    far = Table(runs.columns, 1.33 * runs.y)
    far_text = written(tmp_path / "far.csv", far, ",affinity", ",far").read_text()
    both = tmp_path / "both.csv"
    both.write_text(close + far_text.partition("\n")[2])
    tree = tmp_path / "tree.json"
    words = [*FIT_TREE, str(both), "-o", str(tree), "--node", str(node), "--per-node", "1"]
    found = json.loads(said([*words, "--json"]))
    assert {"l2_0", "l2_1", "affinity"} <= set(found["tree"]["variables"])
    assert found["affinities"] == ["close", "far"] and len(found["cores"]) == 4
    asked = ["baseline", "predict", str(tree), "-n", "5", *ASK, "--input", "threads=2", "--json"]
    value = {
        word: json.loads(said([*asked, "--affinity", word]))["configurations"][0]["value"]
        for word in ("close", "far")
    }
    assert value["far"] / value["close"] == pytest.approx(1.33, rel=0.05)
    # One configuration alone, or among others: the same.
    many = ["baseline", "advise", str(tree), *ASK, "--top", "999", "--json"]
    for best in json.loads(said(many))["best"]:
        if (best["n"], best["threads"]) == (5, 2):
            assert best["time"] == value[best["affinity"]]
    advice = ["baseline", "advise", str(tree), *ASK, "--threads", "2", "--json"]
    assert json.loads(said(advice))["best"][0]["affinity"] == "close"
    best = json.loads(said([*advice, "--threads", "1-9", "--top", "999"]))["best"]
    assert {b["threads"] for b in best} == {1, 2, 3, 4}, "a node has four cores"
    cli(*asked, code=2, err="say it: one of close, far")
    cli(*asked, "--affinity", "here", code=2, err="its runs had close, far")
