"""What the benchmarks share: figures with their peers, processes measured whole, the kept history.

Nothing here passes or fails; `all.py` puts the figures of all benchmarks together.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p3s.base.host.mpi import MpiInstall

ROOT = Path(__file__).resolve().parents[1]
HISTORY = Path(__file__).with_name("history.jsonl")
TIMEOUT_S = 1800.0
P3S = (sys.executable, "-m", "p3s")

#: The MPI that `make setup` has chosen comes first; more ranks than cores, as root too.
_MPI = Path(sys.prefix) / "mpi"
if (_MPI / "choice").exists():
    os.environ["PATH"] = os.pathsep.join([str(_MPI), os.environ.get("PATH", os.defpath)])
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
os.environ.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
if os.getuid() == 0:
    for _launcher in ("OMPI", "PRTE"):
        os.environ.setdefault(f"{_launcher}_ALLOW_RUN_AS_ROOT", "1")
        os.environ.setdefault(f"{_launcher}_ALLOW_RUN_AS_ROOT_CONFIRM", "1")

#: What a process measured whole is started by: so small that its memory, which the system counts
#: as the child's until that has started its own program, hides nothing.
_SMALL = """import os, sys, time
end = os.POSIX_SPAWN_OPEN
files = [(end, 1, os.devnull, os.O_WRONLY, 0), (end, 2, sys.argv[1], os.O_WRONLY, 0)]
begin = time.perf_counter()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=files)
_, status, used = os.wait4(pid, 0)
elapsed = time.perf_counter() - begin
code = os.waitstatus_to_exitcode(status)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss, elapsed)"""


def chosen_mpi() -> MpiInstall:
    """Return the MPI of the benchmarks: what `make setup` chose, else the first that will do."""
    from p3s.base.host.mpi import find_mpi

    found = next((i for i in find_mpi() if i.mpiexec and i.usable_oversubscribed), None)
    if found is None:
        raise SystemExit("no MPI that starts more processes than there are cores: run make setup")
    return found


@dataclass(frozen=True)
class Used:
    """A whole process and those that it started: CPU seconds, peak memory in MiB, exit code, and
    the seconds from its start to its end."""

    cpu_s: float
    peak_mib: float
    code: int
    elapsed_s: float


@dataclass(frozen=True)
class Figure:
    """A measured number, what another tool needs for the same, and what is aimed at.

    ``more``: more is better. ``peer`` names the tool, also where it is ``missing``, which then says
    what to install. The ratio is how many times better than the peer it is.
    """

    name: str
    value: float
    unit: str
    goal: float | None = None
    more: bool = False
    peer: str = ""
    peer_value: float | None = None
    missing: str = ""

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer, None without one."""
        if not self.peer_value or not self.value:
            return None
        return self.value / self.peer_value if self.more else self.peer_value / self.value

    @property
    def met(self) -> bool | None:
        """Whether the goal is met, None where there is none."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.more else self.value <= self.goal


@dataclass(frozen=True)
class Point:
    """What a command needs at one size of what grows: CPU seconds and peak memory in MiB."""

    axis: str
    line: str
    size: int
    cpu_s: float
    peak_mib: float


@dataclass(frozen=True)
class Found:
    """What a benchmark found: its figures, and points of curves."""

    figures: tuple[Figure, ...] = ()
    points: tuple[Point, ...] = field(default=())


def whole(words: Sequence[str | Path], said: str = os.devnull, ok: Iterable[int] = (0,)) -> Used:
    """Run a command to its end and return what it used; its stderr goes to the file ``said``.

    Raises SystemExit where it ends with another code than those of ``ok``.
    """
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", _SMALL, said, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        cwd=ROOT,
    )
    code, seconds, kib, elapsed = done.stdout.split()
    used = Used(float(seconds), float(kib) / 1024, int(code), float(elapsed))
    if used.code not in ok:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {used.code}")
    return used


def apart(module: str, function: str, *arguments: object) -> tuple[Any, Used]:
    """Call a function of a benchmark in a process of its own.

    Return what it returned, as JSON holds it, and what the process used.
    """
    words = f"import sys; sys.path[:0] = {sys.path!r}; import json, {module}; "
    words += f"sys.stderr.write(json.dumps({module}.{function}(*{arguments!r})))"
    with tempfile.NamedTemporaryFile() as said:
        used = whole([sys.executable, "-c", words], said.name)
        return json.loads(said.read()), used


def resident_mib(most: bool) -> float:
    """Return the resident memory of this process: the most since its program began, or now's.

    What getrusage tells contains the memory of the process that started it.
    """
    wanted = "VmHWM:" if most else "VmRSS:"
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"/proc/self/status has no {wanted}")


def machine() -> dict[str, str | int]:
    """Return what a machine is, without its name and without paths."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            model = line.partition(":")[2].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def last_run(history: Path, quick: bool) -> Mapping[str, dict[str, float | None]]:
    """Return name -> value and ratio of the last run of the same kind in a history, or nothing."""
    if not history.exists():
        return {}
    for line in reversed(history.read_text().splitlines()):
        run = json.loads(line)
        if run["quick"] == quick:
            return {row["name"]: row for row in run["figures"]}
    return {}


def keep(
    history: Path, figures: Sequence[Figure], points: Sequence[Point], quick: bool, when: str
) -> None:
    """Add a run to a history: one line of JSON."""
    rows = [{**asdict(f), "ratio": f.ratio} for f in figures]
    run = {"when": when, "quick": quick, "machine": machine(), "figures": rows}
    with history.open("a") as file:
        file.write(json.dumps({**run, "points": [asdict(p) for p in points]}) + "\n")


def shown(
    figures: Sequence[Figure], before: Mapping[str, dict[str, float | None]] | None = None
) -> str:
    """Return the table of figures as Markdown, beside the last run's where that is given.

    Ratios to a peer are compared, as both ran on the same machine; else the values. Columns that
    nothing stands in are left out.
    """
    rows = [_cells(f, None if before is None else before.get(f.name)) for f in figures]
    heads = ("figure", "value", "peer", "its value", "ratio", "aim", "last run")
    used = [k for k in range(len(heads)) if k < 2 or any(row[k] for row in rows)]
    lines = [[heads[k] for k in used], ["---"] * len(used)]
    lines += [[row[k] for k in used] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown_by_case(figures: Sequence[Figure]) -> str:
    """Return the table of figures for a page: a row for each case, a column for each quantity.

    A name is "case: quantity". Where cases differ in their quantities, or a peer is named, each
    figure keeps its row, and a case is written once. Figures without a peer follow those with one.
    """
    alone = [f for f in figures if not f.peer]
    if 0 < len(alone) < len(figures):
        compared = [f for f in figures if f.peer]
        return f"{shown_by_case(compared)}\n\n{shown_by_case(alone)}"
    cases: dict[str, dict[str, Figure]] = {}
    for f in figures:
        case, quantity = _split(f.name)
        cases.setdefault(case, {})[quantity] = f
    first = next(iter(cases.values()), {})
    alike = "" not in cases and all(list(row) == list(first) for row in cases.values())
    if len(first) > 1 and alike and not any(f.peer for f in figures):
        columns = [_column(name, [row[name] for row in cases.values()]) for name in first]
        heads = ["case", *(head for head, _ in columns)]
        rows = zip(cases, *(cells for _, cells in columns), strict=True)
        lines = [heads, ["---"] * len(heads), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)
    before, short = "", []
    for f in figures:
        case, quantity = _split(f.name)
        short.append(replace(f, name=f"... {quantity}") if case and case == before else f)
        before = case
    return shown(short)


def _split(name: str) -> tuple[str, str]:
    """Return the case and the quantity of a figure's name; without a case it is empty."""
    case, colon, quantity = name.partition(": ")
    return (case, quantity) if colon else ("", name)


def _column(quantity: str, figures: Sequence[Figure]) -> tuple[str, list[str]]:
    """Return head and cells of a quantity; an aim that all share stands in the head."""
    rows = [_cells(f, None) for f in figures]
    values, aims = [row[1] for row in rows], [row[5] for row in rows]
    if len(set(aims)) == 1:
        return quantity + (f" ({aims[0]})" if aims[0] else ""), values
    return quantity, [v + (f" ({aim})" if aim else "") for v, aim in zip(values, aims, strict=True)]


def _cells(f: Figure, then: dict[str, float | None] | None) -> tuple[str, ...]:
    """Return the cells of a figure's row."""
    sign = "at least" if f.more else "at most"
    goal = "" if f.goal is None else f"{sign} {_number(f.goal)}{'' if f.met else ', not met'}"
    theirs = f.missing or ("" if f.peer_value is None else _number(f.peer_value))
    ratio = "" if f.ratio is None else f"{f.ratio:.2f}"
    old = None if then is None else then["value"] if f.ratio is None else then["ratio"]
    last = "" if old is None else _number(old)
    return (f.name, f"{_number(f.value)} {f.unit}".strip(), f.peer, theirs, ratio, goal, last)


def _number(value: float) -> str:
    """Return a number with three digits, and no exponent where it has no more than six places."""
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
