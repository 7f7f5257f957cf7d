"""Every event is recorded once, in order, with the right partner, bytes, tag and root."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracer_helpers import PROGRAMS, compile_c, expected, recorded, the_mpi, trace

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(the_mpi() is None, reason="no usable MPI"),
]


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bin")
    return {
        name: compile_c(PROGRAMS / f"{name}.c", folder / name) for name in ("p2p", "collectives")
    }


@pytest.mark.parametrize("np", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["p2p", "collectives"])
def test_events_are_those_the_program_counted(
    binaries: dict[str, Path],
    name: str,
    np: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = trace([str(binaries[name])], np, tmp_path / "run")
    assert run.np == np
    for rank in run.ranks:
        events, polls = expected(tmp_path, rank.rank)
        assert recorded(run, rank.rank) == events
        assert rank.failed_polls == polls
        assert rank.complete
