"""Work in instructions of perf_event: a shim stands for a processor that counts (perf_shim.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tracer_helpers import TIMEOUT_S, compile_c, the_mpi, usable_mpi

from p3s.base.records import RunRecord, Traces
from p3s.base.study import read_json
from p3s.capture import RunTrace, read_run
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import Recording
from p3s.signature_runner.work_unit import of_study, settle

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]
SHIM = Path(__file__).resolve().parents[1] / "faults" / "perf_shim.c"
RING = """
#include <mpi.h>
int main(int argc, char **argv)
{
    int rank, size, out = 0, in;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < 50; turn++)
        MPI_Sendrecv(&out, 1, MPI_INT, (rank + 1) % size, 0, &in, 1, MPI_INT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return MPI_Finalize();
}
"""


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(RING, tmp_path_factory.mktemp("bin") / "ring")


def shim(folder: Path, loop: int) -> Path:
    """Return the shim, whose counter goes on by so many in a loop of a million instructions."""
    source, made = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM.read_text().replace("1000200 :", f"{loop} :"))
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"]
    subprocess.run(words, check=True, timeout=TIMEOUT_S, capture_output=True)
    return made


def traced(ring: Path, run_dir: Path) -> RunTrace:
    words = [usable_mpi().mpiexec, "-n", "{np}", str(ring)]
    recording = Recording("cpu", perf=True, posix_io=False)
    run_traced(words, 2, run_dir, timeout_s=TIMEOUT_S, recording=recording)
    return read_run(run_dir)


def test_instructions_are_the_work(
    ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(shim(tmp_path, 1000200)))
    run = traced(ring, tmp_path / "run")
    assert run.work_unit == "instructions" and run.work_origin == "perf_event, instructions:u"
    assert run.counter_names == ("task-clock", "cycles", "llc-misses")  # beside it, unasked
    for rank in run.ranks:
        # each stretch is 5000, of which a read takes 40; half of it was multiplexed away. Of the
        # two events of a call the second one has none.
        assert set(rank.work[2:-1].tolist()) == {0, 4960}
        assert (rank.work > 0).sum() >= 50
        counted = {tuple(row) for row in rank.counters[2:-1].tolist()}
        assert counted == {(0, 0, 0), (3000, 10000, 50)}
    info = read_json(tmp_path / "run" / "run.json", "p3s.run")
    assert info["work_unit"] == "instructions" and info["work"] == "cpu"


def test_tlb_misses_are_counted_where_asked(
    ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(shim(tmp_path, 1000200)))
    words = [usable_mpi().mpiexec, "-n", "{np}", str(ring)]
    run_traced(
        words,
        2,
        tmp_path / "run",
        timeout_s=TIMEOUT_S,
        recording=Recording("cpu", ("cycles", "dtlb-misses"), posix_io=False),
    )
    run = read_run(tmp_path / "run")
    assert run.counter_names == ("cycles", "dtlb-misses")
    for rank in run.ranks:
        assert {tuple(row) for row in rank.counters[2:-1].tolist()} == {(0, 0), (10000, 20)}


def test_what_does_not_count_instructions_is_not_believed(
    ring: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(shim(tmp_path, 500000)))
    run = traced(ring, tmp_path / "run")
    assert run.work_unit == "cpu_ns" and run.counter_names == ()


def test_studies_stay_in_the_unit_that_they_have() -> None:
    def study(**info: str) -> Traces:
        return Traces(Path("s"), runs=(RunRecord(2, 0, Path("r"), "complete", dict(info)),))

    counted = study(work_unit="instructions", work="auto")
    assert settle(Recording(), None, [2, 4], 1, 4).perf  # nothing is there yet
    assert settle(Recording(), counted, [64], 1, 4).perf  # also on shared cores
    assert of_study(counted).perf
    for other in (study(work_unit="cpu_ns"), study(work_unit="instructions", work="instructions")):
        assert not settle(Recording(), other, [64], 1, 4).perf
    assert not settle(Recording("cpu"), None, [2], 1, 4).perf  # asked for
    assert not settle(Recording(threads=2), None, [2], 1, 4).perf  # of first threads alone
