"""Files of a study, changed at random: what the commands that read them make of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import corpus
import handmade
import timed_study
from machines import synthetic
from mutations import mutate_bytes, mutate_json, mutate_table
from outcomes import AT, Hung, Outcome, Trial, fit_head, limited
from sketch import rank_file

from p3s.base import records
from p3s.base.artefacts import add_digest, read_json, write_json
from p3s.base.study import Study
from p3s.cli.failures import BUG
from p3s.cli.main import run
from p3s.signature.times import save_times

#: Seconds of processor time that one command may take, far above what it does.
LIMIT_S = 60
#: What a command says of a file that it goes on without.
_TOLD = re.compile("damaged|is not used")
#: Counts of the study.
COUNTS = (2, 4, 6, 9)


@dataclass(frozen=True)
class Format:
    """Files of one format in the study, and the commands that read them.

    without: what the commands are to make again, else they would not read the files.
    """

    name: str
    files: str
    commands: tuple[str, ...]
    without: tuple[str, ...] = ()


_MODEL = "model {s} --json"
_COMPUTE = ("model {s} --compute --json",)
_PREDICT = f"predict {{s}} -n {AT} --no-replay --only --json --what-if none"
_SIMULATED = f"predict {{s}} -n {AT} --only --json --estimator simulation"

FORMATS = (
    Format("study", "study.json", (_PREDICT, "next {s} --json", "check {s}")),
    Format("run", "runs/*/run.json", (_PREDICT, "check {s}", "next {s} --json")),
    Format("signature", "signature/np0006.json", (_MODEL,)),
    Format("calls", "signature/np0006.parquet", (_MODEL,)),
    Format("edges", "signature/np0006.edges.parquet", (_MODEL,)),
    Format("events", "signature/np0006.events.parquet", (_MODEL,)),
    Format("samples", "signature/np0006.samples.parquet", (_MODEL,)),
    Format("segments", "signature/np0006.segments.parquet", (_MODEL,)),
    Format("times", "signature/np0006.times.json", _COMPUTE, ("compute.json",)),
    Format("times table", "signature/np0006.times.parquet", _COMPUTE, ("compute.json",)),
    Format("phases", "signature/phases.json", ("phases {s} --json",)),
    Format("model", "model.json", (f"scale {{s}} -n {AT} --json", "explain {s} 1", "next {s}")),
    Format("compute", "compute.json", (f"scale {{s}} -n {AT} --json", "model {s} --compute")),
    Format("scaled", f"scaled/np{AT:06d}/scaled.json", (_PREDICT,)),
    Format("comms", f"scaled/np{AT:06d}/comms.json", (_PREDICT,)),
    Format("order", f"scaled/np{AT:06d}/order.json", (_PREDICT,)),
    Format("rows", f"scaled/np{AT:06d}/part-00000.parquet", (_PREDICT,)),
    Format("replay", f"replay/np{AT:06d}.json", (_SIMULATED,)),
    Format("replay table", f"replay/np{AT:06d}.parquet", (_SIMULATED,)),
    Format("prediction", "prediction.json", ("report {s} --json", "gate {s} --fail-if time>1e9")),
    Format("machine", "machine.json", (_PREDICT, "machine show {s}/machine.json --json")),
)
TABLES = {"calls", "edges", "events", "samples", "segments", "times table", "rows", "replay table"}


def make_study(root: Path) -> None:
    """Make a study with every file that the formats name."""
    study, tables = timed_study.put_study(
        root, corpus.jacobi2d(97, 61, 3), COUNTS, "cpu_ns", fit=False
    )
    for table in tables:
        times = timed_study.times_of(table, table.segments[:, 4] * 1.0 + 50.0)
        save_times(times, study.times_path(table.np))
        put_run(study, table.np)
    synthetic(name="here").save(root / "machine.json")
    counts = (*COUNTS, AT)
    for command in (_MODEL, f"scale {{s}} -n {','.join(map(str, counts))}", "phases {s}"):
        assert called(command, root)[0] in (0, 3), called(command, root)
    phases = read_json(study.scaled_path(AT), "p3s.scaled")["phases"]
    for n in counts:
        rows = [
            (rank, int(phase["phase"]), 5e6 + rank, 4e6, 6e6)
            for rank in range(n)
            for phase in phases
        ]
        handmade.put_replay(study, n, rows)
    assert called(_SIMULATED, root)[0] in (0, 3), called(_SIMULATED, root)


def put_run(study: Study, n: int) -> None:
    """Put what a run says of itself, and short captures."""
    folder = study.runs_dir(n)
    folder.mkdir(parents=True)
    for rank in range(n):
        writer = rank_file(rank, n, [("Allreduce",), ("Finalize",)])
        writer.end()
        (folder / f"rank-{rank:06d}.p3t").write_bytes(writer.data())
    write_json(
        folder / "run.json",
        {
            "schema": "p3s.run",
            "schema_version": 1,
            "np": n,
            "command": ["mpiexec", "-n", "{np}", "./sweeps"],
            "status": "complete",
            "exit_code": 0,
            "wall_s": 1.0,
            "work_unit": "cpu_ns",
            "oversubscribed": False,
            "cores": 16,
            "mpi": "openmpi 4.1.4",
        },
    )
    for path in (*folder.iterdir(), folder):
        os.utime(path, ns=(10**18, 10**18))  # before its signature


def called(command: str, root: Path) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    records.tell.cache_clear()  # what a new process has not said yet
    words = [word.replace("{s}", str(root)) for word in command.split()]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = run(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, out.getvalue(), err.getvalue()


@dataclass(frozen=True)
class Bench:
    """A study to change files of, and what its commands say when nothing is changed."""

    root: Path
    work: Path

    @classmethod
    def made(cls, folder: Path) -> Bench:
        """Make the study in an empty folder."""
        bench = cls(folder / "whole", folder / "study")
        make_study(bench.root)
        return bench

    def trial(self, form: Format, seed: int, expected: str) -> Trial:
        """Change a file of a format as the seed says and run its commands."""
        rng = random.Random(f"{form.name} {seed}")
        self.fresh(form)
        path = rng.choice(sorted(self.work.glob(form.files)))
        before, data = path.stat(), path.read_bytes()
        changed, what = (mutate_table if form.name in TABLES else mutate_json)(rng, data)
        if changed == data:
            changed, what = mutate_bytes(rng, data + b" ")
        meant = bool(seed % 2)
        path.write_bytes(add_digest(changed) if meant and path.suffix == ".json" else changed)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        if meant and path.suffix == ".parquet":
            fit_head(path, changed)
        found, said = self.outcome(form, expected)
        if meant and found is Outcome.SILENT:
            found = Outcome.OTHER
        how = "meant" if meant else "damage"
        return Trial(form.name, seed, f"{path.name} ({how}): {what}", found, said)

    def expected(self, form: Format) -> str:
        """Return what the commands of a format say of the study as it is."""
        self.fresh(form)
        return self._said(form)[0]

    def outcome(self, form: Format, expected: str) -> tuple[Outcome, str]:
        """Run the commands of a format on the changed study; sort what comes of it."""
        try:
            with limited(LIMIT_S):
                result, lines, bad = self._said(form)
        except Hung:
            return Outcome.HUNG, ""
        if bad == BUG:
            return Outcome.CRASHED, lines
        if bad or (result != expected and _TOLD.search(lines)):
            return Outcome.REFUSED, lines
        return (Outcome.UNCHANGED if result == expected else Outcome.SILENT), lines

    def _said(self, form: Format) -> tuple[str, str, int]:
        """Return a digest of the results, the last line on stderr, and the code of a failure."""
        made, last = hashlib.sha256(), ""
        for command in form.commands:
            code, out, err = called(command, self.work)
            lines = err.strip().splitlines() or [""]
            told = [line for line in (*lines, *out.splitlines()) if _TOLD.search(line)]
            if told or not _TOLD.search(last):
                last = (told or lines)[-1].strip()
            if code == BUG or "Traceback" in err or "Unable to allocate" in err:
                return "", lines[-1], BUG
            if code not in (0, 3):
                return "", last, code
            made.update(f"{command} {code}\n{out}".encode("utf-8", "surrogatepass"))
        return made.hexdigest(), last, 0

    def fresh(self, form: Format) -> None:
        """Put the study as it was made into its place."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.root, self.work, copy_function=shutil.copy2)
        for name in form.without:
            (self.work / name).unlink()


def trials(bench: Bench, form: Format, seeds: range) -> Iterator[Trial]:
    """Yield what becomes of the inputs of a format with these numbers."""
    expected = bench.expected(form)
    for seed in seeds:
        yield bench.trial(form, seed, expected)
