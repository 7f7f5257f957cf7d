"""A cluster of 32 nodes of 64 cores whose programs' times are known: what the advisor is tried on.

The machine is described by what its parts do, not by laws of time: cores with clocks that fall as
more of a socket compute, two hardware threads that share a core as far as it is idle, private and
shared caches, memory domains whose bandwidth a few threads fill, longer ways to other domains and a
narrow one to the other socket, regions that fork and join over a tree of cores, loops in static
blocks of rows, one network card for all processes of a node. The time of an iteration is found by
letting all threads of a node compute at once until their demands on memory settle.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

NODES, SOCKETS, DOMAINS, CORES, SMT = 32, 2, 8, 64, 2
#: Hertz with one to all cores of a socket active: bins of turbo clocks, then a slope.
_CLOCK = (np.array([1, 2, 4, 8, 16, 24, 32]), np.array([3.7, 3.7, 3.6, 3.4, 3.15, 2.95, 2.8]) * 1e9)
#: Bytes per second: of a core, of a domain, between sockets in each direction.
_CORE_RATE, _DOMAIN_RATE, _SOCKET_RATE = 9.5e9, 27e9, 55e9
#: How much less a core gets from another domain of its socket, and of the other socket.
_NEAR, _AWAY = 0.72, 0.48
_L2, _L3 = 1.0e6, 32e6
#: Network: seconds of a message, of each further one, bytes per second of a node's card; inside.
_LATENCY, _GAP, _CARD, _INSIDE_LATENCY, _INSIDE_RATE = 1.7e-6, 0.35e-6, 11.5e9, 0.5e-6, 6e9


@dataclass(frozen=True)
class Phase:
    """A loop nest of a program: of one element cycles, bytes from memory and bytes it keeps.

    rows: of the outermost loop, of all processes together, per cube root of elements (or fixed
    where negative). hidden: part of
    the shorter of computing and waiting for memory that the other one hides. idle: part of
    a core's issue slots that a thread leaves. serial: part of a process's elements outside of
    regions, and seconds of each process whatever it has. slope: how much more the last row of a
    process costs than the first. mixed: part of the accesses that go anywhere in the process's
    memory; first_touch: whether one thread has placed all of it.
    """

    share: float = 1.0
    cycles: float = 20.0
    nbytes: float = 8.0
    kept: float = 24.0
    rows: float = 60.0
    hidden: float = 0.8
    idle: float = 0.35
    serial: float = 0.003
    alone: float = 5e-6
    regions: int = 4
    slope: float = 0.0
    mixed: float = 0.1
    first_touch: bool = False


@dataclass(frozen=True)
class Messages:
    """What a process sends in an iteration: halo bytes per element^(2/3) to so many neighbours,
    reductions, and an exchange of all with all of some bytes per element."""

    halo: float = 16.0
    neighbours: int = 6
    reductions: int = 2
    all_to_all: float = 0.0
    to_root: float = 0.0


@dataclass(frozen=True)
class Program:
    """A program: phases, messages, workloads (elements), iterations of a run."""

    name: str
    phases: tuple[Phase, ...]
    messages: Messages = field(default_factory=Messages)
    workloads: tuple[float, ...] = (2e6, 2e7, 2e8)
    iterations: int = 500


#: Looked at while the laws were written.
SEEN = (
    Program("compute", (Phase(cycles=180, nbytes=4),)),
    Program("stream", (Phase(cycles=6, nbytes=40, kept=40, hidden=0.9),)),
    Program("mixed", (Phase(0.6, 60, 6), Phase(0.4, 6, 30, kept=40)), Messages(24)),
    Program("serial", (Phase(cycles=90, serial=0.06, alone=3e-5),), Messages(halo=8)),
    Program("slope", (Phase(cycles=120, slope=0.8, rows=25),)),
    Program("latency", (Phase(cycles=40, regions=60, alone=2e-5),), Messages(4, 26, 25)),
    Program("transpose", (Phase(cycles=70, nbytes=16),), Messages(0, 0, 1, all_to_all=16.0)),
    Program("cached", (Phase(cycles=10, nbytes=24, kept=48, idle=0.5),), Messages(12)),
)
#: Not looked at before the laws were finished.
KEPT_BACK = (
    Program(
        "graph",
        (Phase(cycles=30, nbytes=20, kept=60, hidden=0.1, idle=0.75, mixed=0.7, rows=-4096),),
        Messages(20, 12, 8),
        (1e6, 1e7, 1e8),
    ),
    Program("one_toucher", (Phase(cycles=25, nbytes=16, first_touch=True, mixed=0.3),)),
    Program(
        "three_phases",
        (
            Phase(0.3, 200, 2, regions=2),
            Phase(0.5, 12, 32, kept=56, regions=6),
            Phase(0.2, 50, 10, serial=0.03, slope=0.4),
        ),
        Messages(30, 6, 4),
    ),
    Program("few_rows", (Phase(cycles=150, rows=-768, slope=0.2),), workloads=(3e6, 3e7, 1e8)),
    Program(
        "root",
        (Phase(cycles=400, nbytes=2, idle=0.2, serial=0.0005),),
        Messages(0, 0, 1, to_root=1.0),
    ),
    Program("fork_heavy", (Phase(cycles=60, nbytes=12, regions=250, alone=1e-5),), Messages(8)),
    Program(
        "spectral",
        (Phase(0.7, 90, 24, kept=48, hidden=0.6), Phase(0.3, 15, 36, kept=40)),
        Messages(0, 0, 2, all_to_all=32.0),
        (4e6, 4e7, 2e8),
    ),
    Program(
        "particles",
        (Phase(0.8, 350, 6, idle=0.6, slope=0.3, rows=40), Phase(0.2, 30, 30, serial=0.02)),
        Messages(60, 26, 3),
        (1e6, 1e7, 6e7),
    ),
)


#: Written when those kept back had been looked at once and the laws were mended for them (data
#: placed by one thread, rows that are few); not looked at before the laws were finished.
FRESH = (
    Program(
        "sparse",
        (Phase(cycles=12, nbytes=14, hidden=0.5, idle=0.6, mixed=0.4, rows=-100000),),
        Messages(12, 10, 6),
        (1e7, 1e8, 8e8),
    ),
    Program("planes", (Phase(cycles=100, nbytes=10, rows=-2048),), Messages(24, 2, 1)),
    Program("placed", (Phase(cycles=60, nbytes=14, first_touch=True, mixed=0.2),)),
    Program(
        "tree",
        (Phase(cycles=220, nbytes=6, serial=0.02, idle=0.7, slope=0.5, rows=200),),
        Messages(6, 14, 4),
        (5e5, 5e6, 5e7),
    ),
    Program(
        "multigrid",
        (
            Phase(0.85, 30, 18, kept=32, regions=8),
            Phase(0.12, 30, 18, kept=32, regions=16),
            Phase(0.03, 30, 18, kept=32, regions=40, alone=1.5e-5),
        ),
        Messages(20, 18, 6),
    ),
    Program(
        "lattice",
        (Phase(cycles=45, nbytes=36, kept=300, hidden=0.7),),
        Messages(40, 18, 1),
        (1e6, 1e7, 1e8),
    ),
    Program("sweep", (Phase(cycles=80, nbytes=8, regions=120, rows=30),), Messages(10, 4, 2)),
    Program(
        "transform",
        (Phase(0.5, 40, 20, kept=32), Phase(0.5, 120, 8, idle=0.2, serial=0.01)),
        Messages(0, 0, 1, all_to_all=24.0),
        (3e6, 3e7, 3e8),
    ),
)


@dataclass(frozen=True)
class Used:
    """How nodes are used: processes, threads of each, processes of a node, far or close."""

    n: int
    threads: int
    per_node: int
    far: bool = False


def rows_of(phase: Phase, elements: float) -> float:
    """Return the rows of the outermost loop, of all processes together."""
    return -phase.rows if phase.rows < 0 else max(1.0, phase.rows * elements ** (1 / 3))


def most_work(phase: Phase, elements: float, n: int) -> float:
    """Return the elements of the process that has most rows of n processes."""
    rows = rows_of(phase, elements)
    return float(np.ceil(rows / n) * elements / rows)


def computing(program: Program, elements: float, used: Used) -> list[float]:
    """Return seconds of an iteration of each phase, of the process that takes longest."""
    node = _Node(used)
    return [_phase(phase, elements * phase.share, used, node) for phase in program.phases]


def communicating(program: Program, elements: float, used: Used) -> np.ndarray:
    """Return seconds of an iteration that a process spends with messages: what each message takes
    at least, and what its bytes do."""
    m, n = program.messages, used.n
    if n == 1:
        return np.zeros(2)
    on_node = min(used.per_node, n)
    nodes = -(-n // used.per_node)
    local = elements / n
    away = min(1.0, (nodes - 1) * on_node / (n - 1))
    stages = np.log2(nodes) * (_LATENCY + 0.9e-6) + np.log2(on_node) * (_INSIDE_LATENCY + 0.2e-6)
    each, volume = m.reductions * 2 * stages, 0.0
    if m.neighbours:
        surface = m.halo * local ** (2 / 3) * 6
        leaves = min(1.0, away * 2.2 * on_node ** (-1 / 3)) if nodes > 1 else 0.0
        each += m.neighbours * (_GAP + (_LATENCY if leaves else _INSIDE_LATENCY))
        volume += surface * on_node * leaves / _CARD + surface * (1 - leaves) / _INSIDE_RATE
    if m.all_to_all:
        sent = m.all_to_all * local
        each += (n - 1) * _GAP * (1 + 0.15 * on_node**0.5) + _LATENCY
        volume += sent * away * on_node / _CARD + sent * (1 - away) / _INSIDE_RATE
    if m.to_root:
        each += (n - 1) * (_GAP + 0.4e-6)
        volume += m.to_root * elements * away / _CARD
    return np.array([each, volume])


class _Node:
    """The threads of a node: (processes, threads) cores, and what they share."""

    def __init__(self, used: Used) -> None:
        on_node = min(used.per_node, used.n)
        total = on_node * used.threads
        thread = np.arange(total)
        core = thread * CORES // total if used.far or total > CORES else thread
        self.core = core.reshape(on_node, used.threads)
        self.on_core = np.bincount(core, minlength=CORES)[self.core]
        self.domain = self.core * DOMAINS // CORES
        self.socket = self.core * SOCKETS // CORES
        self.in_domain = np.bincount(self.domain.ravel(), minlength=DOMAINS)[self.domain]
        active = np.bincount(np.unique(core) * SOCKETS // CORES, minlength=SOCKETS)
        self.clock = np.interp(active, *_CLOCK)[self.socket]
        here, there = np.arange(DOMAINS), self.domain[..., None]
        same_socket = here * SOCKETS // DOMAINS == self.socket[..., None]
        self.way = np.where(here == there, 1.0, np.where(same_socket, _NEAR, _AWAY))


def _phase(phase: Phase, elements: float, used: Used, node: _Node) -> float:
    rows = rows_of(phase, elements)
    local = np.ceil(rows / used.n)  # rows of the process that has most
    begins = np.minimum(np.arange(used.threads) * np.ceil(local / used.threads), local)
    ends = np.minimum(begins + np.ceil(local / used.threads), local)
    middle = (begins + ends) / 2 / local
    weight = (ends - begins) * (1 + phase.slope * (2 * middle - 1)) * elements / rows
    work = np.broadcast_to(weight, node.core.shape)
    compute, memory = _alone(phase, work, node)
    waited = _settled(phase, compute, memory, node)
    serial = phase.serial * elements / used.n
    first = (0, 0)
    alone = serial * (phase.cycles / node.clock[first] + phase.nbytes / _CORE_RATE) + phase.alone
    spread = int(node.socket[0].max() - node.socket[0].min())
    fork = 0.0
    if used.threads > 1:
        shared = node.on_core.max() > 1
        tree = np.ceil(np.log2(used.threads))
        fork = (0.7e-6 + 0.35e-6 * tree + 0.03e-6 * used.threads) * (1.6 if shared else 1.0)
        fork += 1.8e-6 * spread
    late = 1 + 0.0015 * np.log2(used.n * used.threads)  # the slowest of many
    return float((alone + waited.max() + phase.regions * fork) * late)


def _alone(phase: Phase, work: np.ndarray, node: _Node) -> tuple[np.ndarray, np.ndarray]:
    """Return seconds of computing, and bytes from memory, of each thread."""
    gain = 1 + phase.idle * 0.8  # what two threads of a core do in the time of one
    slower = np.where(node.on_core > 1, node.on_core / gain, 1.0)
    compute = work * phase.cycles / node.clock * slower
    cache = _L2 / node.on_core + _L3 / node.in_domain
    kept = np.maximum(work * phase.kept, 1.0)
    miss = 0.03 + 0.97 / (1 + (cache / kept) ** 3)
    return compute, work * phase.nbytes * miss


def _settled(phase: Phase, compute: np.ndarray, memory: np.ndarray, node: _Node) -> np.ndarray:
    """Return seconds of each thread when all of the node ask for memory at once."""
    team = node.domain.shape[1]
    owner = np.zeros((*node.domain.shape, DOMAINS))
    for p in range(len(node.domain)):
        places = np.bincount(node.domain[p], minlength=DOMAINS) / team
        own = np.eye(DOMAINS)[node.domain[p]]
        owner[p] = (1 - phase.mixed) * own + phase.mixed * places
        if phase.first_touch:
            owner[p] = np.eye(DOMAINS)[node.domain[p, 0]]
    other = (np.arange(DOMAINS) * SOCKETS // DOMAINS) != node.socket[..., None]
    busy = np.ones(node.core.shape)
    took = compute
    for _ in range(12):
        asking = (owner * busy[..., None]).sum(axis=(0, 1))
        filled = _DOMAIN_RATE * (1 - np.exp(-np.maximum(asking, 1e-9) * _CORE_RATE / _DOMAIN_RATE))
        each = np.minimum(_CORE_RATE / node.on_core[..., None], filled / np.maximum(asking, 1e-9))
        across = (owner * busy[..., None] * other).sum()
        narrow = np.where(other, _SOCKET_RATE / max(across, 1e-9), np.inf)
        rate = np.minimum(each * node.way, narrow)
        waits = memory * (owner / rate).sum(axis=-1)
        more, less = np.maximum(compute, waits), np.minimum(compute, waits)
        took = more + (1 - phase.hidden) * less
        busy = 0.5 * busy + 0.5 * np.clip(waits / np.maximum(took, 1e-30), 0.0, 1.0)
    return took
