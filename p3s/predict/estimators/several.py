"""Several counts at once, one process per core.

    python -m p3s.predict.estimators.several FILE < ORDER

A process is told as JSON what to estimate, prints what it has to say, and writes arrays to a file.
"""

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
from p3s.predict.estimators.settings import Setting
from p3s.study import Study

Say = Callable[[str], None]

#: Estimators that only read a table: a second process would cost more than it saves.
_READ = frozenset({"simulation", "thesis"})
_ARRAYS = ("comm", "low", "high", "waiting", "transfer", "software")
#: Exit code of a process that has an error to tell.
_FAILED = 1


def each(name: str, study: Study, counts: Sequence[int], *, machine: Path | None, jobs: int,
         say: Say, setting: Setting) -> dict[int, Communication]:
    """Return the estimate of every count; see estimators.estimate_many."""
    from p3s.predict.estimators import estimate

    wanted = list(dict.fromkeys(counts))
    cores = len(os.sched_getaffinity(0))
    workers = min(jobs if jobs > 0 else cores, sum(n > 1 for n in wanted))
    if workers < 2 or name in _READ:
        return {n: estimate(name, study, n, machine=machine, say=say, setting=setting)
                for n in wanted}
    if name == "machine":
        from p3s.predict.dependency.build import library

        library()  # compiled once, before several processes want it
    return _spread(name, study, wanted, machine, workers, say, setting)


def _spread(name: str, study: Study, counts: Sequence[int], machine: Path | None, workers: int,
            say: Say, setting: Setting) -> dict[int, Communication]:
    from concurrent.futures import ThreadPoolExecutor

    order = {"name": name, "study": str(study.root.absolute()), "setting": _plain(setting),
             "machine": None if machine is None else str(Path(machine).absolute())}
    with tempfile.TemporaryDirectory(prefix="p3s-") as work, ThreadPoolExecutor(workers) as pool:
        futures = {n: pool.submit(_other, {**order, "n": n}, Path(work) / f"{n}.npz")
                   for n in sorted(counts, reverse=True)}
        found: dict[int, Communication] = {}
        try:
            for n in counts:
                found[n], lines = futures[n].result()
                for line in lines:
                    say(line)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return found


def _other(order: Mapping[str, Any], path: Path) -> tuple[Communication, list[str]]:
    """Have another process make the estimate; return it and what was said."""
    package = str(Path(__file__).resolve().parents[3])
    inherited = os.environ.get("PYTHONPATH")
    env = {**os.environ,
           "PYTHONPATH": package if not inherited else os.pathsep.join((package, inherited))}
    done = subprocess.run(
        [sys.executable, "-m", "p3s.predict.estimators.several", str(path)],
        input=json.dumps(order), capture_output=True, text=True, env=env, check=False)
    if done.returncode == 0:
        return from_bytes(path.read_bytes()), done.stdout.splitlines()
    lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
    if done.returncode == _FAILED and lines[-1].startswith("error: "):
        raise P3SError(lines[-1].removeprefix("error: "))
    how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
    raise P3SError(f"the process that simulated {order['n']} processes ended with {how}: "
                   f"{lines[-1][:160]}; estimate one count at a time")


def to_bytes(made: Communication) -> bytes:
    """Return an estimate as bytes; :func:`from_bytes` is the way back."""
    import numpy as np

    sink = io.BytesIO()
    head = {"estimator": made.estimator, "n": made.n, "phases": made.phases,
            "why_not": made.why_not, "notes": made.notes}
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
            head["estimator"], int(head["n"]), tuple(head["phases"]),
            **{name: file[name] for name in _ARRAYS}, why_not=head["why_not"],
            notes=tuple(head["notes"]))


def _plain(setting: Setting) -> dict[str, Any]:
    """Return a setting as plain data, with whole paths."""
    return {key: str(value.absolute()) if isinstance(value, Path) else value
            for key, value in asdict(setting).items()}


def _setting(data: Mapping[str, Any]) -> Setting:
    paths = {key: None if data[key] is None else Path(data[key])
             for key in ("rank_file", "topology")}
    return Setting(**{**data, **paths})


def main() -> None:
    """Make one estimate and write it to the file that is named."""
    from p3s.predict.estimators import estimate

    order = json.loads(sys.stdin.read())
    try:
        made = estimate(order["name"], Study.open(Path(order["study"])), order["n"],
                        machine=None if order["machine"] is None else Path(order["machine"]),
                        say=print, setting=_setting(order["setting"]))
    except P3SError as err:
        print(f"error: {' '.join(str(err).split())}", file=sys.stderr)
        raise SystemExit(_FAILED) from err
    Path(sys.argv[1]).write_bytes(to_bytes(made))


if __name__ == "__main__":
    main()
