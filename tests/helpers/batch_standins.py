"""qsub and bsub that queue jobs: directives checked, environment as the real ones set it.

Sources: qsub(1B) of OpenPBS; bsub and "Environment variables set for job execution" of the LSF 10.1
reference.
"""

from __future__ import annotations

import getopt
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

#: Options with a value (:) and without, of the synopses.
QSUB = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:P:q:r:R:S:u:v:VW:Xz"
BSUB = "J:n:R:xo:e:W:q:P:w:L:a:m:M:"
TIMEOUT_S = 600.0
#: What a batch system leaves of the environment that the tests start programs in.
KEPT = re.compile(
    r"PATH|HOME|P3S_.*|OMPI_.*|PRTE_.*|MPIR_.*|PYTHONPATH|XDG_.*|TMPDIR|LD_LIBRARY_PATH"
)


def install(folder: Path, *names: str) -> None:
    """Write commands of these names into a directory for PATH."""
    folder.mkdir()
    for name in names:
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" {name} "$@"\n')
        path.chmod(0o755)


def options_of(text: str, prefix: str, known: str) -> list[tuple[str, str]]:
    """Return the options of the directives ahead of the first command; refuse unknown ones."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        if line.startswith(prefix):
            # A number of the job in a path is no quote, but quotes are those of a shell.
            options, rest = getopt.getopt(shlex.split(line[len(prefix) :]), known)
            assert not rest, f"{line}: {rest}"
            found += options
        elif line and not line.startswith("#"):
            break
    return found


def number(folder: Path) -> int:
    """Return the number of the next job."""
    counter = folder / "number"
    value = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(value))
    return value


def queue(folder: Path, job: int, text: str, tasks: list[tuple[str, dict[str, str]]]) -> None:
    """Keep a job: its script, and of each task where its output goes and what it is told."""
    (folder / f"job-{job:04d}.json").write_text(json.dumps([text, tasks]))


def run_jobs(folder: Path) -> None:
    """Run all jobs in the order of their submission, which is that of what waits for others."""
    for path in sorted(folder.glob("job-*.json")):
        text, tasks = json.loads(path.read_text())
        for out, env in tasks:
            execute(text, Path(out), env)
        path.unlink()


def execute(text: str, out: Path, env: dict[str, str]) -> None:
    """Run a script away from where it was submitted."""
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    with open(out, "ab") as file:
        subprocess.run(
            ["bash"],
            input=text.encode(),
            cwd="/",
            env={**kept, **env},
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )


def qsub(words: list[str]) -> str:
    """Take a script of PBS; return what qsub prints."""
    folder = Path(sys.argv[0]).parent
    asked, scripts = getopt.getopt(words, QSUB)
    text = Path(scripts[0]).read_text()
    options = [*options_of(text, "#PBS", QSUB), *asked]
    given = dict(options)
    resources = dict(value.split("=", 1) for name, value in options if name == "-l")
    hosts = []
    for k, chunk in enumerate(resources["select"].split("+")):
        times, *settings = chunk.split(":")
        values = dict(each.split("=") for each in settings)
        assert int(values["ncpus"]) >= int(values["mpiprocs"])
        for node in range(int(times)):
            hosts += [f"host{k}{node}"] * int(values["mpiprocs"])
    arrangement, sharing = resources.get("place", "free:shared").split(":")
    assert arrangement in ("free", "pack", "scatter") and sharing in ("shared", "excl", "exclhost")
    assert re.fullmatch(r"\d+:\d\d:\d\d", resources.get("walltime", "1:00:00"))
    depend = re.fullmatch(
        r"depend=afterany(:\d+(\[\])?\.head)+", given.get("-W", "depend=afterany:1.head")
    )
    assert depend and given["-j"] == "oe" and given["-o"].endswith("/")
    first, last = given.get("-J", "0-0").split("-")
    job = number(folder)
    name = f"{job}[].head" if "-J" in given else f"{job}.head"
    nodefile = folder / f"nodes-{job}"
    nodefile.write_text("".join(f"{host}\n" for host in hosts))
    tasks: list[tuple[str, dict[str, str]]] = []
    for task in range(int(first), int(last) + 1):
        own = name.replace("[]", f"[{task}]")
        env = {
            "PBS_JOBID": own,
            "PBS_O_WORKDIR": os.getcwd(),
            "PBS_NODEFILE": str(nodefile),
            **({"PBS_ARRAY_INDEX": str(task)} if "-J" in given else {}),
        }
        tasks.append((f"{given['-o']}{own}.OU", env))
    queue(folder, job, text, tasks)
    return name


def bsub(words: list[str]) -> str:
    """Take a script of LSF, which comes on standard input; return what bsub prints."""
    text = sys.stdin.read()
    asked, rest = getopt.getopt(words, BSUB)
    assert not rest
    options = [*options_of(text, "#BSUB", BSUB), *asked]
    given = dict(options)
    slots = int(given["-n"])
    wanted = " ".join(value for name, value in options if name == "-R")
    span = re.search(r"span\[ptile=(\d+)\]", wanted)
    full = int(span[1]) if span else slots
    sizes = [min(full, slots - start) for start in range(0, slots, full)]
    assert re.fullmatch(r"\d+:\d\d", given.get("-W", "1:00"))
    assert re.fullmatch(r"ended\(\d+\)( && ended\(\d+\))*", given.get("-w", "ended(1)"))
    array = re.fullmatch(r"([\w.-]+)(?:\[(\d+)-(\d+)\])?", given["-J"])
    assert array
    job = number(Path(sys.argv[0]).parent)
    first, last = int(array[2] or 0), int(array[3] or 0)
    assert first >= 1 or not array[2]
    tasks: list[tuple[str, dict[str, str]]] = []
    for task in range(first, last + 1):
        env = {
            "LSB_JOBID": str(job),
            "LSB_JOBINDEX": str(task),
            "LSB_MCPU_HOSTS": " ".join(f"host{k} {size}" for k, size in enumerate(sizes)),
            "LS_SUBCWD": os.getcwd(),
        }
        out = given["-o"].replace("%J", str(job)).replace("%I", str(task))
        tasks.append((out, env))
    queue(Path(sys.argv[0]).parent, job, text, tasks)
    return f"Job <{job}> is submitted to default queue <normal>."


if __name__ == "__main__":
    # The directory of the command keeps what it knows of its jobs.
    name, *given_words = sys.argv[1:]
    sys.argv[0] = os.environ["P3S_TEST_BATCH"] + "/" + name
    print((qsub if name == "qsub" else bsub)(given_words))
