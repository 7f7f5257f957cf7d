"""Measured phases in files, one for each execution, and going on where a run ended."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.artefacts import write_json
from p3s.base.errors import DamagedFile, P3SError
from p3s.base.serialise import (
    MOST_PROCESSES,
    FileFormat,
    Natural,
    NotNegative,
    Positive,
    Range,
    Share,
)
from p3s.machine.topology.fabric import Fabric
from p3s.methods.placement.costs import Phase, row_of
from p3s.methods.placement.training import campaign
from p3s.methods.placement.training.campaign import Draw, Execution, Settings
from p3s.methods.placement.training.costs import (
    Probe,
    hockney_of,
    network_of,
    pairs_of,
    probes,
    traffic_of,
)
from p3s.methods.placement.training.jobs import Job, Machine, hosts_of, measure, on_processes

_FACTS, _PROBES, _SCOUTS = "campaign.json", "probes.json", "scouts.json"
#: Bytes of probes.
SIZES = tuple(0 if k < 0 else 1 << k for k in (-1, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22))
#: Of those that go first where time passes: they tell how long the others would take.
SCOUTS = (0, 1 << 14)
#: Messages of the largest size in all probes, about, and what they may take of the budget.
_PROBED, _PROBING = 50, 0.2
#: What a dataset may be of, in the words of an error.
_OTHER = {
    "machine": "another machine",
    "network": "another network",
    "nodes": "other nodes",
    "hosts": "other hosts",
    "settings": "another --ranks, --ppn, --phases, --seed, --budget or --patterns",
}

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class DatasetHeader:
    """What is measured where.

    ``machine``, ``network``: their names. ``nodes``: of the network, ascending; ``hosts``: names of
    these in the machine.
    """

    machine: str
    network: str
    nodes: tuple[int, ...]
    hosts: tuple[str, ...]
    settings: Settings

    def hosts_at(self, nodes: Ints) -> list[str]:
        """Return the hosts of nodes of the network."""
        host_of = dict(zip(self.nodes, self.hosts, strict=True))
        return [host_of[node] for node in nodes.tolist()]


PHASES = FileFormat("p3s.training", 2, DatasetHeader, True, "give another --data, or remove it")


@dataclass(frozen=True)
class ProbeRow:
    """A probe and what it takes."""

    distance: Annotated[int, Range(-1, MOST_PROCESSES)]
    nbytes: Natural
    number: Positive
    seconds: NotNegative


@dataclass(frozen=True)
class ProbeFile:
    """What probes.json holds."""

    probes: tuple[ProbeRow, ...]


@dataclass(frozen=True)
class PhaseRow:
    """A measured phase: its number, what was drawn, what it takes, its features."""

    phase: Natural
    messages: Annotated[int, Range(0, MOST_PROCESSES)]
    nbytes: Natural
    inside: Share
    seed: Natural
    seconds: NotNegative
    features: Mapping[str, float]
    pattern: str = ""


@dataclass(frozen=True)
class ExecutionFile:
    """What execution-NNNN.json holds; nodes: ascending numbers; slots: ranks on each."""

    execution: Natural
    nodes: tuple[Annotated[int, Range(0, MOST_PROCESSES)], ...]
    slots: Annotated[int, Range(1, MOST_PROCESSES)]
    phases: tuple[PhaseRow, ...]

    def valid(self) -> None:
        """Raise ValueError where there is no node, or one twice."""
        if not self.nodes or list(self.nodes) != sorted(set(self.nodes)):
            raise ValueError("nodes do not ascend")

    def phases_of(self) -> list[Phase]:
        """Return the traffic of the phases, and where its ranks are."""
        placed = Execution(self.execution, np.array(self.nodes), self.slots, ()).placed
        draws = (
            Draw(row.messages, row.nbytes, row.inside, row.seed, row.pattern) for row in self.phases
        )
        return [(campaign.traffic_of(draw, placed), placed) for draw in draws]


_AGAIN = "remove it and measure it again"
PROBES = FileFormat("p3s.probes", 1, ProbeFile, again=_AGAIN)
EXECUTION = FileFormat("p3s.execution", 1, ExecutionFile, again=_AGAIN)


def _read(form: FileFormat[T], path: Path) -> T:
    """Return what a file holds; Damaged says what to do."""
    try:
        return form.read(path)
    except DamagedFile as err:
        raise DamagedFile(str(err) if _AGAIN in str(err) else f"{err}; {_AGAIN}") from err


@dataclass(frozen=True, eq=False)
class Dataset:
    """Measured phases: probes, and random pairs with their features, row by row.

    ``execution``: of each row. ``phases``: what each row is of.
    """

    probes: Mapping[Probe, float]
    execution: Ints
    seconds: Floats
    rows: tuple[Mapping[str, float], ...]
    phases: tuple[Phase, ...]


def measure_dataset(
    directory: Path,
    head: DatasetHeader,
    fabric: Fabric,
    machine: Machine,
    say: Say = lambda _: None,
) -> Dataset:
    """Return the dataset of a directory, after what is missing in it has been measured.

    Errors: P3SError where it is of another machine, and where a phase cannot be measured; what was
    measured until then is kept.
    """
    _claim(directory, head)
    probes = _run_probes(directory, head, fabric, machine)
    cost = hockney_of(probes, network_of(probes, head.machine))
    nodes, often = np.array(head.nodes), machine.repeats.all
    plan = list(campaign.executions(nodes, head.settings, cost, often))
    for execution in plan:
        path = _path(directory, execution.number)
        if not path.exists():
            say(f"execution {execution.number + 1} of {len(plan)}")
            _measure(path, execution, head, fabric, machine)
    return _join_parts(probes, [_read(EXECUTION, _path(directory, each.number)) for each in plan])


def _claim(directory: Path, header: DatasetHeader) -> None:
    """Say what a directory is of, or see that it is of the same."""
    path, facts = directory / _FACTS, asdict(header)
    if path.exists():
        stored = asdict(PHASES.read(path))
        for name, value in facts.items():
            if stored[name] != value:
                raise P3SError(
                    f"{directory}: was measured with {_OTHER[name]}; give another --data, or "
                    "remove it"
                )
        return
    if directory.exists() and any(directory.iterdir()):
        raise P3SError(f"{directory}: is there and holds no measured phases; give another --data")
    directory.mkdir(parents=True, exist_ok=True)
    write_json(path, PHASES.data(header))


def _path(directory: Path, execution: int) -> Path:
    return directory / f"execution-{execution:04d}.json"


def _run_probes(
    directory: Path, header: DatasetHeader, fabric: Fabric, machine: Machine
) -> dict[Probe, float]:
    """Return what single messages and streams of messages take."""
    path, budget = directory / _PROBES, header.settings.budget_s
    sizes = SIZES
    if budget is not None and not path.exists():
        first = _probe(directory / _SCOUTS, SCOUTS, header, fabric, machine)
        slope = _per_byte(first) * _PROBED * machine.repeats.all
        sizes = tuple(x for x in SIZES if x <= SCOUTS[-1] or x * slope <= _PROBING * budget)
    return _probe(path, sizes, header, fabric, machine)


def _per_byte(times: Mapping[Probe, float]) -> float:
    """Return the seconds of a byte, of all probes together."""
    small, large = SCOUTS
    by_size = [sum(s for p, s in times.items() if p.nbytes == size) for size in (small, large)]
    number = sum(probe.number for probe in times if probe.nbytes == large)
    return max(by_size[1] - by_size[0], 0.0) / (number * (large - small))


def _probe(
    path: Path, sizes: Sequence[int], header: DatasetHeader, fabric: Fabric, machine: Machine
) -> dict[Probe, float]:
    if not path.exists():
        slots = min(header.settings.slots, 2)
        pairs = pairs_of(np.array(header.nodes), fabric, slots)
        planned, by_distance = probes(pairs, sizes), {pair.distance: pair for pair in pairs}
        used = np.unique([node for pair in pairs for node in (pair.first, *pair.others)])
        traffic_of_probe = {
            number: traffic_of(probe, by_distance[probe.distance], used, slots)
            for number, probe in enumerate(planned)
        }
        hosts = np.repeat(np.array(header.hosts_at(used), dtype=object), slots)
        seconds = _run(path, Job(tuple(hosts.tolist()), traffic_of_probe, machine.repeats), machine)
        rows = tuple(ProbeRow(**asdict(p), seconds=seconds[k]) for k, p in enumerate(planned))
        write_json(path, PROBES.data(ProbeFile(rows)))
    measured_rows = _read(PROBES, path).probes
    return {Probe(row.distance, row.nbytes, row.number): row.seconds for row in measured_rows}


def _measure(
    path: Path, execution: Execution, header: DatasetHeader, fabric: Fabric, machine: Machine
) -> None:
    placed = execution.placed
    sent = {
        number: traffic
        for number, draw in enumerate(execution.draws)
        if len(traffic := campaign.traffic_of(draw, placed))
    }
    hosts = hosts_of(placed, header.hosts_at(execution.nodes))
    phases = {number: on_processes(traffic, placed) for number, traffic in sent.items()}
    seconds = _run(path, Job(hosts, phases, machine.repeats), machine)
    rows = tuple(
        PhaseRow(
            phase=number,
            **asdict(execution.draws[number]),
            seconds=seconds[number],
            features=row_of((traffic, placed), fabric),
        )
        for number, traffic in sent.items()
    )
    nodes = tuple(execution.nodes.tolist())
    record = ExecutionFile(execution.number, nodes, execution.slots, rows)
    write_json(path, EXECUTION.data(record))


def _run(path: Path, job: Job, machine: Machine) -> dict[int, float]:
    """Run a job in a directory beside its file, which keeps what is there if it is interrupted."""
    work = path.with_suffix(".running")
    seconds_of_phase = measure(job, machine, work)
    shutil.rmtree(work, ignore_errors=True)
    return seconds_of_phase


def _join_parts(probe_seconds: Mapping[Probe, float], parts: Sequence[ExecutionFile]) -> Dataset:
    rows = [row for part in parts for row in part.phases]
    return Dataset(
        probe_seconds,
        np.array([part.execution for part in parts for _ in part.phases], dtype=np.int64),
        np.array([row.seconds for row in rows], dtype=np.float64),
        tuple(row.features for row in rows),
        tuple(phase for part in parts for phase in part.phases_of()),
    )
