"""Whether `p3s predict` waits for anything but cores: elapsed time, taken apart, of runs in a row.

    python benchmarks/stalls.py [STUDY] [--runs 7] [--counts 1024,4096] [--network NAME]

Each run is the whole command on the study without its prediction.json; without STUDY jacobi2d is
traced and modelled before. On a machine that does other work a command takes longer than its
processor time: its threads are ready to run and wait for a core. The scheduler counts both of every
thread (/proc/PID/task/TID/schedstat). What is left of the elapsed time is what no load explains: no
thread ran or was ready. Of that, a thread in uninterruptible sleep (D) waited for a disk. A look is
taken every 0.02 s, later where this process waits for a core itself; shorter pauses are not seen.

Linux only. Nothing here passes or fails. README.md beside this file says what the columns are.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# This directory has a replay.py, which must not be taken for the package.
sys.path = [
    *(path for path in sys.path if Path(path).resolve() != HERE),
    str(HERE.parent),
    str(HERE),
]

from figures import P3S, ROOT  # noqa: E402
from traced import modelled  # noqa: E402

#: Seconds between two looks at a command's threads.
LOOK_S = 0.02
#: A pause is over where threads were busy for this share of the time between two looks.
BUSY = 0.1


@dataclass(frozen=True)
class Line:
    """One run: seconds; ``longest_s``: of one pause without a thread that was ready."""

    run: int
    load: float
    elapsed_s: float
    cpu_s: float
    paused_s: float
    disk_s: float
    longest_s: float
    where: str
    code: int


@dataclass
class Watch:
    """What is seen of a command's threads, look by look."""

    root: int
    paused_s: float = 0.0
    disk_s: float = 0.0
    longest_s: float = 0.0
    where: str = ""

    def __post_init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at = time.monotonic()
        self._pause = 0.0

    def look(self) -> None:
        """Add what was since the last look."""
        now, threads = time.monotonic(), dict(_threads(self.root))
        passed, self._at = now - self._at, now
        # What a thread has waited for a core is counted when it gets one: until then it is "R".
        busy = sum(ready - self._before.get(tid, 0) for tid, (ready, _) in threads.items()) / 1e9
        self._before = {tid: ready for tid, (ready, _) in threads.items()}
        waits = any(state == "R" for _, state in threads.values())
        left = 0.0 if waits else max(passed - busy, 0.0)
        self.paused_s += left
        if any(state == "D" for _, state in threads.values()):
            self.disk_s += left
        self._pause = self._pause + left if left > (1 - BUSY) * passed else 0.0
        if self._pause > self.longest_s:
            self.longest_s, self.where = self._pause, _waiting_in(self.root)


def _threads(root: int) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield the threads of a process and its children: nanoseconds that each ran or was ready to,
    and its state. Those that end meanwhile are passed over."""
    for task in Path(f"/proc/{root}/task").glob("*"):
        try:
            ran, ready = (task / "schedstat").read_text().split()[:2]
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            children = (task / "children").read_text().split()
        except (OSError, ValueError, IndexError):
            continue
        yield task.name, (int(ran) + int(ready), state)
        for child in children:
            yield from _threads(int(child))


def _waiting_in(root: int) -> str:
    """Return the function of the kernel in which a process waits, "" where that is not told."""
    try:
        return Path(f"/proc/{root}/wchan").read_text().strip("0")
    except OSError:
        return ""


def lines(study: Path, runs: int, counts: str, network: str) -> Iterator[Line]:
    """Yield the runs, as they are made."""
    words = [*P3S, "predict", str(study), "-n", counts, *(["--network", network] * bool(network))]
    for run in range(runs):
        (study / "prediction.json").unlink(missing_ok=True)
        load, begin = os.getloadavg()[0], time.monotonic()
        child = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
        )
        watch = Watch(child.pid)
        while True:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            watch.look()
            time.sleep(LOOK_S)
        child.returncode = os.waitstatus_to_exitcode(status)
        yield Line(
            run,
            load,
            time.monotonic() - begin,
            used.ru_utime + used.ru_stime,
            watch.paused_s,
            watch.disk_s,
            watch.longest_s,
            watch.where,
            child.returncode,
        )


def shown(found: Sequence[Line]) -> str:
    """Return the table."""
    rows = [
        "| run | load | elapsed s | CPU s | paused s | disk s | longest pause s | in | exit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {x.run} | {x.load:.1f} | {x.elapsed_s:.2f} | {x.cpu_s:.2f} | {x.paused_s:.2f} |"
        f" {x.disk_s:.2f} | {x.longest_s:.2f} | {x.where} | {x.code} |"
        for x in found
    ]
    return "\n".join(rows)


def main() -> None:
    """Measure the runs and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("study", nargs="?", type=Path, help="a study; it is copied")
    parser.add_argument("--runs", type=int, default=7, help="runs in a row")
    parser.add_argument("--counts", default="1024,4096", help="process counts")
    parser.add_argument("--network", default="", help="as of p3s predict")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="p3s-stalls-") as folder:
        study = Path(folder) / "study"
        if told.study is None:
            modelled("jacobi2d", study)
        else:
            shutil.copytree(told.study, study)
        network = told.network or ("slingshot" if told.study is None else "")
        found = []
        for line in lines(study, told.runs, told.counts, network):
            found.append(line)
            print(shown([line]).splitlines()[-1], file=sys.stderr, flush=True)
    print(json.dumps([asdict(line) for line in found], indent=1) if told.json else shown(found))


if __name__ == "__main__":
    main()
