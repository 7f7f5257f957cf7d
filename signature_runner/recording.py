"""What the tracer is told to record, and how it gets in front of a program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from p3s.base.errors import UsageError
from p3s.base.host.cores import CLOSE, LOCAL_RANK, Team
from p3s.capture.recording_plan import NAME as PLAN_NAME
from p3s.capture.recording_plan import Plan

#: What the work between two MPI calls can be measured in.
AUTO, WALL, CPU, INSTRUCTIONS = "auto", "wall", "cpu", "instructions"
WORKS = (AUTO, WALL, CPU, INSTRUCTIONS)
#: Entry of run.json: the program was meant to end without MPI_Finalize.
UNFINALIZED = "end_without_finalize"
#: Entry of run.json: the exit code that is a normal end of the program, beside 0.
ACCEPTED = "accepted_exit"

_MAX_COUNTERS = 6  # docs/capture-format.md
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d{1,15})([KMGT]?)(?:I?B)?", re.IGNORECASE)
#: Those of perf_event_open(2) that the tracer can read (p3s_clock.c).
COUNTERS = (
    "instructions",
    "cycles",
    "llc-misses",
    "llc-references",
    "branches",
    "branch-misses",
    "dtlb-misses",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "task-clock",
)

#: What ranks need that share cores: they must not wait without yielding.
SHARING = {
    "OMPI_MCA_mpi_yield_when_idle": "1",
    # MPICH's shared-memory collectives spin without yielding: off; heavy yield sleeps.
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
    "OMP_NUM_THREADS": "1",
}
# The shell that puts the tracer in front of other preloads, so that those the launcher or the
# user has set stay; it is gone (exec) before the program runs.
_PRELOAD = 'export LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}"; exec "$@"'
# Before that, the cores of this process, by its number on the node; where taskset is missing, or
# the node has no such cores, it runs where it is.
_BIND = (
    "r=%s; i=0; for s in $P3S_CORES; do "
    '[ "$i" = "$r" ] && taskset -pc "$s" $$ >/dev/null 2>&1; i=$((i+1)); done; '
)


@dataclass(frozen=True)
class Recording:
    """How work is measured, which performance counters are read, and bytes per rank (0: all).

    ``posix_io``: calls of the C library on files are recorded.
    ``threads``: of each process, 0: as the program has them. With a ``plan``, events of phases that
    were seen often enough are only counted; ``stop``: the program is ended when that is so for all
    relevant phases. ``unfinalized``: a rank that ends with code 0 and without MPI_Finalize ends
    as it should. ``accepted``: an exit code that is a normal end,
    beside 0. ``perf``: work is the instructions that perf_event counts, where it counts them.
    """

    work: str = AUTO
    counters: tuple[str, ...] = ()
    limit_bytes: int = 0
    plan: Plan | None = None
    stop: bool = False
    threads: int = 0
    affinity: str = CLOSE
    posix_io: bool = True
    unfinalized: bool = False
    accepted: int = 0
    perf: bool = False

    def environment(self, run_dir: Path) -> dict[str, str]:
        """Return what the tracer reads from the environment of a rank."""
        return {
            "P3S_TRACE_DIR": str(run_dir),
            "P3S_WORK": self.work,
            "P3S_COUNTERS": ",".join(self.counters),
            "P3S_LIMIT": str(self.limit_bytes),
            **({} if self.posix_io else {"P3S_POSIX_IO": "0"}),
            **({"P3S_END": "1"} if self.unfinalized else {}),
            **({"P3S_PERF": "1"} if self.perf else {}),
            **({"P3S_SIGNATURE": str(run_dir / PLAN_NAME)} if self.plan else {}),
        }

    def as_info(self) -> dict[str, object]:
        """Return the entries of run.json that say what was asked for."""
        return {
            "work": self.work,
            "counters": list(self.counters),
            "limit_bytes": self.limit_bytes,
            **({} if self.posix_io else {"posix_io": False}),
            **({UNFINALIZED: True} if self.unfinalized else {}),
            **({ACCEPTED: self.accepted} if self.accepted else {}),
            **({"signature": asdict(self.plan.enough), "stop": self.stop} if self.plan else {}),
        }


def recording(
    work: str = AUTO,
    counters: str = "",
    limit: str = "",
    *,
    posix_io: bool = True,
    unfinalized: bool = False,
    accepted: int = 0,
) -> Recording:
    """Return what the options --work, --counters, --limit and --no-posix-io ask for.

    Errors: UsageError that names the option.
    """
    if work not in WORKS:
        raise UsageError(f"--work {work}: not one of {', '.join(WORKS)}")
    names = tuple(dict.fromkeys(word.strip() for word in counters.split(",") if word.strip()))
    for name in names:
        if name not in COUNTERS:
            raise UsageError(
                f"--counters {counters}: {name!r} is not the name of a counter; there are"
                f" {', '.join(COUNTERS)}"
            )
    if len(names) > _MAX_COUNTERS:
        raise UsageError(f"--counters {counters}: {len(names)} are too many, at most 6 fit")
    how = Recording(work, names, _size(limit), posix_io=posix_io)
    return replace(how, unfinalized=unfinalized, accepted=accepted)


def _size(text: str) -> int:
    if not text:
        return 0
    match = _SIZE.fullmatch(text.strip())
    if match is None or not int(match[1]):
        raise UsageError(
            f"--limit {text}: not a size; give bytes per rank, for example --limit 64M or 1G"
        )
    return int(match[1]) * _UNITS[match[2].upper()]


def with_preload(tracer: Path, variables: Mapping[str, str], team: Team | None = None) -> list[str]:
    """Return the words that, put before a program, start it with the tracer and variables set.

    ``team``: its threads and their cores.
    """
    script = _PRELOAD
    if team is not None:
        variables = {**variables, **team.environment()}
    if team is not None and team.sets:
        variables = {**variables, "P3S_CORES": " ".join(team.sets)}
        script = _BIND % _first_set(LOCAL_RANK) + _PRELOAD
    settings = [f"{name}={value}" for name, value in variables.items()]
    return ["/usr/bin/env", *settings, "/bin/sh", "-c", script, str(tracer)]


def _first_set(names: tuple[str, ...]) -> str:
    """Return what the shell makes the value of the first variable that is set."""
    return "".join(f"${{{name}:-" for name in names) + "}" * len(names)


def preload(tracer: Path, other: str) -> str:
    """Return LD_PRELOAD with the tracer before what was in it."""
    return f"{tracer}:{other}" if other else str(tracer)
