"""Native runs beside those whose instructions are counted: which are made, and what is kept."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Shown, cli
from test_cli_stages import LAUNCH, Outcome, Stages
from test_launch import launcher
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi

from p3s.base.errors import P3SError
from p3s.base.progress import Progress
from p3s.base.settings import traces_of
from p3s.base.study import Study, read_json, write_json
from p3s.capture.recover import places_at
from p3s.pipeline.tracing.runs import CountRequest, TraceRequest, trace_counts
from p3s.signature.store import load_table
from p3s.signature.times import load_times, stale
from p3s.signature_runner.recording import Recording

UNITS = {"instructions": "instructions", "cpu": "cpu_ns", "wall": "wall_ns", "auto": "cpu_ns"}


class Runs(Stages):
    """Also notes how work is measured; ``refuses``: (count, work) at which the program fails."""

    refuses: dict[tuple[int, str], P3SError] = {}

    def run_traced(
        self,
        template: list[str],
        np: int,
        run_dir: Path,
        *,
        timeout_s: float | None,
        recording: Recording,
        **_: Any,
    ) -> Outcome:
        (run_dir / "stderr.txt").write_text("said")
        self.calls.append((recording.work, np, run_dir.parent.name))
        self._finish(np, run_dir)
        path = run_dir / "run.json"
        info = {**read_json(path, "p3s.run"), "work_unit": UNITS[recording.work]}
        if (np, recording.work) in self.refuses:
            write_json(path, {**info, "status": "failed", "exit_code": 3})
            raise self.refuses[np, recording.work]
        write_json(path, info)
        return Outcome(0, 9.0 if recording.work == "instructions" else 1.0, np, False, [], run_dir)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    stand_in = Runs()
    stand_in.refuses = {}
    monkeypatch.setattr("p3s.signature_runner.launch.run_traced", stand_in.run_traced)
    monkeypatch.setattr("p3s.base.host.command.parse", stand_in.parse)
    monkeypatch.setattr("p3s.signature_runner.emulate.emulator", lambda: "qemu")
    monkeypatch.setattr("p3s.signature.signature.characterize", stand_in.characterize)
    monkeypatch.setattr("p3s.signature.store.load_phases", lambda study_dir: {})
    return stand_in


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "study"


def characterize(root: Path, counts: str, *more: str, **expected: Any) -> Shown:
    return cli("characterize -n", counts, "-o", root, *more, "--", *LAUNCH, **expected)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_instructions_are_counted_once_and_timed_in_all_repeats(runs: Runs, root: Path) -> None:
    streams = characterize(root, "2,4,8", "-r", "3", "--work", "instructions")
    each = [
        [("cpu", n, "timed")] * 3 + [("instructions", n, "runs"), ("characterize", n)]
        for n in (2, 4, 8)
    ]
    assert runs.calls == [call for some in each for call in some]
    assert names(root / "runs") == ["np0002.r0", "np0004.r0", "np0008.r0"]
    assert names(root / "timed") == [f"np000{n}.r{r}" for n in (2, 4, 8) for r in range(3)]
    assert "np=4 native run 2/3: 1.0 s" in streams.err
    assert "np=4 counting instructions: 9.0 s" in streams.err
    row = streams.out.splitlines()[2].split()
    assert row[:7] == ["4", "1", "9.00", "s", "3", "1.00", "s"]
    manifest = Study.open(root).manifest()
    assert {entry["dir"].split("/")[0] for entry in manifest["runs"]} == {"runs"}


def test_times_can_be_left_out(runs: Runs, root: Path) -> None:
    characterize(root, "2,4,8", "--work", "instructions", "--no-times")
    assert not (root / "timed").exists() and len(runs.calls) == 6


@pytest.mark.parametrize("work", ["cpu", "wall", "auto"])
def test_no_times_elsewhere_is_refused(work: str, runs: Runs, root: Path) -> None:
    shown = characterize(root, "2,4,8", "--work", work, "--no-times", code=2)
    assert not root.exists() and not runs.calls
    assert shown.last.startswith("p3s: --no-times: belongs to --work")


def test_cpu_time_goes_beside_instructions(runs: Runs, root: Path) -> None:
    characterize(root, "2,4,8", "--work", "instructions", "--no-times")
    counted = {path: path.stat().st_ino for path in (root / "runs").rglob("*")}
    result = characterize(root, "2,8", "-r", "2", "--work", "cpu", "--json").data
    assert {path: path.stat().st_ino for path in (root / "runs").rglob("*")} == counted
    assert names(root / "timed") == ["np0002.r0", "np0002.r1", "np0008.r0", "np0008.r1"]
    assert [(row["np"], row["runs"], len(row["timed"])) for row in result["counts"]] == [
        (2, [], 2),
        (8, [], 2),
    ]
    row = characterize(root, "2", "--work", "cpu").out.splitlines()[1]
    assert row.split()[:5] == ["2", "0", "-", "1", "1.00"]


def test_cpu_time_beside_nothing_is_refused(runs: Runs, root: Path) -> None:
    characterize(root, "2,4,8", "--work", "instructions")
    before = list(runs.calls)
    line = characterize(root, "8,16", "--work", "cpu", code=2).last
    assert runs.calls == before
    assert "none at 16 processes" in line and "-n 16 with --work instructions" in line
    characterize(root, "4,16")  # auto: as the study
    assert runs.calls[-3:] == [
        ("cpu", 16, "timed"),
        ("instructions", 16, "runs"),
        ("characterize", 16),
    ]


@pytest.mark.parametrize(("repeats", "said"), [("1", "trace -n 2,4,8 with"), ("2", "use another")])
def test_instructions_into_cpu_time_are_refused(
    repeats: str, said: str, runs: Runs, root: Path
) -> None:
    characterize(root, "2,4,8", "--work", "cpu", "-r", repeats)
    before = list(runs.calls)
    line = characterize(root, "2,4", "--work", "instructions", code=2).last
    assert runs.calls == before
    assert f"a study holds one unit: {said}" in line and "CPU time is measured beside" in line


def test_a_native_run_that_fails_fails_the_count(runs: Runs, root: Path) -> None:
    characterize(root, "2,4,8", "--work", "instructions")
    before = {path: path.stat().st_ino for path in root.rglob("*.json")}
    runs.refuses = {(4, "cpu"): P3SError("np=4: ./app: failed at 4 ranks (exit code 3)")}
    shown = characterize(root, "4,16", "--work", "instructions", code=3)
    assert ("instructions", 4, "runs") not in runs.calls[9:]
    last = shown.err.splitlines()[-2]
    assert last.startswith("p3s: np=4: native run: ./app: failed at 4 ranks (exit code 3)")
    assert {path: path.stat().st_ino for path in before if path.name != "study.json"} == {
        path: node for path, node in before.items() if path.name != "study.json"
    }
    assert Study.open(root).counts() == [2, 4, 8, 16]
    assert (root / "timed" / "np0004.r0.failed" / "stderr.txt").exists()
    assert Study.open(root).failed_counts() == []


def test_a_count_that_is_refused_is_remembered(runs: Runs, root: Path) -> None:
    runs.refuses = {(3, "cpu"): P3SError("./app: failed at 3 ranks (exit code 3)")}
    characterize(root, "2,3,4,8", "--work", "instructions", code=3)
    assert Study.open(root).failed_counts() == [3]


def test_a_counted_run_that_fails_keeps_its_times(runs: Runs, root: Path) -> None:
    runs.refuses = {(4, "instructions"): P3SError("./app: failed at 4 ranks (exit code 3)")}
    characterize(root, "2,4,8,16", "--work", "instructions", code=3)
    assert Study.open(root).counts() == [2, 8, 16]
    assert ("characterize", 4) not in runs.kinds()


def test_first_run_that_cannot_start_leaves_no_study(
    runs: Runs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_start(*_: Any, **__: Any) -> Outcome:
        raise P3SError("./app: not found")

    monkeypatch.setattr(sys.modules["p3s.signature_runner.launch"], "run_traced", cannot_start)
    characterize(root, "2,4,8", "--work", "instructions", code=1)
    assert not root.exists()


# ---- a real program ------------------------------------------------------------------------
QEMU = shutil.which(f"qemu-{platform.machine()}")


@pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
@pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed")
def test_places_are_the_same_in_the_emulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the program writes what it expects
    program = compile_c(PROGRAMS / "collectives.c", tmp_path / "program")
    words = [launcher(), "-n", "{np}", str(program)]
    study = Study.create(tmp_path / "study", words)
    done = trace_counts(study, _counting(study, 2), [2], Progress())
    assert not done.failed and not done.problems
    table, times = load_table(study.root, 2), load_times(study.root, 2)
    assert times is not None and times.unmatched == 0
    assert (times.work_unit, times.unit) == ("instructions", "cpu_ns")
    assert len(times.rank) == len(table.segments) > 4
    assert (times.work == table.segments[:, 4]).all() and times.work.sum() > 1000
    assert (times.least_ns <= times.median_ns).all() and times.least_ns.sum() > 0
    assert not stale(traces_of(study), 2)
    assert [place.path.parent.name for place in places_at(study.root)] == ["runs"] + ["timed"] * 2


FILLS = """
#include <mpi.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t size = (size_t)(rank + 1) * 20 << 20;
    volatile char *memory = malloc(size);
    for (size_t i = 0; i < size; i += 512)
        memory[i] = 1;
    free((void *)memory);
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")
@pytest.mark.skipif(QEMU is None, reason="qemu-user is not installed")
def test_memory_that_the_program_fills_is_known(tmp_path: Path) -> None:
    program = compile_c(FILLS, tmp_path / "fills")
    words = [launcher(), "-n", "{np}", str(program)]
    study = Study.create(tmp_path / "study", words)
    from p3s.capture import read_run

    trace_counts(study, _counting(study, 1), [2], Progress())
    times = load_times(study.root, 2)
    assert times is not None
    for rank, filled in enumerate(times.resident_bytes.tolist()):
        # The kernel counts pages in batches: it may be off by some hundred KiB.
        assert abs(filled / 2**20 - 20 * (rank + 1) - 1) < 2
    emulated = read_run(study.runs_dir(2))
    assert [rank.resident_bytes for rank in emulated.ranks] == [0, 0]
    assert re.search(
        "filled at most (39|4\\d)\\.\\d MiB", cli(f"dump {study.timed_dir(2)} --summary").out
    )
    assert "of memory after" not in cli(f"dump {study.runs_dir(2)} --summary").out


def _counting(study: Study, repeats: int) -> TraceRequest:
    """Return the request that counts instructions at two processes, once."""
    return TraceRequest(
        study.root,
        tuple(study.command()),
        CountRequest((2,)),
        repeats,
        TIMEOUT_S,
        Recording(work="instructions"),
        repeat_disturbed=False,
    )
