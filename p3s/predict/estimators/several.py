"""Several counts at once, one process per core (worker.py)."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from p3s.errors import P3SError
from p3s.predict.estimated import Communication
from p3s.predict.estimators.one import Say, estimate
from p3s.predict.estimators.settings import Setting
from p3s.simulate.followed import Followed
from p3s.study import Study

#: Estimators that only read a table: a second process would cost more than it saves.
_READ = frozenset({"simulation", "thesis"})
_ARRAYS = ("comm", "low", "high", "waiting", "transfer", "software")
#: A process is started for counts of so many ranks together; it needs half a second to begin.
_WORTH = 256
#: Exit code of a process that has an error to tell.
FAILED = 1


def _nothing(_: object) -> None:
    """Say nothing."""


def estimate_many(
    name: str,
    study: Study,
    counts: Sequence[int],
    *,
    machine: Path | None = None,
    jobs: int = 0,
    say: Say | None = None,
    setting: Setting | None = None,
    done: Callable[[int], None] | None = None,
) -> dict[int, Communication]:
    """Return ``estimate`` of several counts, on ``jobs`` cores (0: those that may be used).

    ``done`` is told every count that is ready. The result does not depend on ``jobs``; the largest
    counts are begun first. Errors as in ``estimate``: of the first count, in the given order, that
    has one.
    """
    say, done, setting = say or _nothing, done or _nothing, setting or Setting()
    wanted = list(dict.fromkeys(counts))
    workers = jobs if jobs > 0 else len(os.sched_getaffinity(0))
    mine, *others = dealt([n for n in wanted if n > 1], 1 if name in _READ else workers)
    found: dict[int, Communication] = {}
    with tempfile.TemporaryDirectory(prefix="p3s-") as work:
        order = {
            "name": name,
            "study": str(study.root.absolute()),
            "setting": _plain(setting),
            "machine": None if machine is None else str(Path(machine).absolute()),
            "into": work,
        }
        processes: list[tuple[list[int], subprocess.Popen[str]]] = []
        try:
            processes = [(them, _started({**order, "counts": them})) for them in others]
            for n in [n for n in wanted if n == 1] + mine:
                found[n] = estimate(name, study, n, machine=machine, say=say, setting=setting)
                done(n)
            for them, process in processes:
                for line in _ended(process, them).splitlines():
                    say(line)
                for n in them:
                    found[n] = from_bytes((Path(work) / f"{n}.npz").read_bytes())
                    done(n)
        finally:
            for _, process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    return {n: found[n] for n in wanted}


def dealt(counts: Sequence[int], workers: int) -> list[list[int]]:
    """Deal counts to workers, the largest first, each to the one with least ranks so far.

    The first part is not empty if there is a count; nobody else gets less than _WORTH ranks.
    """
    parts: list[list[int]] = [[] for _ in range(max(workers, 1))]
    for n in sorted(counts, reverse=True):
        min(parts, key=sum).append(n)
    first, *others = parts
    worth = [part for part in others if sum(part) >= _WORTH]
    return [first + [n for part in others if part not in worth for n in part], *worth]


def _started(order: Mapping[str, Any]) -> subprocess.Popen[str]:
    """Start a process that makes the estimates of some counts."""
    package = str(Path(__file__).resolve().parents[3])
    inherited = os.environ.get("PYTHONPATH")
    env = {
        **os.environ,
        "PYTHONPATH": package if not inherited else os.pathsep.join((package, inherited)),
    }
    (Path(order["into"]) / f"{order['counts'][0]}.json").write_text(json.dumps(order))
    return subprocess.Popen(
        [
            sys.executable,
            "-P",  # no module from the directory that the user is in
            "-m",
            "p3s.predict.estimators.worker",
            str(Path(order["into"]) / f"{order['counts'][0]}.json"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def _ended(process: subprocess.Popen[str], counts: Sequence[int]) -> str:
    """Wait for a process; return what it has said. P3SError: what it could not do."""
    said, complaints = process.communicate()
    if process.returncode == 0:
        return said
    lines = [line for line in complaints.splitlines() if line.strip()] or ["no message"]
    if process.returncode == FAILED and lines[-1].startswith("error: "):
        raise P3SError(lines[-1].removeprefix("error: "))
    how = (
        f"signal {-process.returncode}"
        if process.returncode < 0
        else f"exit code {process.returncode}"
    )
    raise P3SError(
        f"the process that simulated {', '.join(map(str, counts))} processes ended with "
        f"{how}: {lines[-1][:160]}; estimate one count at a time"
    )


def to_bytes(made: Communication) -> bytes:
    """Return an estimate as bytes; :func:`from_bytes` is the way back."""
    import numpy as np

    sink = io.BytesIO()
    head = {
        "estimator": made.estimator,
        "n": made.n,
        "phases": made.phases,
        "why_not": made.why_not,
        "notes": made.notes,
        "followed": asdict(made.followed),
    }
    arrays: dict[str, Any] = {name: getattr(made, name) for name in _ARRAYS}
    arrays["head"] = np.frombuffer(json.dumps(head).encode("utf-8", "surrogateescape"), np.uint8)
    np.savez(sink, **arrays)
    return sink.getvalue()


def from_bytes(data: bytes) -> Communication:
    """Return an estimate from its bytes."""
    import numpy as np

    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        head = json.loads(file["head"].tobytes().decode("utf-8", "surrogateescape"))
        return Communication(
            head["estimator"],
            int(head["n"]),
            tuple(head["phases"]),
            **{name: file[name] for name in _ARRAYS},
            why_not=head["why_not"],
            notes=tuple(head["notes"]),
            followed=Followed(**{**head["followed"], "calls": tuple(head["followed"]["calls"])}),
        )


def _plain(setting: Setting) -> dict[str, Any]:
    """Return a setting as plain data, with whole paths."""
    return {
        key: str(value.absolute()) if isinstance(value, Path) else value
        for key, value in asdict(setting).items()
    }
