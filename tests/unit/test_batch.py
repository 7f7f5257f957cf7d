"""Batch scripts of Slurm, PBS and LSF: what they ask for, and that a shell runs them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from p3s.base.errors import P3SError, UsageError
from p3s.base.host.hosts import allocated_hosts
from p3s.base.host.schedulers import (
    SCHEDULERS,
    Job,
    Surroundings,
    by_hand,
    hours,
    of_array,
    scheduler,
    script,
    seconds_of_limit,
)

SLURM, PBS, LSF = (SCHEDULERS[name] for name in ("slurm", "pbs", "lsf"))
ALL = list(SCHEDULERS.values())
REPLAY = Job("p3s-replay", Path("/x y/50%/submit"), nodes=4, time_s=1800.0)
TRACE = Job("p3s-trace", Path("/x/trace"), ranks=20, per_node=8, time_s=90.0)


def run(text: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash"],
        input=text,
        text=True,
        capture_output=True,
        timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": "/", **env},
    )


def test_slurm() -> None:
    job = replace(REPLAY, queue="p", account="x", options=("--constraint=a",))
    assert SLURM.directives(job) == [
        "--job-name=p3s-replay",
        "--nodes=4",
        "--exclusive",
        "--time=0:30:00",
        "--partition=p",
        "--account=x",
        "--constraint=a",
        '--output="/x y/50%%/submit-%j.out"',
    ]
    assert SLURM.directives(TRACE)[1:6] == [
        "--nodes=3",
        "--ntasks=20",
        "--ntasks-per-node=8",
        "--exclusive",
        "--time=0:02:00",
    ]
    array = SLURM.directives(replace(TRACE, tasks=3, cores=4))
    assert {"--array=0-2", "--cpus-per-task=4", "--output=/x/trace-%A_%a.out"} <= set(array)
    # srun does not take it from the job.
    assert SLURM.environment(replace(TRACE, cores=4)) == ["export SRUN_CPUS_PER_TASK=4"]
    assert SLURM.log_of(TRACE, "7") == Path("/x/trace-7.out")


def test_pbs() -> None:
    job = replace(TRACE, queue="q", account="x", options=("-l filesystems=home",), tasks=3)
    assert PBS.directives(job) == [
        "-N p3s-trace",
        "-S /bin/bash",
        "-l select=2:ncpus=8:mpiprocs=8+1:ncpus=4:mpiprocs=4",
        "-l place=scatter:exclhost",
        "-J 0-2",
        "-l walltime=0:02:00",
        "-q q",
        "-A x",
        "-l filesystems=home",
        "-j oe",
        "-o /x/",
    ]
    assert '-o "/x y/50%/"' in PBS.directives(REPLAY)
    assert "-l select=4:ncpus=1:mpiprocs=1" in PBS.directives(REPLAY)
    assert "-l select=2:ncpus=8:mpiprocs=4" in PBS.directives(
        replace(TRACE, ranks=8, per_node=4, cores=2)
    )
    anywhere = PBS.directives(replace(TRACE, per_node=0))
    assert {"-l select=20:ncpus=1:mpiprocs=1", "-l place=free:exclhost"} <= set(anywhere)
    assert PBS.log_of(TRACE, "12.head") == Path("/x/12.head.OU")
    with pytest.raises(P3SError, match="host's name"):
        PBS.directives(replace(TRACE, log=Path("/a:b/c")))


def test_lsf() -> None:
    job = replace(TRACE, queue="q", account="x", options=('-R "rusage[mem=1]"',), cores=4, tasks=3)
    assert LSF.directives(job) == [
        '-J "p3s-trace[1-3]"',
        "-n 20",
        '-R "span[ptile=8]"',
        '-R "affinity[core(4)]"',
        "-x",
        "-W 0:02",
        "-q q",
        "-P x",
        '-R "rusage[mem=1]"',
        '-o "/x/trace-%J_%I.out"',
    ]
    nodes = LSF.directives(replace(REPLAY, log=Path("/x y/submit")))
    assert nodes[1:3] == ["-n 4", '-R "span[ptile=1]"']
    assert '-o "/x y/submit-%J.out"' in nodes
    with pytest.raises(P3SError, match="numbers of the job"):
        LSF.directives(REPLAY)


@pytest.mark.parametrize("which", ALL, ids=list(SCHEDULERS))
@pytest.mark.parametrize(
    "change",
    [
        {"queue": "a b"},
        {"account": "x\n#SBATCH -n 5"},
        {"options": ("constraint=a",)},
        {"options": ("--a\n#PBS b",)},
        {"log": Path('/a"b/c')},
        {"log": Path("/a\nb/c")},
        {"log": Path("/a\\b/c")},
    ],
)
def test_what_no_scheduler_takes(which: object, change: dict[str, object]) -> None:
    assert which in ALL
    with pytest.raises(P3SError):
        SCHEDULERS[which.name].directives(replace(TRACE, **change))  # type: ignore[attr-defined]


def test_an_option_of_slurm_is_one_word() -> None:
    for option in ("-c 1", "--a b"):
        with pytest.raises(P3SError):
            SLURM.directives(replace(TRACE, options=(option,)))


@pytest.mark.parametrize("which", ALL, ids=list(SCHEDULERS))
def test_a_script_is_one_that_a_shell_runs(which: object, tmp_path: Path) -> None:
    one = SCHEDULERS[which.name]  # type: ignore[attr-defined]
    folder = tmp_path / "it's here"
    (folder / "bin").mkdir(parents=True)
    # As those of old do: a variable that is not set, under set -u.
    (folder / "bin" / "activate").write_text("A=${A-}$OF_NOBODY; export VENV=yes\n")
    around = Surroundings(folder, ("gcc/12", "open-mpi"), folder / "bin" / "activate")
    job = replace(TRACE, log=tmp_path / "log")
    commands = [
        ["sh", "-c", "'echo \"$0\" $PWD $VENV; exit 3'", "'a b'"],
        ["echo", "'$HOME'", *["long-word" * 3] * 6],
    ]
    text = script(one, job, commands, around)
    # A path is one word, however long the one of temporary files is.
    lines = text.replace(str(tmp_path), "/place").splitlines()
    assert lines[0] == "#!/bin/bash -l" and max(map(len, lines)) < 110
    directives = [line for line in text.splitlines() if line.startswith(one.prefix)]
    assert directives == [f"{one.prefix} {each}" for each in one.directives(job)]
    assert text.index("#!") < text.index(one.prefix) < text.index("\nset -e")
    modules = "module() { echo $1 $2; }\n"
    done = run(modules + text)
    words = " ".join(["long-word" * 3] * 6)
    assert done.stdout == f"load gcc/12\nload open-mpi\na b {folder} yes\n$HOME {words}\n"
    assert done.returncode == 3, done.stderr
    # Without modules there is no module command to be had, and the script says so.
    assert run(text).returncode == 127
    plain = Surroundings(folder)
    failed = run(script(one, job, [["false"], ["echo", "no"]], plain))
    assert (failed.stdout, failed.returncode) == ("", 1)
    alone = run(script(one, job, [["sh", "-c", "'exit 5'"]], plain))
    assert alone.returncode == 5


def test_a_task_of_an_array_knows_its_count() -> None:
    for one in ALL:
        lines = of_array(one, [8, 16, 32])
        said = [
            run(
                "\n".join(["set -eu", *lines, "echo $np"]), **{one.index: str(k + one.first)}
            ).stdout
            for k in range(3)
        ]
        assert said == ["8\n", "16\n", "32\n"]
        assert run("\n".join(["set -eu", *lines, "echo $np"])).returncode != 0


def test_a_module_is_a_name() -> None:
    for name in ("gcc; true", "", "-x", "a b", "$(id)"):
        with pytest.raises(P3SError, match="--module"):
            script(SLURM, TRACE, [["true"]], Surroundings(Path("/"), (name,)))


@pytest.mark.parametrize(
    ("name", "says", "first", "last"),
    [
        ("slurm", "echo 7", ["--parsable", "a.sh"], ["--dependency=afterany:7:7", "last.sh"]),
        ("pbs", "echo 7.head", ["a.sh"], ["-W", "depend=afterany:7.head:7.head", "last.sh"]),
        ("lsf", 'echo "Job <7> is submitted to queue <n>."', [], ["-w", "ended(7) && ended(7)"]),
    ],
)
def test_jobs_wait_for_others(
    name: str,
    says: str,
    first: list[str],
    last: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By hand and by P3S the same words reach the scheduler."""
    one = SCHEDULERS[name]
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / one.command
    told = f'for word; do printf "%s|" "$word"; done >> {log}; echo >> {log}'
    command.write_text(f"#!/bin/bash\n{told}\n{says}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "some jobs"
    folder.mkdir()
    paths = [folder / "a.sh", folder / "b.sh", folder / "last.sh"]
    for path in paths:
        path.write_text("true\n")
    text = by_hand(one, paths[:2], paths[2])
    done = run(text)
    assert done.returncode == 0, done.stderr
    lines = log.read_text().splitlines()
    assert lines[0] == "".join(f"{word}|" for word in first)
    assert [word for word in last if f"{word}|" not in lines[2]] == []
    log.unlink()
    numbers = [one.submit(path) for path in paths[:2]]
    assert numbers == (["7.head"] * 2 if name == "pbs" else ["7"] * 2)
    one.submit(paths[2], numbers)
    assert "|".join(last[:1]) in log.read_text().splitlines()[2]
    assert all(word.replace("last.sh", str(paths[2])) in log.read_text() for word in last)


def test_which_scheduler_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def there(*names: str) -> None:
        folder = tmp_path / "-".join(["bin", *names])
        folder.mkdir()
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    for names, found in (((), SLURM), (("qsub",), PBS), (("bsub",), LSF)):
        there(*names)
        assert scheduler() is found
    there("qsub", "sbatch")  # the wrapper that comes with Slurm
    assert scheduler() is SLURM
    there("qsub", "qconf")
    with pytest.raises(UsageError, match="Grid Engine"):
        scheduler()
    assert scheduler("PBS") is PBS
    with pytest.raises(UsageError, match="slurm, pbs, lsf"):
        scheduler("sge")


def test_time_limits() -> None:
    assert [hours(s) for s in (1, 60, 61, 3600, 90000)] == [
        "0:01:00",
        "0:01:00",
        "0:02:00",
        "1:00:00",
        "25:00:00",
    ]
    told = {
        "5": 300,
        "5:30": 330,
        "1:00:00": 3600,
        "1-2": 93600,
        "30m": 1800,
        "2h": 7200,
        "90s": 90,
    }
    assert {text: seconds_of_limit(text) for text in told} == told
    for text in ("soon", "0", "1:2:3:4", "-5", "1e3", ""):
        with pytest.raises(P3SError, match="time limit"):
            seconds_of_limit(text)


def test_the_nodes_of_a_job(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes"
    nodes.write_text("n2\nn2\nn1\n")
    pbs = {"PBS_JOBID": "7.head", "PBS_NODEFILE": str(nodes)}
    assert allocated_hosts(pbs) == ["n2", "n1"]
    assert allocated_hosts({**pbs, "PBS_NODEFILE": str(tmp_path / "gone")}) == []
    assert allocated_hosts({"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "n2 8 n1 8"}) == ["n2", "n1"]
    assert allocated_hosts({"LSB_JOBID": "7", "LSB_HOSTS": "n2 n2 n1"}) == ["n2", "n1"]
    assert allocated_hosts({"LSB_MCPU_HOSTS": "n2 8"}) == []
