"""The study directory: names of its files and its manifest."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from p3s.base.artefacts import SCHEMA_VERSION, as_json, read_json, reason, write_bytes, write_json
from p3s.base.errors import DamagedFile, P3SError, UsageError
from p3s.base.foreign_formats import ReadBy, refuse_foreign
from p3s.base.records import (
    FAILED,
    REPLAY_SCHEMA,
    REPLAY_VERSION,
    RUN_SCHEMA,
    SIGNATURE_SCHEMA,
    SIGNATURE_VERSION,
    STOPPED,
    STUDY_SCHEMA,
    RunRecord,
    commands_of,
    ended_early,
    list_signatures,
    phases_path,
    read_manifest,
    read_replay,
    replay_path,
    runs_in,
    scaled_dir,
    signature_path,
    times_path,
)
from p3s.base.staging import new_file
from p3s.base.text import differing, quote_word
from p3s.base.version import __version__

__all__ = [
    "REPLAY_SCHEMA",
    "REPLAY_VERSION",
    "RUN_SCHEMA",
    "SCHEMA_VERSION",
    "SIGNATURE_SCHEMA",
    "SIGNATURE_VERSION",
    "STUDY_SCHEMA",
    "RunRecord",
    "Study",
    "as_json",
    "read_json",
    "write_bytes",
    "write_json",
]


class _File:
    """A file of every study, by its name in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, study: Study, _: type[Study]) -> Path:
        return study.root / self._name


@dataclass(frozen=True)
class Study:
    """A study directory, by its root; every path inside it has its name here."""

    root: Path

    # ---- names -------------------------------------------------------------------------
    manifest_path = _File("study.json")
    model_path = _File("model.json")
    compute_path = _File("compute.json")
    prediction_path = _File("prediction.json")
    report_path = _File("report.html")
    speedup_png_path = _File("speedup.png")

    def runs_dir(self, np: int, rep: int = 0) -> Path:
        """Capture of one traced run: runs/np0008.r0/."""
        return self.root / "runs" / f"np{np:04d}.r{rep}"

    def signature_path(self, np: int) -> Path:
        """Signature at ``np`` processes: signature/np0008.json (tables: .parquet beside it)."""
        return signature_path(self.root, np)

    def timed_dir(self, np: int, rep: int = 0) -> Path:
        """Native run beside one whose instructions were counted in an emulator: timed/np0008.r0/.

        No run of the study: it gives the time that the work of the study's runs takes.
        """
        return self.root / "timed" / f"np{np:04d}.r{rep}"

    def times_path(self, np: int) -> Path:
        """Computation time per segment at ``np``: signature/np0008.times.json (table: .parquet)."""
        return times_path(self.root, np)

    def far_dir(self, name: str) -> Path:
        """Study of the same program with a smaller workload: far/NAME/."""
        return self.root / "far" / name

    def at_dir(self, setting: str) -> Path:
        """Study of the same program at one value of its parameters: at/size=4000/."""
        return self.root / "at" / setting

    @property
    def phases_path(self) -> Path:
        """Phases and loop nest over all counts: signature/phases.json."""
        return phases_path(self.root)

    def scaled_dir(self, n: int) -> Path:
        """Scaled trace at ``n`` processes: scaled/np000512/."""
        return scaled_dir(self.root, n)

    def scaled_path(self, n: int) -> Path:
        """Head of the scaled trace: scaled/np000512/scaled.json (written last)."""
        return self.scaled_dir(n) / "scaled.json"

    def replay_path(self, n: int) -> Path:
        """Measured communication at ``n``: replay/np000512.json (table: .parquet beside it)."""
        return replay_path(self.root, n)

    def replay_table(self, n: int) -> Path:
        """Communication time per rank and phase: replay/np000512.parquet."""
        return self.replay_path(n).with_suffix(".parquet")

    def replay(self, n: int) -> dict[str, Any]:
        """Read the measured communication at ``n``; raises P3SError, also for an older version."""
        return read_replay(self.root, n)

    def validate_path(self, n: int) -> Path:
        """Result of a comparison with a real run: validate/np000064.json."""
        return self.root / "validate" / f"np{n:06d}.json"

    def validate_run_dir(self, n: int, rep: int = 0) -> Path:
        """Capture of the real run: validate/np000064.r0/."""
        return self.root / "validate" / f"np{n:06d}.r{rep}"

    # ---- manifest ----------------------------------------------------------------------
    @classmethod
    def open(cls, root: Path) -> Study:
        """Open an existing study; raises P3SError when there is none, or one of another version."""
        study = cls.find(root)
        if study is None:
            refuse_foreign(root, ReadBy.OWN)
            raise P3SError(
                f"{root}: no study here (study.json is missing); make one: "
                f"p3s characterize -n 2,4,8 -o {quote_word(root)} -- mpiexec -n {{np}} PROGRAM"
            )
        return study

    @classmethod
    def find(cls, root: Path) -> Study | None:
        """Return the study at ``root``, None when there is none.

        A study.json that is missing or damaged is made again when there are runs to make it from.
        """
        study = cls(Path(root))
        try:
            study.manifest()
        except DamagedFile as err:
            if not any(run.info for run in study.runs()):
                raise DamagedFile(
                    f"{study.manifest_path}: damaged, and there are no runs to make it again from; "
                    "delete it and run p3s characterize again"
                ) from err
            study._rebuild("was damaged (kept as study.json.damaged)")
        except P3SError:
            if study.manifest_path.exists():
                raise
            if not any(run.info for run in study.runs()):
                return None
            study._rebuild("was missing")
        return study

    def _rebuild(self, why: str) -> None:
        """Make study.json from the runs, which say the command they were made with."""
        runs = self.runs()
        try:
            if self.manifest_path.exists():
                os.replace(self.manifest_path, self.root / "study.json.damaged")
        except OSError as err:
            raise P3SError(f"{self.manifest_path}: damaged: {reason(err)}") from err
        lost_counts = [np for np in list_signatures(self.root) if np not in self.complete_counts()]
        self._write_manifest(
            commands_of(runs),
            [
                {"np": np, "rep": 0, "dir": f"runs/{self.runs_dir(np).name}", "status": "gone"}
                for np in lost_counts
            ],
        )
        self.update()
        print(
            f"p3s: {self.manifest_path}: {why}; made again from {len(runs)} "
            f"run{'s' if len(runs) > 1 else ''}",
            file=sys.stderr,
        )

    @classmethod
    def create(
        cls,
        root: Path,
        command: Sequence[str],
        *,
        force: bool = False,
        remedy: str = "choose another directory with -o, or mix them with --force",
    ) -> Study:
        """Make a study, or open the one that is there to add to it; earlier runs stay.

        ``command`` is the launcher command with ``{np}``. Raises UsageError when the study
        already holds runs of another command and ``force`` is not given (``remedy`` says what to
        do), P3SError when the directory is not a study, or cannot be written.
        """
        study = cls(Path(root))
        study._check_writable()
        words = list(command)
        if cls.find(root) is not None:
            commands = study.manifest()["commands"]
            if words in commands:
                return study
            if study.runs() and not force:
                if not commands:
                    raise UsageError(
                        f"{root}: holds runs that do not say their command (study.json was lost); "
                        "if it is this one, add --force to p3s characterize"
                    )
                command_there, command_here = differing(commands[-1], words)
                raise UsageError(
                    f"{root}: holds runs of another command"
                    f" ({command_there}, not {command_here}); {remedy}"
                )
            keep = commands if study.runs() else []
            study.update(commands=[*keep, words])
            return study
        study._write_manifest([words])
        return study

    def _write_manifest(
        self, commands: list[list[str]], runs: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        write_json(
            self.manifest_path,
            {
                "schema": STUDY_SCHEMA,
                "schema_version": SCHEMA_VERSION,
                "created": now,
                "p3s_version": __version__,
                "commands": commands,
                "runs": list(runs),
            },
        )

    def remove_if_empty(self, untraced: bool = False) -> None:
        """Remove a study that holds no run, not even a failed one, and nothing else.

        ``untraced``: failed runs that have captured nothing are none.
        """
        try:
            for run in self.root.glob("*/np*.failed") if untraced else ():
                if not any(run.glob("rank-*.p3t")):
                    shutil.rmtree(run)
            names = {path.name for path in self.root.iterdir()}
            if names - {"timed"} != {"study.json", "runs"}:
                return
            for name in sorted(names - {"study.json"}):
                (self.root / name).rmdir()
            self.manifest_path.unlink()
            self.root.rmdir()
        except OSError:
            return

    def _check_writable(self) -> None:
        """Raise P3SError, before anything is run, when the study cannot be written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not self.manifest_path.exists():
                others = [p.name for p in self.root.iterdir() if not p.name.startswith(".")]
                if others and not self.runs() and others != ["runs"]:
                    raise P3SError(
                        f"{self.root}: not a study and not empty ({sorted(others)[0]!r} is "
                        "there); choose another study directory"
                    )
            for directory in (self.root, self.root / "runs"):
                directory.mkdir(exist_ok=True)
                handle, name = new_file(directory / "writable")
                name.unlink()
                os.close(handle)
        except OSError as err:
            raise P3SError(
                f"{self.root}: cannot be written: {reason(err)}; choose another study directory"
            ) from err

    def manifest(self) -> dict[str, Any]:
        """Return study.json, checked."""
        return dict(read_manifest(self.manifest_path))

    def update(self, **changes: Any) -> dict[str, Any]:
        """Change entries of study.json, keep all others, refresh its list of runs from disk.

        Runs that were deleted stay in the list as "gone": what was made from them is not used.
        """
        before = self._entries("runs", dict)
        obj = {**self.manifest(), **changes}
        present: list[dict[str, Any]] = [
            {
                "np": run.np,
                "rep": run.rep,
                "dir": str(run.path.relative_to(self.root)),
                "status": run.status,
                **{
                    key: run.info[key]
                    for key in ("exit_code", "wall_s", "oversubscribed", "cores", "mpi")
                    if key in run.info
                },
            }
            for run in self.runs()
        ]
        dirs = {row["dir"] for row in present}
        removed = [{**row, "status": "gone"} for row in before if row.get("dir") not in dirs]
        obj["runs"] = [*present, *removed]
        write_json(self.manifest_path, obj)
        return obj

    def command(self) -> list[str]:
        """Return the launcher command with ``{np}`` of the latest runs."""
        commands = self.manifest()["commands"]
        if not commands:
            count = min(self.complete_counts(), default=2)
            raise P3SError(
                f"{self.manifest_path}: names no command; say it with one count run again: "
                f"p3s characterize -n {count} -o {quote_word(self.root)} --force -- mpiexec "
                "-n {np} PROGRAM"
            )
        return list(commands[-1])

    # ---- runs --------------------------------------------------------------------------
    def runs(self, np: int | None = None) -> list[RunRecord]:
        """Return the runs in place, by count and repeat (of one count only if ``np`` is given).

        The directories are the truth; study.json repeats it for readers.
        """
        return runs_in(self.root / "runs", np)

    def timed_runs(self, np: int | None = None) -> list[RunRecord]:
        """Return the native runs beside emulated ones (timed/), as :meth:`runs` does."""
        return runs_in(self.root / "timed", np)

    def others(self) -> list[Study]:
        """Return the studies inside this one that have runs: other workloads of its program."""
        return [
            Study(path)
            for where in ("far", "at")
            for path in sorted((self.root / where).glob("*/"))
            if not path.name.startswith(".")
            and (path / "study.json").is_file()
            and Study(path).counts()
        ]

    def complete_counts(self) -> list[int]:
        """Return the distinct process counts that have at least one complete run."""
        return sorted({run.np for run in self.runs() if run.status == "complete"})

    def counts(self) -> list[int]:
        """Return those of them that the model rests on: the ones that are not left out."""
        without = set(self.left_out())
        return [np for np in self.complete_counts() if np not in without]

    def left_out(self) -> list[int]:
        """Return the traced process counts that the user has left out (study.json, `without`)."""
        stated = self._entries("without", int)
        return [np for np in self.complete_counts() if np in stated] if stated else []

    def gone_counts(self) -> list[int]:
        """Return the process counts whose runs were deleted: study.json still lists them."""
        listed = {
            run.get("np")
            for run in self._entries("runs", dict)
            if not (self.root / str(run.get("dir", ""))).is_dir()
        }
        return sorted(np for np in listed - set(self.complete_counts()) if isinstance(np, int))

    def _entries(self, key: str, kind: type) -> list[Any]:
        """Return a list of study.json, empty where it is not there or no list of that kind."""
        entry = self.manifest().get(key) if self.manifest_path.exists() else None
        return [each for each in entry if isinstance(each, kind)] if isinstance(entry, list) else []

    def failed_counts(self) -> list[int]:
        """Return the process counts at which the program failed or refused, and never succeeded."""
        where = ("runs", "timed", "validate")  # native runs are made first
        failed = {np for name in where for np in ended_early(self.root / name, FAILED)}
        validated = {run.np for run in runs_in(self.root / "validate") if run.status == "complete"}
        return sorted(failed - set(self.complete_counts()) - validated)

    def stopped_counts(self) -> list[int]:
        """Return the process counts whose tracing the user stopped, and that have no run since."""
        stopped = {n for name in ("runs", "timed") for n in ended_early(self.root / name, STOPPED)}
        return sorted(stopped - {*self.complete_counts(), *self.failed_counts()})

    def signature_counts(self) -> list[int]:
        """Return the process counts that have been characterized and that the model rests on.

        Not those that are left out, nor those whose runs were deleted since.
        """
        return sorted(list_signatures(self.root) - self.unused_counts())

    def unused_counts(self) -> frozenset[int]:
        """Return the process counts that are left out, or whose runs were deleted."""
        return frozenset({*self.left_out(), *self.gone_counts()})
