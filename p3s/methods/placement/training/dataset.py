"""Measured phases in Parquet files, one for each execution, and going on where a run ended."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from p3s.base.arrays import Floats, Ints
from p3s.base.artefacts import write_bytes, write_json
from p3s.base.errors import Damaged, P3SError
from p3s.base.serialise import (
    MOST_PROCESSES,
    Natural,
    NotNegative,
    Positive,
    Published,
    Range,
    ShapeError,
    Share,
    from_data,
)
from p3s.base.tables import parquet_bytes, read_rows
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

_FACTS, _PROBES, _SCOUTS = "campaign.json", "probes.parquet", "scouts.parquet"
#: Bytes of probes.
SIZES = tuple(0 if k < 0 else 1 << k for k in (-1, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22))
#: Of those that go first where time passes: they tell how long the others would take.
SCOUTS = (0, 1 << 14)
#: Messages of the largest size in all probes, about, and what they may take of the budget.
_PROBED, _PROBING = 50, 0.2
#: What a row says beside its features.
_OWN = ("execution", "phase", "nodes", "slots", "messages", "nbytes", "inside", "seed", "seconds")

#: What a dataset may be of, in the words of an error.
_OTHER = {
    "machine": "another machine",
    "network": "another network",
    "nodes": "other nodes",
    "hosts": "other hosts",
    "settings": "another --ranks, --ppn, --phases, --seed or --budget",
}

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Told:
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
        known = dict(zip(self.nodes, self.hosts, strict=True))
        return [known[node] for node in nodes.tolist()]


PHASES = Published("p3s.training", 1, Told, True, "give another --data, or remove it")


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


def measured(
    directory: Path, told: Told, fabric: Fabric, machine: Machine, say: Say = lambda _: None
) -> Dataset:
    """Return the dataset of a directory, after what is missing in it has been measured.

    Errors: P3SError where it is of another machine, and where a phase cannot be measured; what was
    measured until then is kept.
    """
    _claim(directory, told)
    known = _probed(directory, told, fabric, machine)
    cost = hockney_of(known, network_of(known, told.machine))
    nodes, often = np.array(told.nodes), machine.repeats.all
    made = list(campaign.executions(nodes, told.settings, cost, often))
    for execution in made:
        path = _path(directory, execution.number)
        if not path.exists():
            say(f"execution {execution.number + 1} of {len(made)}")
            _measure(path, execution, told, fabric, machine)
    return _joined(known, [read_execution(_path(directory, each.number)) for each in made])


def _claim(directory: Path, told: Told) -> None:
    """Say what a directory is of, or see that it is of the same."""
    path, facts = directory / _FACTS, asdict(told)
    if path.exists():
        there = asdict(PHASES.read(path))
        for name, value in facts.items():
            if there[name] != value:
                raise P3SError(
                    f"{directory}: was measured with {_OTHER[name]}; give another --data, or "
                    "remove it"
                )
        return
    if directory.exists() and any(directory.iterdir()):
        raise P3SError(f"{directory}: is there and holds no measured phases; give another --data")
    directory.mkdir(parents=True, exist_ok=True)
    write_json(path, PHASES.data(told))


def _path(directory: Path, execution: int) -> Path:
    return directory / f"execution-{execution:04d}.parquet"


def _probed(directory: Path, told: Told, fabric: Fabric, machine: Machine) -> dict[Probe, float]:
    """Return what single messages and streams of messages take."""
    path, budget = directory / _PROBES, told.settings.budget_s
    sizes = SIZES
    if budget is not None and not path.exists():
        first = _probe(directory / _SCOUTS, SCOUTS, told, fabric, machine)
        slope = _per_byte(first) * _PROBED * machine.repeats.all
        sizes = tuple(x for x in SIZES if x <= SCOUTS[-1] or x * slope <= _PROBING * budget)
    return _probe(path, sizes, told, fabric, machine)


def _per_byte(told: Mapping[Probe, float]) -> float:
    """Return the seconds of a byte, of all probes together."""
    small, large = SCOUTS
    by_size = [sum(s for p, s in told.items() if p.nbytes == size) for size in (small, large)]
    number = sum(probe.number for probe in told if probe.nbytes == large)
    return max(by_size[1] - by_size[0], 0.0) / (number * (large - small))


def _probe(
    path: Path, sizes: Sequence[int], told: Told, fabric: Fabric, machine: Machine
) -> dict[Probe, float]:
    if not path.exists():
        slots = min(told.settings.slots, 2)
        pairs = pairs_of(np.array(told.nodes), fabric, slots)
        wanted, by_distance = probes(pairs, sizes), {pair.distance: pair for pair in pairs}
        used = np.unique([node for pair in pairs for node in (pair.first, *pair.others)])
        made = {
            number: traffic_of(probe, by_distance[probe.distance], used, slots)
            for number, probe in enumerate(wanted)
        }
        hosts = np.repeat(np.array(told.hosts_at(used), dtype=object), slots)
        seconds = _run(path, Job(tuple(hosts.tolist()), made, machine.repeats), machine)
        _write(path, [asdict(p) | {"seconds": seconds[k]} for k, p in enumerate(wanted)])
    return read_probes(path)


def read_probes(path: Path) -> dict[Probe, float]:
    """Return the seconds of probes in a file; raises P3SError in one line."""
    return {
        Probe(row.distance, row.nbytes, row.number): row.seconds for row in _rows(path, ProbeRow)
    }


def _measure(
    path: Path, execution: Execution, told: Told, fabric: Fabric, machine: Machine
) -> None:
    placed = execution.placed
    sent = {
        number: traffic
        for number, draw in enumerate(execution.draws)
        if len(traffic := campaign.traffic_of(draw, placed))
    }
    hosts = hosts_of(placed, told.hosts_at(execution.nodes))
    phases = {number: on_processes(traffic, placed) for number, traffic in sent.items()}
    seconds = _run(path, Job(hosts, phases, machine.repeats), machine)
    rows = []
    for number, traffic in sent.items():
        own = {
            "execution": execution.number,
            "phase": number,
            "nodes": execution.nodes.tolist(),
            "slots": execution.slots,
            **asdict(execution.draws[number]),
            "seconds": seconds[number],
        }
        rows.append(own | row_of((traffic, placed), fabric))
    _write(path, rows)


def _run(path: Path, job: Job, machine: Machine) -> dict[int, float]:
    """Run a job in a directory beside its file, which keeps what is there if it is interrupted."""
    work = path.with_suffix(".running")
    found = measure(job, machine, work)
    shutil.rmtree(work, ignore_errors=True)
    return found


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a file that is there whole or not at all."""
    import pyarrow as pa

    write_bytes(path, parquet_bytes(pa.Table.from_pylist([dict(row) for row in rows])))


@dataclass(frozen=True)
class ProbeRow:
    """A row of probes.parquet."""

    distance: Annotated[int, Range(-1, MOST_PROCESSES)]
    nbytes: Natural
    number: Positive
    seconds: NotNegative


@dataclass(frozen=True)
class PhaseRow:
    """A row of a measured execution, beside its features; nodes: ascending numbers."""

    execution: Natural
    phase: Natural
    nodes: tuple[Annotated[int, Range(0, MOST_PROCESSES)], ...]
    slots: Annotated[int, Range(1, MOST_PROCESSES)]
    messages: Annotated[int, Range(0, MOST_PROCESSES)]
    nbytes: Natural
    inside: Share
    seed: Natural
    seconds: NotNegative

    def valid(self) -> None:
        """Raise ValueError where there is no node, or one twice."""
        if not self.nodes or list(self.nodes) != sorted(set(self.nodes)):
            raise ValueError("nodes do not ascend")


def _rows(path: Path, kind: type[T]) -> list[T]:
    """Return the rows of a table as records; raises Damaged in one line."""
    return [_row(path, kind, row) for row in _read(path)]


def _row(path: Path, kind: type[T], row: Mapping[str, Any]) -> T:
    try:
        return from_data(kind, row, more=True)
    except ShapeError as err:
        raise Damaged(f"{path}: damaged ({err}); remove it and measure it again") from err


def read_execution(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a measured execution with their features; raises P3SError in one line."""
    rows = _read(path)
    for row in rows:
        _row(path, PhaseRow, row)
        features = {name: x for name, x in row.items() if name not in _OWN}
        if not all(isinstance(x, (int, float)) and math.isfinite(x) for x in features.values()):
            raise Damaged(
                f"{path}: damaged (a feature is no number); remove it and measure it again"
            )
    return rows


def _read(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa

    try:
        return read_rows(path)
    except (OSError, ValueError, pa.ArrowException) as err:
        raise Damaged(f"{path}: cannot be read; remove it and measure it again") from err


def _joined(known: Mapping[Probe, float], parts: Sequence[list[dict[str, Any]]]) -> Dataset:
    rows = [row for part in parts for row in part]
    return Dataset(
        known,
        np.array([row["execution"] for row in rows], dtype=np.int64),
        np.array([row["seconds"] for row in rows], dtype=np.float64),
        tuple({name: x for name, x in row.items() if name not in _OWN} for row in rows),
        tuple(_phase(row) for row in rows),
    )


def _phase(row: Mapping[str, Any]) -> Phase:
    draw = Draw(row["messages"], row["nbytes"], row["inside"], row["seed"])
    nodes = np.array(row["nodes"], dtype=np.int64)
    placed = Execution(row["execution"], nodes, row["slots"], ()).placed
    return campaign.traffic_of(draw, placed), placed
