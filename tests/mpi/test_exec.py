"""``mpiexec -n 4 p3s exec -- ./app`` and what ``p3s add`` makes of it."""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import P3S, Shown, cli, started
from tracer_helpers import PROGRAMS, compile_c, the_mpi, usable_mpi

from p3s.base.errors import UsageError
from p3s.base.host import mpi
from p3s.base.host.place import Place, place
from p3s.base.settings import traces_of
from p3s.base.study import Study, read_json, write_json
from p3s.capture import read_run

mpi_only = [pytest.mark.mpi, pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]
TIMEOUT_S = 600.0
SHARING = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def run(command: list[str], cwd: Path, **env: str) -> Shown:
    return started(command, cwd, TIMEOUT_S, env={**SHARING, **os.environ, **env})


def launch(np: int, cwd: Path, *words: str, **env: str) -> Shown:
    install = usable_mpi()
    return run([install.mpiexec, "-n", str(np), *P3S, "exec", *words], cwd, **env)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bin")


@pytest.fixture(scope="module")
def program(folder: Path) -> str:
    return str(compile_c(PROGRAMS / "dies.c", folder / "dies"))


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, program: str) -> Path:
    """Runs of three counts, two of the first, as several launches leave them."""
    cwd = tmp_path_factory.mktemp("runs")
    for np, where in ((1, "p3s-np1"), (1, "again"), (2, "p3s-np2"), (3, "p3s-np3")):
        options = [] if where.startswith("p3s") else ["-o", where]
        done = launch(np, cwd, *options, "--", program, "none", "1")
        assert (done.code, done.said) == (0, []), done.err
        assert len(list((cwd / where).glob("rank-*.p3t"))) == np
    return cwd


class TestExec:
    pytestmark = mpi_only

    def test_both_orders_record_the_same(
        self, captured: Path, program: str, tmp_path: Path
    ) -> None:
        from p3s.signature_runner.launch import run_traced

        install = usable_mpi()
        words = [install.mpiexec, "-n", "{np}", program, "none", "1"]
        run_traced(words, 3, tmp_path / "run", timeout_s=TIMEOUT_S)
        inside, outside = read_run(captured / "p3s-np3"), read_run(tmp_path / "run")
        for one, other in zip(inside.ranks, outside.ranks, strict=True):
            ops = [
                [run.calls[number].op for number in rank.call.tolist()]
                for run, rank in ((inside, one), (outside, other))
            ]
            assert one.complete and other.complete and ops[0] == ops[1]

    def test_what_run_json_says(self, captured: Path, program: str) -> None:
        info = read_json(captured / "p3s-np3" / "run.json", "p3s.run")
        assert (info["np"], info["argv"]) == (3, [program, "none", "1"])
        assert (info["traced"], info["status"], info["work"]) == (True, "unknown", "cpu")

    def test_a_directory_that_is_taken(self, captured: Path, tmp_path: Path) -> None:
        before = (captured / "p3s-np3" / "rank-000002.p3t").read_bytes()
        started = tmp_path / "started"
        done = launch(3, captured, "--", "touch", str(started))
        assert done.code == 1 and not started.exists()
        assert len(done.said) == 1
        assert "p3s-np3: already holds a capture" in done.said[0] and "-o" in done.said[0]
        assert (captured / "p3s-np3" / "rank-000002.p3t").read_bytes() == before

    @pytest.mark.parametrize(
        ("words", "code", "said"),
        [
            (["--", "no-such-program"], 1, "no-such-program: program not found"),
            (["--", "./data"], 1, "./data: not executable; `chmod +x ./data`"),
            (["--", "."], 1, ".: is a directory"),
            (["-o", "data/run", "--", "true"], 1, "data/run: cannot be"),
            (["--work", "gpu", "--", "true"], 2, "--work gpu"),
            ([], 2, "no program given"),
        ],
    )
    def test_one_line_for_all_ranks(
        self, words: list[str], code: int, said: str, tmp_path: Path
    ) -> None:
        (tmp_path / "data").write_text("no program\n")
        done = launch(3, tmp_path, *words)
        assert done.code == code
        assert len(done.said) == 1 and said in done.said[0]
        assert not (tmp_path / "p3s-np3").exists()

    def test_without_a_launcher_it_is_one_rank(self, program: str, tmp_path: Path) -> None:
        done = run([*P3S, "exec", "-o", "out", "--", program, "none", "1"], tmp_path)
        assert (done.code, done.said) == (0, []), done.err
        assert [rank.complete for rank in read_run(tmp_path / "out").ranks] == [True]

    def test_a_python_program(self, tmp_path: Path) -> None:
        pytest.importorskip("mpi4py")
        text = "from mpi4py import MPI\nfor i in range(3): MPI.COMM_WORLD.Barrier()\n"
        (tmp_path / "app.py").write_text(text)
        done = launch(2, tmp_path, "--", sys.executable, "app.py")
        install = usable_mpi()
        loaded = mpi.library_of_python(sys.executable)
        if loaded is None or loaded[0] != install.family:
            pytest.skip("mpi4py loads another MPI than that of the tests")
        assert done.code == 0, done.err
        traced = read_run(tmp_path / "p3s-np2")
        for rank in traced.ranks:
            ops = [traced.calls[number].op for number in rank.call.tolist()]
            assert rank.complete and ops.count("MPI_Barrier") == 3

    def test_a_python_program_of_another_mpi_than_the_launchers(self, tmp_path: Path) -> None:
        install = usable_mpi()
        loads = "/l/libmpi.so.12" if install.family == mpi.OPENMPI else "/l/libmpi.so.40"
        python = tmp_path / "python3"  # says that its mpi4py loads that
        python.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\necho {loads}\n")
        python.chmod(0o755)
        started = tmp_path / "started"
        for _ in range(2):  # found out, then remembered
            done = launch(2, tmp_path, "--", str(python), "app.py")
            assert done.code == 1 and len(done.said) == 1
            assert f"{python}: mpi4py loads {loads}" in done.said[0]
            assert f"the launcher of another MPI ({install.family})" in done.said[0]
        started.unlink()
        assert launch(2, tmp_path, "--", str(python)).code == 1 and not started.exists()

    def test_instructions_of_a_program_behind_a_script(self, program: str, tmp_path: Path) -> None:
        if shutil.which(f"qemu-{platform.machine()}") is None:
            pytest.skip("no qemu-user")
        script = tmp_path / "script"
        script.write_text(f"#!/bin/sh\nexec {program} none 1\n")
        script.chmod(0o755)
        done = launch(2, tmp_path, "-o", "out", "--work", "instructions", "--", str(script))
        assert done.code == 0 and len(done.said) == 1
        assert "instructions are not counted" in done.said[0]
        done = run([*P3S, "add", "study", "out"], tmp_path)
        assert done.code == 1 and "ran outside of qemu" in done.said[0]

    def test_ranks_that_start_together_compile_once(self, program: str, tmp_path: Path) -> None:
        linker = tmp_path / "bin" / "cc"
        linker.parent.mkdir()
        log = tmp_path / "log"
        linker.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(log))}\nexec gcc "$@"\n')
        linker.chmod(0o755)
        install = usable_mpi()
        # By env, as Open MPI puts its own directory before the PATH of its ranks.
        path = f"PATH={linker.parent}{os.pathsep}{os.environ['PATH']}"
        words = [install.mpiexec, "-n", "4", "env", path, *P3S, "exec", "--", program, "none", "1"]
        done = run(words, tmp_path, XDG_CACHE_HOME=str(tmp_path / "c"))
        assert (done.code, done.said) == (0, []), done.err
        assert len(read_run(tmp_path / "p3s-np4").ranks) == 4
        made = sorted(p.name.split("-")[0] for p in (tmp_path / "c" / "p3s").glob("*-*"))
        assert made == ["known", "tracer", "tracer"]  # itself, and its digest
        linked = [line for line in log.read_text().splitlines() if "-shared" in line.split()]
        assert len(linked) == 1

    def test_the_program_keeps_its_signals_variables_and_preloads(
        self, program: str, tmp_path: Path
    ) -> None:
        code = "import signal,os;print(os.environ['LD_PRELOAD'].split(':')[1:], os.environ['A'])"
        other = str(compile_c("int p3s_other;\n", tmp_path / "other.so", "-shared", "-fPIC"))
        words = ["sh", "-c", f'grep SigIgn /proc/self/status; {sys.executable} -c "{code}"']
        done = run([*P3S, "exec", "-o", "out", "--", *words], tmp_path, LD_PRELOAD=other, A="b=c d")
        assert done.code == 0, done.err
        ignored = int(done.out.split()[1], 16)
        assert not ignored & (1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGTERM - 1))
        assert f"['{other}'] b=c d" in done.out


class TestAdd:
    pytestmark = mpi_only

    def test_a_study_of_captured_runs(self, captured: Path, program: str, tmp_path: Path) -> None:
        study = tmp_path / "study"
        names = ["p3s-np1", "again", "p3s-np2", "p3s-np3"]
        done = run([*P3S, "add", str(study), *names, "--json"], captured)
        assert done.code == 0, done.err
        result = json.loads(done.out)
        assert result["characterized"] == [1, 2, 3] and len(result["added"]) == 4
        runs = [(r.np, r.rep, r.status) for r in Study.open(study).runs()]
        assert runs == [
            (1, 0, "complete"),
            (1, 1, "complete"),
            (2, 0, "complete"),
            (3, 0, "complete"),
        ]
        command = Study.open(study).command()
        assert command[1:] == ["-n", "{np}", program, "none", "1"]
        install = the_mpi()
        assert install is not None and mpi.launcher_family(command[0]) == install.family
        modelled = run([*P3S, "model", str(study)], captured)
        assert modelled.code in (0, 3) and (study / "model.json").is_file(), modelled.err
        # What was copied is the study's own.
        assert all((captured / name / "run.json").is_file() for name in names)
        info = read_json(study / "runs" / "np0002.r0" / "run.json", "p3s.run")
        assert info["wall_s"] > 0 and info["exit_code"] == 0

    def test_the_same_run_twice(self, captured: Path, tmp_path: Path) -> None:
        study = tmp_path / "study"
        shutil.copytree(captured / "p3s-np2", tmp_path / "copy")
        words = [*P3S, "add", str(study)]
        # The same directory by two names of it is one run, a copy of it is named.
        done = run([*words, "p3s-np2", str(captured / "*np2"), str(tmp_path / "copy")], captured)
        assert done.code == 3 and len(done.said) == 1 and "same run as" in done.said[0]
        assert [r.np for r in Study.open(study).runs()] == [2]
        # What is there already is passed over, and refused where there is nothing else.
        done = run([*words, "p3s-np3", "p3s-np2"], captured)
        assert (done.code, done.said) == (0, []) and "same run as" in done.err
        assert [r.np for r in Study.open(study).runs()] == [2, 3]
        done = run([*words, "p3s-np2"], captured)
        assert done.code == 1 and "same run as" in done.said[0]

    def test_a_run_that_was_killed(self, captured: Path, program: str, tmp_path: Path) -> None:
        """It is named, and does not keep others out."""
        ended = launch(2, tmp_path, "--", program, "kill", "1")
        assert ended.code != 0
        done = run([*P3S, "add", "study", "p3s-np2"], tmp_path)
        assert done.code == 3 and len(done.said) == 1 and not (tmp_path / "study").exists()
        assert "p3s-np2/rank-" in done.said[0] and "cannot be added" in done.said[0]
        others = [str(captured / f"p3s-np{np}") for np in (1, 3)]
        done = run([*P3S, "add", "study", "--json", "p3s-np2", *others, "gone"], tmp_path)
        assert done.code == 3
        result = json.loads(done.out)
        assert result["characterized"] == [1, 3] and len(result["added"]) == 2
        assert ["p3s-np2/rank-" in why for why in result["refused"]] == [True, False]
        assert [r.np for r in Study.open(tmp_path / "study").runs()] == [1, 3]

    def test_many_at_once(
        self, captured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Patterns, directories of captures, other studies."""

        monkeypatch.chdir(tmp_path)
        runs = [(1, 0), (1, 1), (2, 0), (3, 0)]

        def added(name: str, *what: str) -> list[tuple[int, int]]:
            cli("add", name, *what)
            return [(each.np, each.rep) for each in Study.open(tmp_path / name).runs()]

        inside = tmp_path / "captures" / "of today"
        inside.mkdir(parents=True)
        for path in captured.iterdir():
            if any(path.glob("rank-*.p3t")):
                shutil.copytree(path, inside / path.name)
        assert added("a", str(inside / "p3s-np*"), str(inside / "again")) == runs
        assert added("b", "captures") == runs and added("c", "a") == runs
        # Studies of some counts each, beside other things, as jobs leave them.
        for np in (1, 2, 3):
            assert added(f"jobs/np{np}", str(inside / f"p3s-np{np}")) == [(np, 0)]
        (tmp_path / "jobs" / "job.out").write_text("")
        assert added("d", "jobs") == [(1, 0), (2, 0), (3, 0)]
        shutil.rmtree(tmp_path / "jobs" / "np2" / "runs" / "np0002.r0")
        done = run([*P3S, "add", "e", "jobs/np1", "jobs/np2", "jobs/np3"], tmp_path)
        assert done.code == 3 and "jobs/np2: a study without a complete run" in done.said[0]

    def test_runs_of_characterize(self, program: str, tmp_path: Path) -> None:

        install = usable_mpi()
        command = [install.mpiexec, "-n", "{np}", program, "none", "1"]
        cli(f"characterize -n 1,2,3 -o {tmp_path / 'a'} --", *command)
        runs = [str(path) for path in sorted((tmp_path / "a" / "runs").iterdir())]
        done = run([*P3S, "add", "b", *runs], tmp_path)
        assert done.code == 0, done.err
        assert Study.open(tmp_path / "b").command() == command

    def test_instructions_that_were_not_counted(self, captured: Path, tmp_path: Path) -> None:
        shutil.copytree(captured / "p3s-np2", tmp_path / "run")
        info = read_json(tmp_path / "run" / "run.json", "p3s.run")
        write_json(tmp_path / "run" / "run.json", {**info, "work": "instructions"})
        done = run([*P3S, "add", "study", "run"], tmp_path)
        assert done.code == 1 and "ran outside of qemu" in done.said[0]
        assert not (tmp_path / "study").exists()

    def test_what_is_no_capture(self, captured: Path, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        for name, said in (("empty", "holds no capture"), ("absent", "not a directory")):
            done = run([*P3S, "add", "study", name], tmp_path)
            assert done.code == 1 and said in done.said[0]

    def test_runs_of_another_command(self, captured: Path, program: str, tmp_path: Path) -> None:
        assert launch(2, tmp_path, "--", program, "none", "2").code == 0
        first = str(captured / "p3s-np1")
        done = run([*P3S, "add", "study", first, "p3s-np2"], tmp_path)
        assert done.code == 2 and "several commands" in done.said[0]
        assert run([*P3S, "add", "study", first], tmp_path).code == 0
        done = run([*P3S, "add", "study", "p3s-np2"], tmp_path)
        assert done.code == 2 and "another command" in done.said[0]
        words = ["--", "mpiexec", "-n", "{np}", program, "none", "N"]
        done = run([*P3S, "add", "other", first, "p3s-np2", *words], tmp_path)
        assert done.code == 0, done.err
        assert Study.open(tmp_path / "other").command() == words[1:]

    def test_another_unit_of_work(self, captured: Path, tmp_path: Path) -> None:
        study = tmp_path / "study"
        assert run([*P3S, "add", str(study), "p3s-np1"], captured).code == 0
        path = study / "runs" / "np0001.r0" / "run.json"
        write_json(path, {**read_json(path, "p3s.run"), "work_unit": "instructions"})
        done = run([*P3S, "add", str(study), "p3s-np2"], captured)
        assert done.code == 1 and "a study holds one unit" in done.said[0]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Place()),
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "1",
            },
            Place(3, 8, 4, mpi.OPENMPI),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}, Place(0, 2, 2, mpi.MPICH)),
        (
            {
                "SLURM_PROCID": "5",
                "SLURM_STEP_NUM_TASKS": "6",
                "SLURM_NODEID": "2",
                "SLURM_STEP_TASKS_PER_NODE": "2(x2),1(x2)",
                "PMIX_RANK": "5",
            },
            Place(5, 6, 1, mpi.OPENMPI),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, Place()),  # a batch script, no rank
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, Place()),
        ({"PMI_RANK": "x", "PMI_SIZE": "2"}, Place()),
        ({"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"}, Place(1, 2, None, None)),
    ],
)
def test_which_rank_a_process_is(env: dict[str, str], expected: Place) -> None:
    assert place(env) == expected


def _study(tmp_path: Path, runs: list[tuple[int, str | None]]) -> Study:
    study = Study.create(tmp_path / "study", ["mpiexec", "-n", "{np}", "app"])
    for np, unit in runs:
        info: dict[str, Any] = {"schema": "p3s.run", "schema_version": 1, "np": np}
        info |= {"status": "complete", **({"work_unit": unit} if unit else {})}
        write_json(study.runs_dir(np) / "run.json", info)
    return study


@pytest.mark.parametrize(
    ("asked", "runs", "counts", "expected"),
    [
        ("auto", [], [1, 2], "auto"),
        ("auto", [], [2, 8], "cpu"),
        ("wall", [], [2, 8], "wall"),
        ("auto", [(2, "wall_ns")], [4], "wall"),
        ("auto", [(8, "cpu_ns")], [2], "cpu"),
        ("auto", [(8, None)], [2], "cpu"),
        ("auto", [(2, "wall_ns"), (4, "wall_ns")], [2, 4, 8], "cpu"),
        ("auto", [(2, "instructions")], [8], "instructions"),
        ("instructions", [(2, "instructions")], [8], "instructions"),
        ("auto", [(2, "wall_ns")], [8], None),
        ("cpu", [(2, "wall_ns")], [4], None),
        ("instructions", [(2, "cpu_ns")], [4], None),
    ],
)
def test_a_study_has_one_unit_of_work(
    asked: str,
    runs: list[tuple[int, str | None]],
    counts: list[int],
    expected: str | None,
    tmp_path: Path,
) -> None:
    from p3s.signature_runner.recording import Recording
    from p3s.signature_runner.work_unit import settle

    study = _study(tmp_path, runs)
    if expected is None:
        with pytest.raises(UsageError) as caught:
            settle(Recording(asked), traces_of(study), counts, 1, usable=4)
        said = str(caught.value)
        again = ",".join(map(str, sorted({*counts, *(np for np, _ in runs)})))
        assert "\n" not in said and f"-n {again} with --work" in said
        return
    assert settle(Recording(asked), traces_of(study), counts, 1, usable=4).work == expected
