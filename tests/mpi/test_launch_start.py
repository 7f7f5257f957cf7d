"""How the tracer gets in front of the program: any launcher, scripts, other preloads."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from commands import P3S
from test_exec import run as run_command
from test_launch import launcher
from tracer_helpers import PROGRAMS, TIMEOUT_S, compile_c, the_mpi, usable_mpi

from p3s.base.errors import P3SError, UsageError
from p3s.base.host import mpi
from p3s.base.host.cores import cores, quota
from p3s.capture import read_run
from p3s.signature_runner import build
from p3s.signature_runner.launch import run_traced
from p3s.signature_runner.recording import COUNTERS, Recording, recording

pytestmark = [pytest.mark.skipif(the_mpi() is None, reason="no usable MPI")]

# Says in which programs it is loaded, one line per process.
OTHER = """
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void loaded(void)
{
    const char *path = getenv("SEEN_FILE");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
    char line[256];
    strcpy(line, program_invocation_short_name);
    strcat(line, getenv("P3S_TRACE_DIR") ? " traced\\n" : " free\\n");
    if (fd >= 0 && write(fd, line, strlen(line)) < 0)
        _exit(99);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bin")


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    return compile_c(PROGRAMS / "dies.c", folder / "dies")


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def ranks_of(run_dir: Path) -> int:
    run = read_run(run_dir)
    assert all(rank.complete for rank in run.ranks)
    return len(run.ranks)


def test_an_unknown_launcher(folder: Path, program: Path, tmp_path: Path) -> None:
    site = script(tmp_path / "site", f'k=$2; shift 2; exec {launcher()} -n "$k" "$@"\n')
    words = [str(site), "-k", "{np}", "--", str(program), "none", "1"]
    run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert ranks_of(tmp_path / "run") == 2
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["argv"] == [str(site), "-k", "2", str(program), "none", "1"]


def test_an_unknown_launcher_that_passes_no_variables_on(program: Path, tmp_path: Path) -> None:
    """The program's variables are on the command line, not in the launcher's environment."""
    kept = " ".join(f'{name}="${name}"' for name in ("PATH", "HOME"))
    rooted = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
    site = script(
        tmp_path / "site", f'k=$2; shift 2; exec env -i {kept} {rooted} {launcher()} -n $k "$@"\n'
    )
    words = [str(site), "-k", "{np}", "--", str(program), "none", "1"]
    run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert ranks_of(tmp_path / "run") == 2


def test_a_script_that_starts_the_program(program: Path, tmp_path: Path) -> None:
    run_sh = script(
        tmp_path / "run.sh",
        f"a=$(echo one two | wc -w)\nls / >/dev/null && echo helpers $a\n{program} none 1\n",
    )
    words = [launcher(), "-n", "{np}", str(run_sh)]
    outcome = run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert outcome.problems == [] and ranks_of(tmp_path / "run") == 2
    assert (tmp_path / "run" / "stdout.txt").read_text().count("helpers 2") == 2


def test_a_script_under_a_launcher_that_tells_no_mpi(program: Path, tmp_path: Path) -> None:
    """Whatever MPI is taken for it at first, the program's own is found."""
    site = script(tmp_path / "site", f'k=$2; shift 2; exec {launcher()} -n "$k" "$@"\n')
    run_sh = script(tmp_path / "run.sh", f"exec {program} none 1\n")
    words = [str(site), "-k", "{np}", "--", str(run_sh)]
    run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert ranks_of(tmp_path / "run") == 2
    install = usable_mpi()
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["mpi"].split()[0] == install.family


def test_the_preload_is_the_programs_only(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another preload stays, and shows what was started with the tracer's variables."""
    other = compile_c(OTHER, tmp_path / "other.so", "-shared", "-fPIC")
    seen = tmp_path / "seen"
    monkeypatch.setenv("SEEN_FILE", str(seen))
    monkeypatch.setenv("LD_PRELOAD", str(other))
    words = [launcher(), "-n", "{np}", str(program), "none", "1"]
    run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert ranks_of(tmp_path / "run") == 2
    lines = seen.read_text().splitlines()
    assert lines.count("dies traced") == 2
    started = {line.split()[0] for line in lines if line.endswith(" traced")}
    assert started <= {"dies", "sh"}


def test_a_preload_given_to_the_launcher_is_kept(program: Path, tmp_path: Path) -> None:
    install = usable_mpi()
    other = compile_c(OTHER, tmp_path / "other.so", "-shared", "-fPIC")
    seen = tmp_path / "seen"
    if install.family == mpi.OPENMPI:
        give = ["-x", f"LD_PRELOAD={other}", "-x", f"SEEN_FILE={seen}"]
    else:
        give = ["-genv", "LD_PRELOAD", str(other), "-genv", "SEEN_FILE", str(seen)]
    words = [launcher(), *give, "-n", "{np}", str(program), "none", "1"]
    run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert ranks_of(tmp_path / "run") == 2
    assert seen.read_text().splitlines().count("dies traced") == 2


def test_srun_says_which_mpi_it_prepares_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_MPI_TYPE", raising=False)
    assert mpi.family_of_srun(["srun", "--mpi=pmix_v4", "-n", "2"]) == mpi.OPENMPI
    assert mpi.family_of_srun(["srun", "--mpi", "pmi2"]) == mpi.MPICH
    assert mpi.family_of_srun(["srun", "-n", "2"]) is None
    monkeypatch.setenv("SLURM_MPI_TYPE", "pmix")
    assert mpi.family_of_srun(["srun", "-n", "2"]) == mpi.OPENMPI


def test_options_of_the_recording() -> None:
    asked = recording("cpu", "instructions, cycles,instructions", "64M")
    assert asked == Recording("cpu", ("instructions", "cycles"), 64 << 20)
    assert asked.environment(Path("/r")) == {
        "P3S_TRACE_DIR": "/r",
        "P3S_WORK": "cpu",
        "P3S_COUNTERS": "instructions,cycles",
        "P3S_LIMIT": str(64 << 20),
    }
    assert [recording(limit=text).limit_bytes for text in ("", "4096", "1g", "2KiB")] == [
        0,
        4096,
        1 << 30,
        2048,
    ]


@pytest.mark.parametrize(
    ("work", "counters", "limit", "said"),
    [
        ("gpu", "", "", "--work gpu"),
        ("cpu", "a b", "", "--counters a b"),
        ("cpu", "cycles,instruction", "", "'instruction' is not the name of a counter"),
        ("cpu", ",".join(COUNTERS[:7]), "", "7 are too many, at most 6 fit"),
        ("cpu", "", "many", "--limit many"),
        ("cpu", "", "0", "--limit 0"),
        ("cpu", "", "-5M", "--limit -5M"),
    ],
)
def test_options_that_cannot_be_used(work: str, counters: str, limit: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        recording(work, counters, limit)
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        ("0::/a/b\n", {"a/cpu.max": "250000 100000", "a/b/cpu.max": "max 100000"}, 2.5),
        ("0::/../x\n", {"cpu.max": "400000 100000"}, 4.0),
        ("0::/\n", {}, None),
        ("0::/a\n", {"a/cpu.max": "nonsense"}, None),
        (
            "2:cpu,cpuacct:/u\n",
            {"cpu,cpuacct/u/cpu.cfs_quota_us": "150000", "cpu,cpuacct/u/cpu.cfs_period_us": "1000"},
            150.0,
        ),
        ("2:cpu:/u\n", {"cpu/u/cpu.cfs_quota_us": "-1", "cpu/u/cpu.cfs_period_us": "1"}, None),
        ("2:cpuacct:/u\n", {"cpu/cpu.cfs_quota_us": "1", "cpu/cpu.cfs_period_us": "1"}, None),
    ],
)
def test_the_quota_of_a_control_group(
    group: str, files: dict[str, str], expected: float | None, tmp_path: Path
) -> None:
    proc, root = tmp_path / "cgroup", tmp_path / "fs"
    proc.write_text(group)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert quota(proc, root) == expected
    assert 1 <= cores() <= len(os.sched_getaffinity(0))


def test_a_program_name_the_shell_could_misread(program: Path, tmp_path: Path) -> None:
    odd = tmp_path / "$HOME `id` 'x' \"y\" = ; exit"
    os.link(program, odd)
    words = [launcher(), "-n", "{np}", str(odd), "none", "1"]
    run_traced(words, 2, tmp_path / "run", timeout_s=TIMEOUT_S)
    assert ranks_of(tmp_path / "run") == 2


def test_an_unknown_launcher_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="nolaunch: launcher not found"):
        run_traced(["nolaunch", "{np}", "--", "true"], 2, tmp_path / "run")


def test_the_counters_are_the_tracers() -> None:
    text = (Path(build.__file__).parent / "tracer" / "p3s_clock.c").read_text()
    assert tuple(re.findall(r'^    \{"([a-z-]+)", PERF_TYPE', text, re.MULTILINE)) == COUNTERS


def test_a_limit_that_is_reached_says_what_to_do(program: Path, tmp_path: Path) -> None:
    words = [launcher(), "-n", "{np}", str(program), "none", "20000"]
    options = ["-n", "1,2,3", "--limit", "8K", "-o", "study"]
    done = run_command([*P3S, "characterize", *options, "--", *words], tmp_path)
    assert done.code == 1
    assert "reached the limit" in done.said[-1] and "with a larger --limit" in done.said[-1]


def test_a_limited_run_does_not_take_the_place_of_a_good_one(program: Path, tmp_path: Path) -> None:
    words = [launcher(), "-n", "{np}", str(program), "none", "20000"]
    options = ["-n", "1,2,3", "-o", "a study"]
    assert run_command([*P3S, "characterize", *options, "--", *words], tmp_path).code == 0
    before = sorted((tmp_path / "a study" / "runs").glob("*.r0/rank-*.p3t"))
    sizes = [path.stat().st_size for path in before]
    done = run_command([*P3S, "characterize", *options, "--limit", "8K", "--", *words], tmp_path)
    assert done.code == 3 and "the earlier run stays; give a larger --limit" in done.err
    assert [path.stat().st_size for path in before] == sizes
    assert "next: p3s model 'a study'" in done.err
    assert run_command([*P3S, "model", "a study"], tmp_path).code in (0, 3)
