"""Measures what teams of OpenMP threads cost: a process per number of threads, in rounds."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.host.cores import (
    CPUS,
    HardwareThread,
    close,
    domains,
    hardware_threads,
    spread_threads,
    text_of,
)
from p3s.base.text import plural
from p3s.machine import machinefile
from p3s.machine.machinefile import (
    CONSTRUCTS,
    ITERATIONS,
    LOOPS,
    Bandwidth,
    Clock,
    Latency,
    OpenMP,
    Overhead,
)
from p3s.machine.programs import Built, LineProgram, built

_INFO = Path("/proc/cpuinfo")
#: In kHz: measured over the last tick where the processor counts cycles, else what was asked for.
_FILES = ("cpuinfo_avg_freq", "scaling_cur_freq", "cpuinfo_cur_freq")


def source(root: Path = CPUS, info: Path = _INFO) -> str:
    """Return where clocks can be read: "cpufreq", "cpuinfo", or "" where they cannot.

    In a virtual machine cpuinfo has the clock that the guest was promised, whatever it runs at.
    """
    if any((root / f"cpu{n}" / "cpufreq" / _FILES[1]).exists() for n in range(1024)):
        return "cpufreq"
    text = text_of(info)
    return "cpuinfo" if "cpu MHz" in text and " hypervisor" not in text else ""


def why_unknown(root: Path = CPUS, info: Path = _INFO) -> str:
    """Return why clocks cannot be read here."""
    if source(root, info):
        return "the system told the clock of some teams only"
    if " hypervisor" in text_of(info):
        return "a virtual machine: the system tells no clock, or one that does not change"
    return "the system tells no clock (cpufreq, /proc/cpuinfo)"


def told_hz(cpus: Sequence[int], root: Path = CPUS, info: Path = _INFO) -> float | None:
    """Return the mean clock of some hardware threads now, in Hz; of all where none are named.

    None where the system tells none.
    """
    clock_source = source(root, info)
    if not clock_source:
        return None
    hz_of = _of_cpufreq(root) if clock_source == "cpufreq" else _of_cpuinfo(info)
    clocks = [hz_of[cpu] for cpu in cpus or hz_of if cpu in hz_of]
    return sum(clocks) / len(clocks) if clocks else None


def _of_cpufreq(root: Path) -> dict[int, float]:
    hz_of = {}
    for folder in root.glob("cpu[0-9]*/cpufreq"):
        text = next((t for name in _FILES if (t := text_of(folder / name)).isdigit()), "")
        if text:
            hz_of[int(folder.parent.name[3:])] = 1e3 * int(text)
    return hz_of


def _of_cpuinfo(info: Path) -> dict[int, float]:
    hz_of, number = {}, -1
    for line in text_of(info).splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor" and value.isdigit():
            number = int(value)
        elif key == "cpu MHz":
            hz_of[number] = 1e6 * float(value)
    return hz_of


#: Seconds for all: whole, and --quick.
BUDGET_S, QUICK_S = 12.0, 4.0
#: Rounds, at least and at most; each starts new processes.
_FEWEST, _MOST = 3, 15
#: Time of one timing, in ns.
_SHOT_NS, _QUICK_SHOT_NS, _SPIN_NS, _TRIAD_NS = 2_000_000, 1_000_000, 30_000_000, 60_000_000
#: STREAM's rule: each array has four times the bytes of all last-level caches.
_TIMES_CACHE = 4
#: Pages of the smallest chain through pages: fewer than any TLB has entries.
_FEWEST_PAGES = 4
#: Median over least from which a bandwidth is called disturbed.
_WIDE = 1.10

#: Variables that would say something else of threads than what is measured.
_OWN = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES", "OMP_DYNAMIC", "OMP_THREAD_LIMIT")
_OTHER = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS")
#: Variables that stay and are part of what is measured.
_KEPT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


@dataclass(frozen=True)
class Team:
    """A team that is measured: how many threads, on which hardware threads (none: unbound)."""

    threads: int
    cpus: tuple[int, ...]
    far: bool = False

    def environment(self) -> dict[str, str]:
        """Return the variables of OpenMP that make this team."""
        bound = (
            {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{cpu}}}" for cpu in self.cpus)}
            if self.cpus
            else {"OMP_PROC_BIND": "false"}
        )
        return {"OMP_NUM_THREADS": str(self.threads), "OMP_DYNAMIC": "false", **bound}


#: Repeats by what was timed: (construct, threads, iterations) with and without bodies, ("triad",
#: threads, far), ("line" or "page", bytes), ("additions" or "hz", threads).
_Shots = defaultdict[tuple[Any, ...], list[Any]]


def counts(cores: int, hardware_threads: int, oversubscribe: bool) -> list[int]:
    """Return the numbers of threads to measure, ascending.

    Powers of two up to the cores, all cores, all hardware threads; oversubscribed: up to twice
    these.
    """
    most = max(cores, hardware_threads, 1)
    powers = [1 << k for k in range(most.bit_length() + 1)]
    thread_counts = {t for t in powers if t <= cores} | {1, cores, most}
    if oversubscribe:
        thread_counts |= {t for t in powers if most < t < 2 * most} | {2 * most}
    return sorted(thread_counts)


def teams(
    hardware_threads: Sequence[HardwareThread], cores: int, granted: int, oversubscribe: bool
) -> list[Team]:
    """Return the teams to measure; granted: hardware threads that a CPU quota leaves.

    A far team is there where it is on other hardware threads than the close one.
    """
    near, apart = close(hardware_threads), spread_threads(hardware_threads)
    hardware = min(len(near), granted)
    teams_made = []
    for threads in counts(min(cores, hardware), hardware, oversubscribe):
        if threads > hardware:
            teams_made.append(Team(threads, ()))
            continue
        teams_made.append(Team(threads, tuple(near[:threads])))
        if set(near[:threads]) != set(apart[:threads]):
            teams_made.append(Team(threads, tuple(apart[:threads]), far=True))
    return teams_made


def measure_openmp(
    compiler: str,
    *,
    quick: bool = False,
    oversubscribe: bool = False,
    budget_s: float | None = None,
    on_step: Callable[[str], None] | None = None,
) -> OpenMP:
    """Measure teams of threads within about ``budget_s``, three rounds at least.

    oversubscribe: teams of up to twice the hardware threads, too. Errors: P3SError when the
    compiler has no OpenMP, a team cannot be had, or memory is short.
    """
    begin = time.monotonic()
    program = openmp_program(compiler)
    cpus, facts = hardware_threads(), machinefile.facts()
    granted = facts.granted_cores or 1
    teams_made = teams(cpus, facts.cores or 1, granted, oversubscribe)
    sizes = _Sizes.of(facts.caches, facts.hardware_threads or 1, quick)
    shots, until, runtime = _Shots(list), begin + (budget_s or (QUICK_S if quick else BUDGET_S)), ""
    for round_ in range(_MOST):
        for team in teams_made:
            if on_step:
                on_step(f"threads: round {round_ + 1}, {team.threads} at once")
            with closing(_Running(program, team)) as running:
                runtime = running.runtime
                _measure_team(running, team, sizes, _QUICK_SHOT_NS if quick else _SHOT_NS, shots)
        if round_ + 1 >= _FEWEST and time.monotonic() > until:
            break
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    threads = [team.threads for team in teams_made if not team.far]
    near = _bandwidth(shots, threads, is_far=False)
    return OpenMP(
        runtime=runtime,
        compiler=program.compiler,
        compiler_version=program.version,
        flags=program.flags,
        environment=environment,
        cores=min(facts.cores or 1, granted),
        hardware_threads=min(len(cpus), granted),
        domains=domains(cpus),
        seconds=time.monotonic() - begin,
        overheads={name: _overheads(shots, name, threads) for name in CONSTRUCTS},
        array_bytes=sizes.array,
        close=near,
        far=_bandwidth(shots, threads, is_far=True) if any(t.far for t in teams_made) else None,
        line=_latency(shots, "line", sizes.line),
        page=_latency(shots, "page", sizes.page),
        clock=_clock(shots, threads),
        disturbed=tuple(_note_spread(near)),
    )


def openmp_program(compiler: str) -> Built:
    """Return the compiled benchmarks; P3SError, one line, where the compiler has no OpenMP."""
    try:
        return built("openmp.c", compiler, ("-fopenmp",))
    except P3SError as error:
        why = str(error).removesuffix("; run `p3s doctor`")
        raise P3SError(
            f"{compiler} compiles no OpenMP (-fopenmp): {why}; install its OpenMP library "
            "(libgomp for gcc, libomp for clang) or set CC to another compiler"
        ) from error


@dataclass(frozen=True)
class _Sizes:
    """What is read: bytes of an array of the triad, spans of chains by line and by page."""

    array: int
    line: tuple[int, ...]
    page: tuple[int, ...]

    @classmethod
    def of(cls, caches: Sequence[machinefile.Cache], cpus: int, quick: bool) -> _Sizes:
        unknown = machinefile.Cache(3, machinefile.NO_CACHE_KNOWN)
        last, free = (
            max(caches, key=lambda c: c.level, default=unknown),
            machinefile.granted_bytes(),
        )
        each = -(-cpus // (last.cores or cpus or 1))
        array = min(_TIMES_CACHE * last.bytes * each, free // 12, machinefile.MOST_BYTES)
        line = machinefile.working_sets(caches, free, quick=True)[:: 2 if quick else 1]
        page = os.sysconf("SC_PAGE_SIZE")
        pages = [size for size in line if size >= _FEWEST_PAGES * page]
        return cls(max(array, 1 << 20), tuple(line), tuple(pages))


class _Running(LineProgram):
    """The benchmarks with a team of threads."""

    def __init__(self, program: Built, team: Team) -> None:
        inherited = {k: v for k, v in os.environ.items() if k not in (*_OWN, *_OTHER)}
        super().__init__([str(program.path)], {**inherited, **team.environment()})
        words = self.answer().split()
        self.runtime = words[2]
        if words[1] != str(team.threads):
            self.close()
            raise P3SError(
                f"OpenMP gave {words[1]} threads instead of {team.threads}; is there a limit on "
                "threads here (ulimit -u, the control group's pids.max)?"
            )

    def ask(self, line: str) -> list[float]:
        """Return the numbers that answer a question."""
        self.say(line)
        words = self.words()
        if words == ["no", "memory"]:
            raise P3SError("no memory for the arrays of the bandwidth; free some and measure again")
        return [float(word) for word in words]


def _measure_team(running: _Running, team: Team, sizes: _Sizes, shot_ns: int, into: _Shots) -> None:
    """Time everything of a team once."""
    threads = team.threads
    moved = 3 * sizes.array / (running.ask(f"triad {sizes.array} {_TRIAD_NS}")[0] * 1e-9)
    into["triad", threads, team.far].append(moved)
    if team.far:
        return
    for name in CONSTRUCTS:
        for iterations in ITERATIONS if name in LOOPS else (1,):
            answer = running.ask(f"overhead {name} {iterations} {shot_ns}")
            into[name, threads, iterations].append(answer)
    running.say(f"spin {_SPIN_NS}")
    time.sleep(_SPIN_NS * 0.5e-9)
    hz = told_hz(team.cpus)
    into["additions", threads].append(float(running.words()[0]))
    if hz is not None:
        into["hz", threads].append(hz)
    if threads == 1:
        for kind in ("line", "page"):
            for size in getattr(sizes, kind):
                into[kind, size].append(running.ask(f"chase {kind} {size} {shot_ns}")[0])


# ---- from repeats to records -----------------------------------------------------------------


def _overheads(shots: _Shots, name: str, threads: Sequence[int]) -> tuple[Overhead, ...]:
    overheads = []
    at = ITERATIONS if name in LOOPS else (1,)
    for number in threads:
        samples = [shots[name, number, iterations] for iterations in at]
        least, medians = (
            [_subtract_bodies(each, kind) for each in samples] for kind in (min, statistics.median)
        )
        overheads.append(
            Overhead(number, at, tuple(least), tuple(medians), tuple(map(len, samples)))
        )
    return tuple(overheads)


def _subtract_bodies(timings: Sequence[list[float]], kind: Callable[[list[float]], float]) -> float:
    """Return time with bodies less that of the bodies alone; noise may not make it negative."""
    with_, alone = ([pair[i] for pair in timings] for i in (0, 1))
    return max(kind(with_) - kind(alone), 0.0)


def _bandwidth(shots: _Shots, threads: Sequence[int], *, is_far: bool) -> Bandwidth:
    """Return the bandwidth by threads; where far is no other place, that of the close one."""
    rows = [shots["triad", t, is_far] or shots["triad", t, False] for t in threads]
    return Bandwidth(tuple(threads), *_columns(rows, max))


def _latency(shots: _Shots, kind: str, sizes: Sequence[int]) -> Latency:
    return Latency(tuple(sizes), *_columns([shots[kind, size] for size in sizes], min))


def _columns(
    rows: Sequence[Sequence[float]], best: Callable[[Sequence[float]], float]
) -> tuple[tuple[float, ...], tuple[float, ...], tuple[int, ...]]:
    """Return the best, the median and the number of the repeats of each row."""
    return tuple(map(best, rows)), tuple(map(statistics.median, rows)), tuple(map(len, rows))


def _clock(shots: _Shots, threads: Sequence[int]) -> Clock:
    additions = tuple(max(shots["additions", t]) for t in threads)
    clocks = [shots["hz", t] for t in threads]
    if not all(clocks):
        return Clock(tuple(threads), (), additions, "", why_unknown())
    return Clock(tuple(threads), tuple(map(statistics.median, clocks)), additions, source())


def _note_spread(near: Bandwidth) -> list[str]:
    wide = [
        (most / median, threads)
        for threads, most, median in zip(
            near.threads, near.bytes_per_s, near.median_bytes_per_s, strict=True
        )
        if most / median > _WIDE
    ]
    if not wide:
        return []
    ratio, threads = max(wide)
    return [
        f"repeats of the bandwidth of threads differ (most over median: up to {ratio:.2f} times "
        f"with {plural(threads, 'thread')}): others ran meanwhile, overheads may hold their load"
    ]
