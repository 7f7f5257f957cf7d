"""The estimator simgrid: SimGrid's replay says what the simulation says on the same costs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from replay_patterns import halo, ring, wave
from test_estimators import study_of

from p3s.base.errors import P3SError
from p3s.base.settings import traces_of
from p3s.predict.estimated import TRANSFER
from p3s.predict.estimators import Setting, available, estimate

needs_simgrid = pytest.mark.skipif(
    shutil.which("smpirun") is None, reason="SimGrid (smpirun) is not installed"
)


def test_where_simgrid_is_not_installed(tmp_path: Path, monkeypatch) -> None:
    study = study_of(tmp_path / "s", ring(2))
    monkeypatch.setenv("PATH", "")
    assert "SimGrid is not installed" in available(traces_of(study), 2)["simgrid"]
    with pytest.raises(P3SError, match="not installed"):
        estimate("simgrid", traces_of(study), 2)


@needs_simgrid
def test_it_needs_the_costs_of_messages(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", ring(2), machine=False)
    assert "p3s machine measure" in available(traces_of(study), 2)["simgrid"]


@needs_simgrid
@pytest.mark.parametrize(
    "trace", [ring(4), wave(6), halo(6, nbytes=512, work=5000.0)], ids=["ring", "wave", "halo"]
)
def test_it_says_what_the_simulation_says(trace, tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", trace, mpi="other 1", background=True)
    setting = Setting(vary=False, ranks_per_node=1)
    ours, theirs = (
        estimate(name, traces_of(study), trace.n, setting=setting)
        for name in ("machine", "simgrid")
    )
    assert theirs.phases == ours.phases and theirs.comm.shape == ours.comm.shape
    assert theirs.comm.sum() == pytest.approx(ours.comm.sum(), rel=0.05)
    assert (theirs.low <= theirs.comm).all() and (theirs.comm <= theirs.high).all()
    assert np.isnan(theirs.waiting).all() and np.isnan(theirs.seconds[TRANSFER]).all()
    assert theirs.why_not == ours.why_not == ""
    assert any(note.startswith("collectives as in Open MPI") for note in theirs.notes)
