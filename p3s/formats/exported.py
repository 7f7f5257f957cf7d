"""What a writer is asked for, what it says of what it has written, and where exports go."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from p3s.base import staging
from p3s.base.arrays import Ints
from p3s.base.artefacts import reason, sync_directory, write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.ops import COMM, COMPLETION, kind_of
from p3s.program.order.calls import REASON_TEXT, Reason

if TYPE_CHECKING:
    from p3s.simulate.steps import Section


def check_free(target: Path, force: bool) -> None:
    """Raise UsageError when something is at the target and may not be replaced."""
    if not force and (target.exists() or target.is_symlink()):
        raise UsageError(f"{target}: is there already; choose another place with -o, or --force")
    if (
        force
        and target.is_dir()
        and not (target / "export.json").is_file()
        and any(target.iterdir())
    ):
        raise UsageError(f"{target}: a directory that is no export; choose another place with -o")


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Give an empty directory that takes the target's name in the end; P3SError if it cannot."""
    target = Path(os.path.abspath(target))
    staged: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = staging.new_directory(target)
        yield staged
        _into_place(staged, target)
        staged = None
    except OSError as err:
        raise _cannot(target, err) from err
    finally:
        if staged is not None:
            staging.discard(staged)


def _into_place(staged: Path, target: Path) -> None:
    if target.is_symlink() or target.is_file():
        target.unlink()
    staging.put_in_place(staged, target)
    sync_directory(target.parent)


@contextmanager
def new_file(target: Path) -> Iterator[IO[str]]:
    """Give a text file that takes the target's name in the end; P3SError if it cannot."""
    target = Path(os.path.abspath(target))
    temporary: Path | None = None
    try:
        if target.is_dir():
            raise UsageError(f"{target}: a directory; name a file with -o")
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = staging.new_file(target)
        with (
            open(handle, "wb"),  # locked as long as it is open; whoever writes may ask for its name
            open(
                temporary, "w", encoding="utf-8", errors="backslashreplace", buffering=1 << 20
            ) as file,
        ):
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, target)
        temporary = None
        sync_directory(target.parent)
    except OSError as err:
        raise _cannot(target, err) from err
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _cannot(target: Path, err: OSError) -> P3SError:
    return P3SError(f"{target}: cannot be written: {reason(err)}; choose another place with -o")


EXPORT_SCHEMA, EXPORT_VERSION = "p3s.export", 1
#: Why calls are left out, where the replay's words do not fit.
_WHY = {
    REASON_TEXT[Reason.CONSTRUCTOR]: "communicators are told apart by tags",
    REASON_TEXT[Reason.NOT_REPLAYED]: "there is no model of what it sends",
    REASON_TEXT[Reason.NOT_SEEN]: "it occurs only in iterations of its loop that are not written",
}
#: The same where nothing but the simulation is written.
SIMULATED = {REASON_TEXT[Reason.CONSTRUCTOR]: "the simulation leaves it out"}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """How a run is exported.

    ``turns``: iterations of each loop, None: the whole run. ``messages``: all collectives as
    messages, also where the format has calls. ``collectives``: algorithms instead of the library's.
    ``ranks_per_node``: on one host. ``machine``: costs of messages, default STUDY/machine.json.
    ``ranks``: of a timeline, None: all. ``simulated``: the simulated run, though there is a traced
    one."""

    turns: int | None = None
    messages: bool = False
    collectives: str = ""
    ranks_per_node: int | None = None
    machine: Path | None = None
    ranks: tuple[int, ...] | None = None
    simulated: bool = False

    def nodes_of(self, n: int) -> Ints:
        """Return the node of every rank: consecutive ranks on one, by default one rank on each."""
        return np.arange(n, dtype=np.int64) // max(self.ranks_per_node or 1, 1)


@dataclass
class ExportResult:
    """What an export by ``options`` holds and what it lacks; ``command``: words that read it.

    ``left_out``: (MPI call, why) -> events of the run; ``changed``: what was changed -> events, 0:
    all of them; ``sections``: of an export of some turns; ``sizes``: bytes of the messages.
    """

    to: str
    n: int
    path: Path
    options: Options = Options()
    events: float = 0.0
    records: int = 0
    left_out: dict[tuple[str, str], float] = field(default_factory=dict)
    changed: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    sections: list[dict[str, Any]] = field(default_factory=list)
    command: str = ""
    sizes: set[int] = field(default_factory=set)

    @property
    def partial(self) -> bool:
        """Whether communication of the run is not in it."""
        return any(kind_of(call) not in (COMM, COMPLETION) for call, _ in self.left_out)

    def to_json(self) -> dict[str, Any]:
        """Return the content of export.json."""
        return {
            "schema": EXPORT_SCHEMA,
            "schema_version": EXPORT_VERSION,
            "to": self.to,
            "n": self.n,
            "path": str(self.path),
            "events": self.events,
            "records": self.records,
            "left_out": [
                {"call": call, "why": why, "events": events}
                for (call, why), events in sorted(self.left_out.items())
            ],
            "changed": [
                {"what": change, "events": events or None}
                for change, events in sorted(self.changed.items())
            ],
            "notes": self.notes,
            "sections": self.sections,
            "command": self.command,
        }

    def lines(self) -> list[str]:
        """Return what is left out and changed, one line each, for people."""
        return [
            *(
                f"left out: {events:,.0f} {call}: {why}"
                for (call, why), events in sorted(self.left_out.items(), key=lambda pair: -pair[1])
            ),
            *(
                f"changed: {change}" + (f" ({events:,.0f})" if events else "")
                for change, events in sorted(self.changed.items())
            ),
            *self.notes,
        ]

    def lacks(self, call: str, why: str, events: float) -> None:
        """Take down calls that are not in it."""
        key = (call, _WHY.get(why, why))
        self.left_out[key] = self.left_out.get(key, 0.0) + events

    def changes(self, change: str, events: float) -> None:
        """Take down what is another way in it."""
        if events:
            self.changed[change] = self.changed.get(change, 0.0) + events

    def takes(
        self, section: Section, k: int | None = None, words: Mapping[str, str] = _WHY
    ) -> None:
        """Take down what a section lacks, by ``words`` (reason -> these), and what ``k`` is."""
        if k is not None:
            self.sections.append(
                {
                    "section": k,
                    "name": section.name,
                    "phases": list(section.phases),
                    "turns": section.turns,
                    "first_turn": section.first_turn,
                    "run_turns": section.run_turns,
                    "entries": section.entries,
                    "events": len(section.steps),
                }
            )
        for entry in section.left_out:
            if entry.call not in ("MPI_Init", "MPI_Init_thread", "MPI_Finalize"):
                self.lacks(entry.call, words.get(entry.why, entry.why), entry.events)


@contextmanager
def new_export(result: ExportResult) -> Iterator[Path]:
    """Give the directory of an export; at the end export.json is put into it, and it in place."""
    with new_directory(result.path) as directory:
        yield directory
        write_json(directory / "export.json", result.to_json())
