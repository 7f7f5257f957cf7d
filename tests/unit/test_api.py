"""A study as Python sees it: what is missing is made, tables and notebooks show it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timed_study as ts
from corpus import Program, jacobi2d
from named_studies import timed
from paths import ROOT
from test_estimators import machine_file

import p3s
from p3s.api import Table
from p3s.base.errors import P3SError, UsageError
from p3s.base.study import write_json

COUNTS = (2, 4, 8, 16)


def put(root: Path, program: Program, counts: tuple[int, ...] = COUNTS) -> p3s.Study:
    """Put a study of a program into a directory."""
    made, tables = ts.put_study(root, program, counts, "cpu_ns")
    for table in tables:
        ts.times_of(table, table.segments[:, 4])
    machine_file(root / "machine.json")
    return p3s.open(made.root)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> p3s.Study:
    return put(tmp_path_factory.mktemp("api") / "study", jacobi2d())


def test_what_is_public_is_listed_before_anything_is_loaded() -> None:
    heavy = {"numpy", "p3s.api", "p3s.report"}
    code = f"import sys, p3s; print(*sorted(dir(p3s))); assert not {heavy} & set(sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == sorted(p3s.__all__)
    with pytest.raises(AttributeError):
        p3s.nothing  # noqa: B018
    with pytest.raises(ImportError):
        from p3s import Nothing  # noqa: F401


def test_several_studies_are_one_frame(tmp_path: Path) -> None:
    for name, times in (("old", {4: 120.0, 64: 12.0}), ("new", {4: 100.0, 64: 6.0})):
        made = put(tmp_path / name, jacobi2d())
        write_json(made.path / "prediction.json", timed(times).data)
    both = p3s.open_many([tmp_path / "old", tmp_path / "new"])
    frame = both.to_frame()
    assert len(both) == 2 and len(frame) == 4
    assert set(frame["study"]) == {str(study.path) for study in both}
    assert frame[frame.n == 64]["time_s"].tolist() == [12.0, 6.0]
    assert both.history()["ratio"] == [None, 0.5]


def test_the_model_has_its_rules_and_equations(study: p3s.Study) -> None:
    model = study.model
    assert model.counts == COUNTS and "2-D" in model.grid and "rules" in repr(model)
    assert len(model.rules) == len(model.rules["verdict"]) > 3
    assert set(model.rules["verdict"]) <= {"exact", "fitted", "ambiguous"}
    assert "phase" in model.equations and model._repr_html_().startswith("<pre>")


def test_matrices_are_traced_and_predicted(study: p3s.Study) -> None:
    for n, traced in ((4, True), (32, False)):
        found = study.matrix(n)
        assert found.traced is traced and found.array().shape == (n, n)
        sent = found.array("messages").toarray()
        assert (sent == sent.T).all() and sent.sum() == np.sum(found.pairs.messages)
    with pytest.raises(UsageError, match="neither messages nor bytes"):
        found.array("work")
    assert "predicted" in repr(found) and "<td>" in found._repr_html_()


def test_scaling_and_computation_do_without_pandas(study: p3s.Study) -> None:
    code = (
        "import sys; from pathlib import Path; from p3s.predict.times import computation\n"
        "from p3s.program.generate import write_scaled\n"
        "from p3s.program.scaled import read_scaled; from p3s.base.study import Study\n"
        f"study = Study.open(Path({str(study.path)!r}))\n"
        "write_scaled(study.root, 20)\n"
        "read_scaled(study.scaled_dir(20))\n"
        "assert computation(study.scaled_dir(20)).compute.sum() > 0\n"
        "sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0


def test_a_scaled_trace_is_made_and_read(study: p3s.Study) -> None:
    made = study.scale(24)
    assert made.n == 24 and np.prod(made.grid) == 24 and made.rows > 24
    frames = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = made.to_frame()
    assert isinstance(frame, frames.DataFrame) and len(frame) == made.rows


#: What a usual prediction of a study whose stages are made has no use for.
NOT_USED = (
    "jsonschema",
    "p3s.costs.gather",
    "p3s.costs.parameters.fit",
    "p3s.program.generate",
    "p3s.methods.threads.text",
    "p3s.methods.threads.stage",
    "p3s.machine.topology.read",
    "scipy",
)


def test_a_prediction_of_what_is_there_imports_what_it_needs(tmp_path: Path) -> None:
    """Of a study whose model is right at the hold-out: else it looks for what to trace next."""
    made = put(tmp_path / "study", jacobi2d(), (4, 9, 16, 25)).path
    p3s.open(made).predict([36, 64], estimator="typical", what_if=["none"])
    code = (
        "import sys, p3s.cli.main as m\n"
        f"words = ['predict', {str(made)!r}, '-n', '36,64', '--only', '--estimator', 'typical']\n"
        "code = m.run(words)\n"
        f"loaded = [name for name in {NOT_USED!r} if name in sys.modules]\n"
        "sys.exit(' '.join(loaded) or int(code not in (0, 3)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=300, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_prediction_keeps_the_counts_of_before(study: p3s.Study) -> None:
    first = study.predict([32], estimator="typical", what_if=["none"])
    again = study.predict(64, estimator="typical")
    assert {32, 64} <= set(again.counts) and 64 not in first.counts
    assert list(again.to_frame()["n"]) == list(again.counts)
    assert "<svg" in again._repr_html_() and again.source == study.path / "prediction.json"
    alone = study.predict([64], estimator="typical", only=True, what_if=["none"])
    assert 32 not in alone.counts
    for wrong in ([], [0, 4]):
        with pytest.raises(UsageError, match="at least 1"):
            study.predict(wrong)
    with pytest.raises(UsageError, match="--estimator nobody"):
        study.predict([64], estimator="nobody")


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(P3SError) as caught:
        p3s.open(tmp_path)
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(P3SError, match=r"package pandas is not installed; run: pip install 'p3s\["):
        Table({"n": [1]}).to_frame()


@pytest.mark.parametrize("counts", [[], 0, [4, -1], ["64"], [2.5]])
def test_counts_that_are_none_are_refused(counts: object, study: p3s.Study) -> None:
    with pytest.raises(UsageError, match="counts of at least 1"):
        study.predict(counts)  # type: ignore[arg-type]


def test_tables_are_escaped_and_cut() -> None:
    table = Table({"a": ["<b>"] * 30, "n": list(range(30))})
    html = table._repr_html_()
    assert len(table) == 30 and table["n"][1] == 1
    assert "&lt;b&gt;" in html and "<b>" not in html and "20 of 30 rows" in html
    with pytest.raises(KeyError):
        table["x"]


def test_runs_and_phases(study: p3s.Study) -> None:
    assert study.counts == () and len(study.runs) == 0, "this one was put together from tables"
    phases = study.phases
    assert set(phases["processes"]) == set(COUNTS) and "Study(" in study._repr_html_()
    assert json.dumps(phases["events"])


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs").glob("*.ipynb")))
def test_a_notebook_of_the_documentation_runs(name: str, study: p3s.Study, tmp_path: Path) -> None:
    """Its cells as one program, in a directory that has the studies it names."""
    cells = json.loads((ROOT / "docs" / name).read_text())["cells"]
    source = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    if "demo-study" in source:
        (tmp_path / "demo-study").symlink_to(study.path)
    if "other-study" in source:
        put(tmp_path / "other-study", jacobi2d(128, 128, 5))
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_placements_are_ranked(study: p3s.Study) -> None:
    found = study.place(16, nodes=4, ppn=4, topology="fat-tree:2,1", simulated=2)
    times = [one.time_s for one in found.timed]
    assert times == sorted(times) and len(times) >= 2
    with pytest.raises(UsageError, match="16 ranks need 16 slots, 2 nodes have 8"):
        study.place(16, nodes=2, ppn=4)


def test_what_changes_would_save(study: p3s.Study) -> None:
    found = study.what_if(["latency/2", "balanced", "table"], [24, 32])
    assert {"what if", "processes", "saved_s", "saved_low_s", "speedup"} <= set(found.columns)
    asked = [text for text in found["what if"] if text == "latency / 2"]
    assert len(asked) >= 2 + len(COUNTS)  # at the traced counts, and those of before, too
    prediction = p3s.Prediction.load(study.path)
    assert {"latency / 2", "balanced", "network=ideal"} <= {
        each.text for each in prediction.content.what_if
    }
    alone = study.predict(32, what_if=["none"])
    assert alone.content.what_if == ()
    with pytest.raises(UsageError, match="did you mean latency"):
        study.what_if("latncy/2", 32)


def test_a_study_explains_itself_and_is_held_to_conditions(study: p3s.Study) -> None:
    proposed = study.next()
    assert len(proposed["processes"]) == len(proposed["why"])
    assert "rivals" in study.explain(0) or "phase 0" in study.explain(0)
    with pytest.raises(UsageError, match="phases 0 to"):
        study.explain(99)
    predicted = study.predict([32, 64], estimator="typical")
    slow, fast = study.gate("time@64 > 1 ns", "time@64 > 1 h", base=study)
    assert slow.met and not fast.met
    (same,) = study.gate("time@64 > 1.01 * base.time@64", base=study)
    assert not same.met
    both = study.compare(study)
    assert both.n == max(predicted.counts) and both.counts
    assert all(pair.a_s == pair.b_s for pair in both.counts)
