"""p3s baseline: fits, iterations, trees."""

from __future__ import annotations

import json
from pathlib import Path

import hybrid_machine as machine
import numpy as np
import pytest
from capture_writer import put_run_json
from commands import cli
from named_studies import FIT_TREE, TRAINING, written

from p3s import capture
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.study import Study
from p3s.capture.types import Call, RankTrace, RunTrace
from p3s.methods.baseline.fromstudy import times_in
from p3s.methods.baseline.read import read, write
from p3s.methods.baseline.times import RunTime, Times
from p3s.methods.baseline.trees.types import Table

GOOD = "n,repeat,seconds\n4,0,26\n4,1,25.5\n8,0,13.5\n16,0,7.25\n32,0,4.125\n"


@pytest.fixture
def times(tmp_path: Path) -> Path:
    path = tmp_path / "times.csv"
    path.write_text(GOOD)
    return path


def given(tmp_path: Path, text: str, name: str = "bad.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


# ---- reading -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "n,seconds\n4,1.5\n4,1.25\n8,0.75\n"),
        ("a.csv", "np;repeat;time [ms]\n4;0;1500\n4;1;1250\n8;0;750\n"),
        ("a.csv", "# by hand\nranks\ttime_us\n4\t1.5e6\n\n4\t1250000\n8\t750000\n"),
        ("a.csv", "q,time\n4,1.5 s\n4,1.25 s\n8,0.75 s\n"),
        ("a.csv", "q,time,unit\n4,1500,ms\n4,1250,ms\n8,750,ms\n"),
        ("a.txt", "p time_s\n4 1.5\n4 1.25\n8 0.75\n"),
        (
            "a.json",
            '[{"n": 4, "seconds": 1.5}, {"n": 4, "seconds": 1.25}, {"n": 8, "seconds": 0.75}]',
        ),
        (
            "a.json",
            '{"runs": [{"np": 4, "ms": 1500}, {"np": 4, "ms": 1250}, {"np": 8, "ms": 750}]}',
        ),
    ],
)
def test_many_ways_to_write_the_same_times(tmp_path: Path, name: str, text: str) -> None:
    runs = read(given(tmp_path, text, name)).runs
    assert [(r.n, r.repeat) for r in runs] == [(4, 0), (4, 1), (8, 0)]
    assert [r.seconds for r in runs] == pytest.approx([1.5, 1.25, 0.75])


def test_inputs_labels_and_runs_that_do_not_count(tmp_path: Path) -> None:
    text = (
        "machine,n,size,seconds,exit_code,valid\nold,4,100,2,0,1\nold,8,100,x,0,1\n"
        "old,8,200,1,139,1\nold,16,200,1,0,no\n"
    )
    runs = read(given(tmp_path, text)).runs
    assert [r.labels for r in runs] == [(("machine", "old"),)] * 4
    assert [r.inputs for r in runs] == [(("size", v),) for v in (100.0, 100.0, 200.0, 200.0)]
    assert [r.why for r in runs] == ["", "no time in row 3", "exit code 139", "marked as not valid"]


@pytest.mark.parametrize("name", ["t.csv", "t.json", "t.parquet"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    runs = (
        RunTime(4, 1.5, 0, (("size", 2.0),), exit_code=0, started="2020-01-01T00:00:00Z"),
        RunTime(8, None, 0, (("size", 2.0),), why="exit code 1", exit_code=1),
    )
    path = tmp_path / name
    if name.endswith("parquet"):
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        parquet.write_table(
            arrow.table(
                {
                    "n": [4, 8],
                    "repeat": [0, 0],
                    "seconds": [1.5, None],
                    "inputs": ['{"size": 2}'] * 2,
                    "exit_code": [0, 1],
                    "started": ["2020-01-01T00:00:00Z", ""],
                    "why": ["", "exit code 1"],
                }
            ),
            path,
        )
    else:
        write(path, Times(runs))
    assert read(path).runs == runs


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("#np time\n4 8.0\n8 4.1\n", [8.0, 4.1]),
        ("# by hand\n# n,seconds\n\n4,8\n# a remark\n8,4\n", [8.0, 4.0]),
        ("# n seconds\nn,seconds\n4,8\n8,4\n", [8.0, 4.0]),
        ("np,elapsed\n4,00:01:20\n8,00:41\n", [80.0, 41.0]),
        ("np,time_s\n4,1-02:03:04\n8,2:03:04.5\n", [93784.0, 7384.5]),
        ("n,seconds\n4,8.0\n8,nan\n", [8.0, None]),
    ],
)
def test_tables_as_scripts_and_batch_systems_write_them(
    tmp_path: Path, text: str, times: list[float | None]
) -> None:
    runs = read(given(tmp_path, text)).runs
    assert [(run.n, run.seconds) for run in runs] == list(zip((4, 8), times, strict=True))


def test_no_text_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(bytes(range(256)))
    with pytest.raises(P3SError):
        read(tmp_path / "x.csv")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(P3SError, match="Parquet"):
        read(tmp_path / "x.parquet")
    with pytest.raises(P3SError, match="is not JSON"):
        read(given(tmp_path, "[" * 100_000, "deep.json"))
    with pytest.raises(P3SError, match="not there"):
        read(tmp_path / "none.csv")


# ---- commands ------------------------------------------------------------------------------


# ---- studies, running ----------------------------------------------------------------------


def trace_of(wall_s: float, work_s: float, origin: str = "cpu") -> RunTrace:
    """Return a run of one rank: MPI_Init, computation, MPI_Finalize."""
    ends = np.array([-5, round(wall_s * 1e9)], dtype=np.int64)
    rank = RankTrace(
        rank=0,
        complete=True,
        call=np.array([0, 1], dtype=np.int32),
        start_ns=ends,
        elapsed_ns=np.array([5, 0], dtype=np.int64),
        work=np.array([0, round(work_s * 1e9)], dtype=np.int64),
        failed_poll_ns=0,
    )
    return RunTrace(
        np=1,
        path=Path("."),
        comms=(),
        sites=(),
        ranks=(rank,),
        work_origin=origin,
        calls=tuple(Call(op, 0, 0, -1, 0, 1, -1, -1) for op in ("MPI_Init", "MPI_Finalize")),
    )


def study_of(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: dict[tuple[int, int], tuple[RunTrace, str]],
    *,
    shared: bool,
) -> Study:
    """Return a study whose captures read as these runs."""
    study = Study.create(root, ["mpiexec", "-n", "{np}", "./a"])
    traces: dict[Path, RunTrace] = {}
    for (n, rep), (trace, status) in runs.items():
        directory = study.runs_dir(n, rep)
        directory.mkdir(parents=True)
        put_run_json(directory, n, status=status, wall_s=9.0, oversubscribed=shared)
        traces[directory] = trace
    before = capture.read_run
    monkeypatch.setattr(
        "p3s.capture.read_run",
        lambda path, whole=False: traces[path] if path in traces else before(path, whole=whole),
    )
    return study


@pytest.mark.parametrize("shared", [False, True])
def test_times_of_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    runs = {
        (4, 0): (trace_of(2.0, 1.5), "complete"),
        (4, 1): (trace_of(2.5, 1.5), "complete"),
        (8, 0): (trace_of(1.25, 0.75), "complete"),
        (16, 0): (trace_of(0.1, 0.05), "partial"),
        (16, 1): (trace_of(0.75, 0.5), "complete"),
    }
    study = study_of(tmp_path / "study", monkeypatch, runs, shared=shared)
    found = times_in(study.root)
    assert [(r.n, r.seconds, r.valid) for r in found.runs if r.component == "total"] == [
        (4, 2.0, True),
        (4, 2.5, True),
        (8, 1.25, True),
        (16, None, False),
        (16, 0.75, True),
    ]
    assert [(r.n, r.seconds) for r in found.runs if r.component == "comm"] == [
        (4, 0.5),
        (4, 1.0),
        (8, 0.5),
        (16, 0.25),
    ]
    assert any("ranks shared cores" in note for note in found.notes) == shared
    told = cli(f"baseline predict {study.root} -n 64 --json").data
    assert told["fitted_counts"] == [4, 8, 16]
    assert any("set aside" in note for note in told["notes"])


def test_times_of_a_study_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "./a"])
    root.update(parameters={"threads": ["1", "2"]})
    for threads in (1, 2):
        runs = {(n, 0): (trace_of(4 / threads / (n - 1), 1e-3), "complete") for n in (2, 3, 5, 9)}
        study_of(root.at_dir(f"threads={threads}"), monkeypatch, runs, shared=True)
    found = times_in(root.root)
    total = {
        (r.n, dict(r.inputs)["threads"]): r.seconds for r in found.runs if r.component == "total"
    }
    assert total == {(n, t): 4 / t / (n - 1) for n in (2, 3, 5, 9) for t in (1.0, 2.0)}
    assert len(found.notes) == 1
    tree = tmp_path / "tree.json"
    cli(
        f"baseline fit {root.root} --family tree --workers n-1 -o {tree}",
        out="8 runs at 1 workload",
    )
    told = cli(f"baseline predict {tree} -n 5 --input threads=2 --json").data
    assert told["configurations"][0]["value"] == pytest.approx(0.5, rel=0.05)
    assert cli(f"baseline advise {tree} --max-cores 8 --json").data["best"][0]["workers"] == 8


def test_a_study_without_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {(4, 0): (trace_of(2.0, 1.5, "qemu 7.2"), "complete")}
    study = study_of(tmp_path / "study", monkeypatch, runs, shared=False)
    cli(f"baseline predict {study.root} -n 64", code=1, err="counted in an emulator")
    cli(f"baseline predict {tmp_path} -n 64", code=1, err="no study here")


def test_a_run_that_fails_is_set_aside_and_the_others_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from p3s.methods.baseline import collect as module

    def once(command: object, n: int, *_: object) -> RunTime:
        return RunTime(n, None, why="exit code 1", exit_code=1) if n == 8 else RunTime(n, 8.0 / n)

    monkeypatch.setattr(module, "_once", once)
    path = tmp_path / "t.json"
    words = ["mpiexec", "-n", "{np}", "./a"]
    cli(f"baseline run -n 4,8,16 -r 4 -o {path} --", *words, code=3)
    there = read(path)
    assert len(there.runs) == 12 and sum(not r.valid for r in there.runs) == 4
    assert there.facts["command"] == words
    cli(f"baseline run -n 4,32 -r 1 -o {path} --", *words, code=3)
    again = read(path).runs
    assert len(again) == 14 and [r.repeat for r in again if r.n == 4] == [0, 1, 2, 3, 4]
    cli(f"baseline run -n 4 -o {path} --", *words, "other", code=2)
    assert len(read(path).runs) == 14
    cli(f"baseline fit {path} -o {tmp_path / 'b.json'}")
    cli(f"baseline run -n 8 -o {tmp_path / 'n.json'} --", *words, code=1)
    assert len(read(tmp_path / "n.json").runs) == 3


def test_a_time_that_the_program_prints(tmp_path: Path) -> None:
    from p3s.methods.baseline.collect import _find_printed_time, _pattern

    (tmp_path / "stdout.txt").write_text("start\n Time in seconds = 1.5\n Time in seconds = 2.5\n")
    (tmp_path / "stderr.txt").write_text("loop 3 s\nlast: -1\n")

    def found(text: str) -> tuple[float | None, str]:
        pattern = _pattern(text)
        assert pattern is not None
        return _find_printed_time(pattern, tmp_path)

    assert found(r"Time in seconds = +([0-9.]+)") == (2.5, "")
    assert found(r"loop (\d+) s") == (3.0, "")
    assert found(r"last: (\S+)")[1] == "printed -1 s as its time"
    assert found(r"(start)")[1] == "printed 'start' as its time"
    assert "is not in its output" in found(r"elapsed (\d+)")[1]
    for wrong in ("([", "no group", "(a)(b)"):
        with pytest.raises(P3SError):
            _pattern(wrong)


@pytest.mark.mpi
def test_a_real_program_is_run_untraced(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    words = ["mpiexec", "-n", "{np}", "sh", "-c", "sleep 0.2; echo took 0.$((8 / {np}))"]
    cli(f"baseline run -n 1,2 -r 2 -o {path} --timeout 60 --time-from 'took ([0-9.]+)' --", *words)
    runs = read(path).runs
    assert [(r.n, r.seconds, r.exit_code) for r in runs] == [
        (1, 0.8, 0),
        (2, 0.4, 0),
        (1, 0.8, 0),
        (2, 0.4, 0),
    ]
    failing = ["mpiexec", "-n", "{np}", "sh", "-c", "exit 7"]
    cli(f"baseline run -n 1 -r 1 -o {tmp_path / 'f.json'} --", *failing, code=1)
    assert not read(tmp_path / "f.json").runs[0].valid


def test_damaged_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile):
        read(given(tmp_path, '{"runs": [', "cut.json"))


NODE = (
    '<topology version="2.0"><object type="Machine"><object type="Package">'
    + '<object type="L2Cache"><object type="Core"/><object type="Core"/></object>' * 2
    + "</object></object></topology>"
)


EXPRESSION = ["--expression", machine.EXPRESSION["nb"]]
ASK = ["--input", "workload=5000"]


def said(words: list[str], code: int = 0) -> str:
    return cli(*words, code=code).out


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
