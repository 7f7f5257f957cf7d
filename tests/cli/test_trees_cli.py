"""``p3s baseline`` with trees: grow, check, predict, advise; bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path

import hybrid_machine as machine
import numpy as np
import pytest
from commands import cli

from p3s.methods.baseline.trees.types import Table

TRAINING = machine.workloads(machine.TRAINING["nb"])[::3]
VALIDATION = machine.workloads(machine.VALIDATION["nb"])[2:-8:6]
NODE = (
    '<topology version="2.0"><object type="Machine"><object type="Package">'
    + '<object type="L2Cache"><object type="Core"/><object type="Core"/></object>' * 2
    + "</object></object></topology>"
)


def written(path: Path, runs: Table, more: str = "", cells: str = "") -> Path:
    """Write runs with a master process beside the workers, and their computation."""
    c = runs.columns
    k, t = c["workers"], c["threads"].astype(int)
    exact, computed = machine.times("nb", c["workload"], k, t)
    rows = [f"n,threads,workload,seconds,t_c{more}"]
    for i in range(len(runs)):
        rows.append(
            f"{k[i] + 1:g},{t[i]},{c['workload'][i]:g},{runs.y[i]!r},"
            f"{computed[i] * runs.y[i] / exact[i]!r}{cells}".replace("np.float64(", "").replace(
                ")", ""
            )
        )
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("trees")
    train = written(home / "train.csv", machine.runs("nb", TRAINING, 0.02, 0))
    fresh = written(home / "fresh.csv", machine.runs("nb", VALIDATION, 0.02, 1))
    tree = home / "tree.json"
    cli(*FIT, train, "-o", tree, *EXPRESSION)
    return {"train": train, "fresh": fresh, "tree": tree}


FIT = ["baseline", "fit", "--family", "tree", "--workers", "n-1"]
EXPRESSION = ["--expression", machine.EXPRESSION["nb"]]
ASK = ["--input", "workload=5000"]


def said(words: list[str], code: int = 0) -> str:
    return cli(*words, code=code).out


def test_fit_tells_what_it_grew(files: dict[str, Path]) -> None:
    words = [*FIT, str(files["train"]), "-o", str(files["tree"]), "--expression"]
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
    cli(*FIT, files["train"], "-o", tree, "--target", "index")
    words = ["--input", "workload=20000", "--json", "--top", "1", "--objective"]
    time = json.loads(said(["baseline", "advise", str(files["tree"]), *words, "time"]))
    index = json.loads(said(["baseline", "advise", str(tree), *words, "index"]))
    assert index["best"][0]["workers"] < time["best"][0]["workers"]
    cli(f"baseline advise {tree}", *words, "time", code=2)


def test_pruned_with_workloads_kept_out(files: dict[str, Path]) -> None:
    tree = files["tree"].with_name("pruned.json")
    words = [*FIT, str(files["train"]), "-o", str(tree), "--validate", "4", "--json"]
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
    words = [*FIT, str(both), "-o", str(tree), "--node", str(node), "--per-node", "1"]
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


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--expression", "exp(b1*W)"], "not linear in its coefficients"),
        (["--expression", "b1*size"], "size is no variable here"),
        (["--split", "size"], "size: is no variable of these runs"),
        (["--workers", "n+1"], "write n, or n-1"),
        (["--workers", "n-3"], "a run of 3 has no worker"),
        (["--workload", "size"], "is no column of numbers"),
        (["--target", "speed"], "is none; one of time, index, core-index"),
        (["--target", "core-index"], "no column with the seconds of busy threads"),
        (["--validate", "1"], "leaves no workload"),
        (["--prune"], "needs workloads to prune with"),
        (["--where", "threads=7"], "no run of the whole program counts"),
    ],
)
def test_what_cannot_be_fitted(
    files: dict[str, Path], tmp_path: Path, words: list[str], why: str
) -> None:
    out = tmp_path / "tree.json"
    err = cli(*FIT, files["train"], "-o", out, *words, code=(1, 2)).err
    assert why in err and err.count("\n") == 1 and not out.exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["advise", "TREE"], "give it: --input workload=2000"),
        (["advise", "TREE", *ASK, "--max-cores", "1"], "no configuration of workers and threads"),
        (["advise", "TREE", *ASK, "--objective", "index"], "fit one with --target index"),
        (["advise", "TREE", *ASK, "--objective", "joy"], "objective joy: is none"),
        (["advise", "TREE", *ASK, "-n", "1"], "1 process of it works not"),
        (["advise", "TREE", *ASK, "--threads", "4-2"], "is no range of counts"),
        (["predict", "TREE", "-n", "5", *ASK], "the tree depends on threads"),
        (["predict", "TREE", "-n", "5", *ASK, "--affinity", "far"], "--affinity far"),
        (["predict", "TRAIN", "-n", "5", "--family", "tree"], "fit one first"),
        (["check", "TRAIN", "TRAIN"], "train.csv"),
        (["fit", "TRAIN", "--thesis"], "are for --family tree"),
    ],
)
def test_what_cannot_be_asked(files: dict[str, Path], words: list[str], why: str) -> None:
    if "--affinity" in words:
        words, why = [*words, "--input", "threads=2"], "affinity far: its runs had no placement"
    named = {"TREE": str(files["tree"]), "TRAIN": str(files["train"])}
    err = cli("baseline", *(named.get(word, word) for word in words), code=(1, 2)).err
    assert why in err and err.count("\n") == 1


def test_a_fitted_form_is_not_overwritten(files: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text('{"schema": "p3s.baseline", "schema_version": 1}')
    cli(*FIT, files["train"], "-o", path, code=2, err="is there and is no tree")
