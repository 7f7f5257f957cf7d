"""p3s place and p3s predict --placement: ranking, files for launchers, what is refused."""

from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import cli
from machines import synthetic
from named_studies import costed

from p3s.base.schemas import first_problem, load_schema
from p3s.base.study import Study, read_json
from p3s.cli.main import app
from p3s.machine.topology.read import read_fabric
from p3s.methods.placement.costs import network_id
from p3s.methods.placement.learned import Settings, Way, learn, load, save
from p3s.methods.placement.ranked.types import path_of
from p3s.simulate.network import network_from_machine

typer_testing = pytest.importorskip("typer.testing")

#: Messages between two hosts: 20 us, 10 ns per byte; inside one 1 us, 0.1 ns per byte.
SIZES: dict[str, Any] = {
    "bytes": [1, 1000, 100_000],
    "one_way_ns": [20_000.0, 30_000.0, 1_020_000.0],
    "one_way_median_ns": [20_000.0, 30_000.0, 1_020_000.0],
    "send_ns": [100.0, 200.0, 400.0],
    "receive_ns": [80.0, 130.0, None],
    "gap_ns": [100.0, 10_000.0, 1_000_000.0],
}
INSIDE = {
    **SIZES,
    "one_way_ns": [1000.0, 1100.0, 11_000.0],
    "one_way_median_ns": [1000.0, 1100.0, 11_000.0],
}
NETWORK: dict[str, Any] = {
    "hosts": ["n0", "n1"], "mpi": "openmpi 4.1.4", "eager_bytes": 4000, "ranges": [],
    "sizes": SIZES,
    "inside": {"hosts": ["n0", "n0"], "eager_bytes": 4000, "ranges": [], "sizes": INSIDE},
}  # fmt: skip
TREE = ("--topology", "fat-tree:2,1@800Mbit/s,5us")
FEW = ("--candidates", "10")
#: The table of what changes save takes most of the time, and is tested elsewhere.
NO_TABLE = ("--what-if", "none")
NODES = (*TREE, "--nodes", "4", "--ppn", "4", *FEW)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A study of a ring with an allreduce, in instructions that cost 0.3 ns, nothing replayed."""
    study = Study.open(costed(tmp_path_factory.mktemp("m")))
    replace(synthetic(name="box"), network=NETWORK).save(study.root / "machine.json")
    return study


@pytest.fixture
def study(made: Study, tmp_path: Path) -> Study:
    shutil.copytree(made.root, tmp_path / "study")
    return Study.open(tmp_path / "study")


def place(study: Study, *words: str) -> dict[str, Any]:
    data = cli(f"place {study.root} -n 16 --json", *words, code=(0, 3)).data
    assert first_problem(data, load_schema("placement-2")) == ""
    return data


def refused(study: Study, *words: str) -> tuple[int, str]:
    before = {path: path.read_bytes() for path in study.root.rglob("placement/*")}
    said = cli(f"place {study.root} -n 16", *words, code=None)
    assert said.out == "" and {p: p.read_bytes() for p in study.root.rglob("placement/*")} == before
    (error,) = said.said
    return said.code, error


def test_neighbours_of_a_ring_belong_on_one_node(study: Study) -> None:
    found = place(study, *NODES)
    ranked = {one["name"]: one for one in found["ranked"] if one["time_s"] is not None}
    assert found["ranked"][0]["time_s"] == min(one["time_s"] for one in ranked.values())
    assert ranked["block"]["time_s"] < ranked["cyclic"]["time_s"]
    assert sum(one["chance"] for one in ranked.values()) == pytest.approx(1.0)
    assert found["matters"] and found["network"].startswith("fat tree")
    for one in ranked.values():
        assert one["low_s"] <= one["time_s"] <= one["high_s"] and one["regret"] >= 0
        assert np.bincount(one["node_of"], minlength=4).tolist() == [4, 4, 4, 4]
        assert sum(p["time_s"] for p in one["phases"]) == pytest.approx(one["time_s"])
    assert read_json(path_of(study.root, 16), "p3s.placement", 2) == found


def test_what_is_printed_says_what_to_do_first() -> None:
    done = typer_testing.CliRunner().invoke(app, ["place", "--help"])
    assert done.exit_code == 0 and "--topology" in done.output


def test_the_text_names_the_choice_and_the_phases(study: Study) -> None:
    said = cli(f"place {study.root} -n 16", *NODES, code=(0, 3)).out
    assert said.startswith("16 processes on 4 nodes with room for 4 each, fat tree")
    assert "cyclic" in said and "faster than cyclic" in said


def test_trees_without_a_common_root_are_told(study: Study) -> None:
    file = study.root.parent / "topology.conf"
    file.write_text("SwitchName=a Nodes=n[0-7]\nSwitchName=b Nodes=n[8-15]\n")
    words = ("-n", "16", "--topology", str(file), "--nodes", "4", "--ppn", "4", *FEW)
    for command in ("place", "predict"):
        given = words if command == "place" else (*words[:4], *NO_TABLE, "--verbose")
        said = cli(command, study.root, *given, code=(0, 3))
        text = " ".join((said.err if command == "place" else said.out).split())
        assert "2 trees of switches (a, b) have no common root" in text


def test_csv_has_every_candidate(study: Study) -> None:
    rows = list(
        csv.DictReader(
            io.StringIO(cli(f"place {study.root} -n 16", *NODES, "--csv", code=(0, 3)).out)
        )
    )
    found = read_json(path_of(study.root, 16), "p3s.placement", 2)["ranked"]
    assert [row["placement"] for row in rows] == [one["name"] for one in found]


def test_the_file_is_read_by_predict(study: Study) -> None:
    path = study.root.parent / "ranks"
    found = place(study, *NODES, "--write", str(path))
    assert path.read_text().startswith("rank 0=+n")
    cli(f"predict {study.root} -n 32", *TREE, *NO_TABLE, code=(0, 3))
    times = {}
    for name, words in (("file", ("--placement", str(path))), ("cyclic", ())):
        if name == "cyclic":
            hosts = "".join(f"+n{rank % 4}\n" for rank in range(16))
            (study.root.parent / "cyclic").write_text(hosts)
            words = ("--placement", str(study.root.parent / "cyclic"))
        cli(f"predict {study.root} -n 16", *TREE, *NO_TABLE, *words, code=(0, 3))
        result = read_json(study.prediction_path, "p3s.prediction", 4)
        row = next(row for row in result["counts"] if row["n"] == 16)
        assert max(row["n"] for row in result["counts"]) == 16
        times[name] = row["model_s"]
        assert row["estimator"] == "machine"
        assert any("ranks are on nodes as" in note for note in result["notes"])
    first = found["ranked"][0]
    assert times["file"] < times["cyclic"]
    assert times["file"] == pytest.approx(first["time_s"], rel=0.1)


@pytest.mark.parametrize(
    ("name", "begin"), [("openmpi", "rank 0=n1 slot=0"), ("mpich", "n1:"), ("slurm", "n1\n")]
)
def test_hosts_by_name(study: Study, name: str, begin: str) -> None:
    path = study.root.parent / "ranks"
    words = (*NODES, "--hosts", "n[1-4]", "--simulate", "1", "--format", name, "--write", str(path))
    found = place(study, *words)
    assert found["hosts"] == ["n1", "n2", "n3", "n4"]
    assert path.read_text().startswith(begin) or found["ranked"][0]["node_of"][0] != 0
    told = ("--placement", str(path), "--hosts", "n[1-4]")
    cli(f"predict {study.root} -n 16 --only", *TREE, *NO_TABLE, *told, code=(0, 3))


def test_without_simulation_times_are_sums(study: Study) -> None:
    found = place(study, *NODES, "--simulate", "0")
    first = found["ranked"][0]
    assert found["estimator"] == "" and first["time_s"] is not None
    comm = sum(phase["comm_s"] for phase in first["phases"])
    assert comm == pytest.approx(first["cost_s"])


def test_several_counts_tell_which_are_worth_it(study: Study) -> None:
    words = ["place", str(study.root), "-n", "8,16", "--ppn", "2,4", *TREE, *FEW, "--json"]
    data = cli(*words, code=(0, 3)).data
    rows = data["configurations"]
    assert {(row["n"], row["ppn"], row["nodes"]) for row in rows} == {
        (8, 2, 4), (8, 4, 2), (16, 2, 8), (16, 4, 4)
    }  # fmt: skip
    assert [row["time_s"] for row in rows] == sorted(row["time_s"] for row in rows)
    assert any(row["cores_front"] == 0 for row in rows)
    assert cli(*words[:-1], "--csv", code=(0, 3)).out.startswith("n,nodes,ppn,time_s")
    assert cli(*words[:-1], code=(0, 3)).out.startswith("Fastest: ")


def learned(path: Path, machine: str, network: str, **card: Any) -> None:
    """Learn a model; ``card``: what is said of it beside machine and network."""
    pytest.importorskip("sklearn")
    names = ("ND(max)", "PM(max)")
    rng = np.random.default_rng(0)
    rows = [dict(zip(names, rng.uniform(1, 1e6, 2), strict=True)) for _ in range(40)]
    seconds = np.array([1e-6 + 1e-8 * row["ND(max)"] for row in rows])
    way = Way(names, settings=Settings(trees=20))
    model = learn(rows, seconds, np.arange(40) % 8, way, machine=machine, network=network)
    save(path, replace(model, card=replace(model.card, **card)))


def test_a_learned_model_sorts(study: Study) -> None:
    path = study.root.parent / "model.json"
    network = network_id(read_fabric(TREE[1], 4))
    learned(path, "box", network)
    found = place(study, *NODES, "--simulate", "2", "--model", str(path))
    assert found["cost"] == "times learned on box"
    learned(path, "other", network)
    code, error = refused(study, *NODES, "--model", str(path))
    assert code == 1 and "is of machine other, not of box" in error and "--name box" in error


def test_a_model_that_missed_unseen_phases_is_a_reason(study: Study) -> None:
    path = study.root.parent / "model.json"
    learned(path, "box", network_id(read_fabric(TREE[1], 4)))
    card = load(path).card
    assert card.scores is not None
    poor = replace(card, scores=replace(card.scores, mmre=7.1))
    save(path, replace(load(path), card=poor))
    for simulated, against in (("0", True), ("2", False)):
        found = place(study, *NODES, "--simulate", simulated, "--model", str(path))
        (reason,) = [each for each in found["reasons"] if each["code"] == "learned-off"]
        assert "by 710.0 % (limit 44.8 %)" in reason["text"]
        assert reason["untrustworthy"] is against  # simulated times are not the model's


def test_a_model_of_a_machine_that_has_no_name_sorts(study: Study) -> None:
    path = study.root.parent / "model.json"
    network = network_id(read_fabric(TREE[1], 4))
    learned(path, "openmpi 4.1.4", network, named=False, topology=TREE[1])
    told = ("--nodes", "4", "--ppn", "4", *FEW, "--model", str(path))
    found = place(study, *TREE, *told, "--simulate", "2")
    assert found["cost"] == "times learned on openmpi 4.1.4"
    code, error = refused(study, *told)
    assert code == 1 and f"give --topology {TREE[1]}" in error


@pytest.mark.parametrize(("times", "fits"), [(1.0, True), (2.0, True), (5.0, False), (0.1, False)])
def test_machines_are_told_apart_by_what_messages_cost(
    study: Study, times: float, fits: bool
) -> None:
    path = study.root.parent / "model.json"
    learned(path, "openmpi 4.1.4", network_id(read_fabric(TREE[1], 4)), named=False)
    slower = {**SIZES, "one_way_ns": [times * ns for ns in SIZES["one_way_ns"]]}
    own = network_from_machine({"name": "other", "network": {**NETWORK, "sizes": slower}})
    save(path, replace(load(path), network=own))
    words = (*NODES, "--simulate", "0", "--model", str(path))
    if fits:
        place(study, *words)
        return
    code, error = refused(study, *words)
    assert code == 1 and "is of another machine: its messages take" in error


def test_what_is_refused_writes_no_scaled_trace(study: Study) -> None:
    path = study.root.parent / "model.json"
    learned(path, "other", network_id(read_fabric(TREE[1], 4)))
    before = sorted(study.root.rglob("*"))
    refused(study, *NODES, "--model", str(path))
    refused(study, *TREE, "--nodes", "3", "--ppn", "4")
    told = (*TREE, "--model", path)
    cli(f"place {study.root} -n 16,32 --ppn 4", *told, code=1, err="is of machine other")
    assert sorted(study.root.rglob("*")) == before


def test_hosts_that_a_network_does_not_have(study: Study) -> None:
    path = study.root.parent / "topology.conf"
    path.write_text("SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7]\n"
                    "SwitchName=top Switches=s[0-1]\n")  # fmt: skip
    told = ("--topology", str(path), "--ppn", "4", *FEW)
    found = place(study, *told, "--nodes", "4", "--simulate", "1")
    assert found["hosts"] == ["n0", "n1", "n2", "n3"], "those of the file, in its order"
    path_of(study.root, 16).unlink()
    code, error = refused(study, *told, "--hosts", "n0,n1,n2,x9")
    assert code == 1 and "does not name node x9" in error
    path.write_text("SwitchName=a Switches=b\nSwitchName=b Switches=a\n")
    code, error = refused(study, *told, "--nodes", "4")
    assert code == 1 and str(path) in error


def test_the_report_shows_placements(study: Study) -> None:
    place(study, *NODES, "--simulate", "3")
    cli(f"predict {study.root} -n 16", *TREE, *NO_TABLE, code=(0, 3))
    cli(f"report {study.root}", code=(0, 3))
    page = study.report_path.read_text()
    assert 'id="placements"' in page


def test_cores_of_a_node_are_in_the_rankfile(study: Study) -> None:
    node, path = study.root.parent / "node.xml", study.root.parent / "ranks"
    core = '<object type="Core"/>'
    socket = f'<object type="Package">{core * 2}</object>'
    node.write_text(f'<topology><object type="Machine">{socket * 2}</object></topology>')
    words = (*TREE, *FEW, "--simulate", "1", "--inside", str(node))
    found = place(study, *words, "--write", str(path))
    assert found["slots"] == [4] * 4, "as many ranks as cores"
    slots = {line.rsplit("=", 1)[1] for line in path.read_text().splitlines()}
    assert slots == {"0:0", "0:1", "1:0", "1:1"}
    path_of(study.root, 16).unlink()
    for more, why in (
        ((), "give --write for Open MPI"),
        (("--write", str(path), "--format", "mpich"), "give --write for Open MPI"),
        (("--write", str(path), "--ppn", "8"), "has 4 cores, a node gets 8 ranks"),
    ):
        code, error = refused(study, *words, *more)
        assert code == 2 and why in error
    code, error = refused(study, *NODES, "--write", str(path), "--format", "mpich")
    assert code == 2 and "needs the names of the hosts" in error
