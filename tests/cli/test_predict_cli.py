"""p3s predict: which estimator is taken, with and without replays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timed_study as ts
from commands import Texts, cli
from handmade import put_replay
from machines import synthetic
from named_studies import put_machine

from p3s.base.errors import P3SError
from p3s.base.study import Study, read_json

CELLS = 1 << 20


@pytest.fixture
def study(named: Callable[[str], Path], tmp_path: Path) -> Study:
    """A study of a ring with an allreduce, in instructions that cost 0.3 ns, nothing replayed."""
    return Study.open(shutil.copytree(named("COSTED"), tmp_path / "study"))


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replays take no time and find 1 ms per rank and phase; the counts that were replayed."""
    seen: list[int] = []

    def replayed(study: Study, n: int, *_: Any) -> None:
        put(study, n)
        seen.append(n)

    monkeypatch.setattr("p3s.pipeline.stages.run_replay", replayed)
    monkeypatch.setattr("p3s.pipeline.prediction._check_launch", lambda _: None)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})  # no process per count
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    return seen


def put(study: Study, n: int, **head: Any) -> None:
    phases = read_json(study.scaled_path(n), "p3s.scaled")["phases"]
    put_replay(
        study,
        n,
        [(r, p["phase"], 1e6, 0.9e6, 1.1e6) for r in range(n) for p in phases],
        nodes=["node0", "node1"],
        **head,
    )


def predicted(study: Study, *words: str, counts: str = "16", err: Texts = ()) -> dict[str, Any]:
    # The table of what changes save takes most of the time.
    asked = () if "--what-if" in words else ("--what-if", "none")
    cli(f"predict {study.root} -n", counts, "--json", *words, *asked, code=(0, 3), err=err)
    return read_json(study.prediction_path, "p3s.prediction", 4)


def counts_of(result: dict[str, Any]) -> list[int]:
    return [row["n"] for row in result["counts"]]


HOSTS = ("--hosts", "n0,n1")


def test_replays_on_named_nodes_are_made_once_and_taken(study: Study, replays: list[int]) -> None:
    put_machine(study.root / "machine.json")
    result = predicted(study, *HOSTS)
    assert replays == [2, 4, 8, 16] and result["estimator"] == "simulation"
    assert result["network"] == {"name": "replay", "label": "node0, node1", "source": "measured"}
    row = result["counts"][-1]
    assert row["comm_s"] == pytest.approx(2e-3)
    there = {name for name, entry in row["estimators"].items() if entry["time_s"] is not None}
    assert {"simulation", "machine", "thesis"} <= there and "typical" not in there
    again = predicted(study, "--estimator", "thesis")
    assert replays == [2, 4, 8, 16] and again["estimator"] == "thesis"
    assert again["counts"][-1]["estimators"]["machine"]["why_not"] == "was not asked for"


def test_links_between_switches_are_shared(study: Study, replays: list[int]) -> None:
    put_machine(study.root / "machine.json")
    free = predicted(study, "--no-replay", "--cores-per-node", "1")
    assert any("taken to be no limit; --topology" in note for note in free["notes"])
    told = ("--topology", "fat-tree:4,1@2Gbit/s,1us", "--cores-per-node", "1")
    shared = predicted(study, *told)
    assert replays == [] and shared["estimator"] == "machine"
    (note,) = [note for note in shared["notes"] if "links between switches" in note]
    assert "fat tree, 4 below a switch and 1 above, 2.00 Gbit/s each way" in note
    one, other = (result["counts"][-1]["estimators"]["machine"] for result in (free, shared))
    assert other["comm_s"] > one["comm_s"]
    assert any("further switch" in n for n in predicted(study, "--topology", "torus:16")["notes"])


def test_nothing_measured_on_a_cluster_a_typical_one_stands_for_it(
    study: Study, replays: list[int]
) -> None:
    network = "network: a typical InfiniBand HDR fat tree (infiniband-hdr)"
    result = predicted(study, err=(network, "p3s machine list", "n=16: simulated (typical)"))
    assert replays == [] and {row["estimator"] for row in result["counts"]} == {"typical"}
    assert result["network"] == {
        "name": "infiniband-hdr",
        "label": "InfiniBand HDR fat tree",
        "source": "typical",
    }
    assert all(row["model_representative"] for row in result["counts"])
    assert "not-representative" not in {reason["code"] for reason in result["reasons"]}
    row = result["counts"][-1]
    assert 10 * 1e-6 < row["comm_s"] < 10 * 100e-6
    assert row["comm_s"] == pytest.approx(row["waiting_s"] + row["transfer_s"] + row["software_s"])
    low, high = row["interval_parts"]["replay"]
    assert low < 1.0 < high, "the ranges of the published figures"
    assert row["estimators"]["simulation"]["time_s"] is None
    other = predicted(study, "--network", "ethernet-10g")
    assert other["network"]["name"] == "ethernet-10g"
    assert other["counts"][-1]["comm_s"] >= row["comm_s"]
    assert predicted(study, "--estimator", "typical")["network"] == result["network"]


def test_a_replay_here_stays_beside_a_typical_cluster(study: Study, replays: list[int]) -> None:
    predicted(study)
    for n in (2, 4, 8, 16):
        put(study, n, representative=False, why_not_representative="ranks share cores")
    result = predicted(study)
    assert result["estimator"] == "typical" and replays == []
    assert "not taken: simulation: n=2: ranks share cores" in result["estimator_why"]
    other = result["counts"][-1]["estimators"]["simulation"]
    assert other["time_s"] is not None and other["why_not"] == "ranks share cores"


def test_a_replay_that_tells_comes_before_a_typical_cluster(
    study: Study, replays: list[int]
) -> None:
    predicted(study)
    put(study, 16)
    result = predicted(study)
    assert replays == [2, 4, 8] and result["estimator"] == "simulation"
    asked = predicted(study, "--network", "slingshot")
    assert asked["estimator"] == "typical" and asked["network"]["name"] == "slingshot"


def test_costs_between_two_hosts_come_before_a_typical_cluster(
    study: Study, replays: list[int], tmp_path: Path
) -> None:
    put_machine(study.root / "machine.json", hosts=["n0", "n0"])
    assert predicted(study)["estimator"] == "typical", "one host is no network"
    file = tmp_path / "there.json"
    put_machine(file)
    result = predicted(study, "--network", str(file))
    assert result["estimator"] == "machine" and replays == []
    assert result["network"] == {"name": "box", "label": "n0, n1", "source": "measured"}
    put_machine(study.root / "machine.json")
    for words in ((), ("--no-replay",)):
        result = predicted(study, *words)
        assert replays == [] and result["estimator"] == "machine"
        assert {row["estimator"] for row in result["counts"]} == {"machine"}
    row = result["counts"][-1]
    # ten turns of a message each way of 4 KiB and an allreduce among 16
    assert 10 * 3e-6 < row["comm_s"] < 10 * 100e-6
    assert row["compute_s"] == pytest.approx(10 * ts.x_of(CELLS, 16) * 0.3e-9, rel=0.1)


def test_replays_that_are_out_of_date_are_not_read(study: Study, replays: list[int]) -> None:
    put_machine(study.root / "machine.json")
    predicted(study, *HOSTS)
    for n in (4, 16):
        study.scaled_path(n).touch()
    result = predicted(study, "--no-replay")
    rows = {row["n"]: row["estimators"]["simulation"] for row in result["counts"]}
    assert rows[2]["time_s"] is not None and rows[16]["time_s"] is None
    assert "older than the scaled trace" in rows[4]["why_not"]
    predicted(study, *HOSTS)
    assert replays == [2, 4, 8, 16, 4, 16]


def test_the_curve_keeps_its_counts(study: Study, replays: list[int]) -> None:
    assert counts_of(predicted(study, counts="16,32")) == [2, 4, 8, 16, 32]
    again = "predicted again with them: 16, 32 (--only leaves them out)"
    result = predicted(study, "--network", "slingshot", counts="64", err=again)
    assert counts_of(result) == [2, 4, 8, 16, 32, 64]
    assert {row["estimator"] for row in result["counts"]} == {"typical"}
    assert result["network"]["name"] == "slingshot", "one network for all of it"
    assert counts_of(predicted(study, "--only", counts="64")) == [2, 4, 8, 64]
    assert counts_of(predicted(study, counts="4")) == [2, 4, 8, 64]
    study.prediction_path.write_text("{}")
    damaged = predicted(study, counts="32", err="its counts are not predicted again")
    assert counts_of(damaged) == [2, 4, 8, 32]


def left_alone(study: Study, *words: str, counts: str = "16", err: Texts) -> None:
    """Run p3s predict, which must fail and leave everything as it was."""

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in study.root.rglob("*")}

    there = files()
    cli(f"predict {study.root} -n", counts, *words, code=1, err=err)
    assert files() == there


def test_a_launch_that_cannot_be_is_said_before_anything_is_written(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mpi(_: Any) -> Any:
        raise P3SError("no mpiexec on PATH")

    monkeypatch.setattr("p3s.replay.launching.find_mpi", no_mpi)
    for words in (HOSTS, ("--estimator", "thesis")):
        said = "nothing can be replayed here: no mpiexec on PATH"
        left_alone(study, *words, err=(said, "--network"))
    assert predicted(study)["estimator"] == "typical", "which launches nothing"
    new = tmp_path / "new"
    for words, said in (
        (["--from", "2,4"], "2 process counts, the model needs 3"),
        (["--from", "2,4,8"], "none"),
    ):
        program = str(tmp_path / "none")
        cli(
            f"predict {new} -n 16",
            *words,
            "--",
            "mpiexec",
            "-n",
            "{np}",
            program,
            code=(1, 2),
            err=said,
        )
        assert not new.exists()


def test_room_on_the_disk_is_looked_at(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    used = shutil.disk_usage(study.root)
    monkeypatch.setattr("shutil.disk_usage", lambda _: used._replace(free=17 << 20))
    assert predicted(study)["estimator"] == "typical"
    said = "17 MiB are free, the scaled trace of 1000000 processes needs"
    left_alone(study, counts="1000000", err=said)
    monkeypatch.setattr("shutil.disk_usage", lambda _: used._replace(free=1 << 20))
    left_alone(study, err="1 MiB are free")


def test_for_another_machine_its_messages_are_taken(
    study: Study, replays: list[int], tmp_path: Path
) -> None:
    synthetic(name="here").save(study.root / "machine.json")
    put_machine(tmp_path / "there.json")
    other = ["predict", str(study.root), "-n", "16", "--machine", str(tmp_path / "there.json")]
    other += ["--what-if", "none"]
    result = cli(*other, "--json", code=(0, 3)).data
    assert replays == [] and result["estimator"] == "machine"
    assert any("between two ranks of box" in note for note in result["notes"])
    assert result["residuals"] == [], "no run was made there"
    result = cli(*other, "--json", "--hosts", "n0,n1", code=(0, 3)).data
    assert replays == [2, 4, 8, 16] and result["estimator"] == "simulation"


def test_an_estimator_that_fails_says_why_and_the_others_go_on(
    study: Study, replays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise P3SError("machine: no loop ends")

    put_machine(study.root / "machine.json")
    monkeypatch.setattr("p3s.predict.estimators.machine.communication", broken)
    result = predicted(study, *HOSTS)
    assert result["estimator"] == "simulation"
    assert result["counts"][-1]["estimators"]["machine"]["why_not"] == "machine: no loop ends"
    cli(f"predict {study.root} -n 16 --no-replay", code=1, err="machine: no loop ends")


def test_what_changes_save_is_kept_with_the_prediction(study: Study, replays: list[int]) -> None:
    """Of a replay the simulation answers; a phase that is not there is refused."""
    put_machine(study.root / "machine.json")
    asked = ["--what-if", "latency / 2", "--what-if", "network=ideal, balanced"]
    result = predicted(study, *HOSTS, *asked)
    named = [each for each in result["what_if"] if each["asked"]]
    assert {each["text"] for each in named} == {"latency / 2", "network=ideal, balanced"}
    assert result["estimator"] == "simulation" and named[0]["estimator"] == "machine"
    assert [at["n"] for at in named[0]["counts"]] == counts_of(result)
    assert replays
    cli(f"report {study.root}", code=(0, 3), out="What if, at 16")
    assert "What if, at 16" in study.report_path.read_text()
    before = study.prediction_path.read_bytes()
    cli(f"predict {study.root} -n 16 --what-if 'phase 99/2'", code=2, err="no phase 99; there are")
    assert study.prediction_path.read_bytes() == before, "it is written once it is whole"
    assert "what_if" not in predicted(study, *HOSTS, "--what-if", "none")


def test_without_a_compiler_the_compiler_is_what_is_said(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from p3s.simulate import core

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CC", raising=False)
    core.library.cache_clear()
    try:
        last = cli(f"predict {study.root} -n 16", code=1).last
    finally:
        core.library.cache_clear()
    assert last.startswith("p3s: no C compiler (cc) for the simulation; install gcc")
