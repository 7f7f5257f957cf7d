"""From a machine to its communication model: what is checked, measured, trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from p3s.base.errors import P3SError, UsageError
from p3s.machine.topology.fabric import Fabric
from p3s.machine.topology.read import node_numbers, read_fabric
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.communication import network_id
from p3s.methods.placement.learned import Learned
from p3s.methods.placement.training import platform
from p3s.methods.placement.training.campaign import Settings, shapes
from p3s.methods.placement.training.dataset import Say, Told, measured
from p3s.methods.placement.training.jobs import Machine, SimulatedMachine, real_machine
from p3s.methods.placement.training.train import LEARNED, train
from p3s.methods.placement.trees import needed


@dataclass(frozen=True)
class Wanted:
    """What is to be learned.

    ``platform``: of SimGrid, else ``hosts`` are started with ``launcher`` ("" and none: this
    machine's). ``topology``: the same network for P3S, "" as far as the platform says. ``way``:
    code of the features to use, "" for the best.
    """

    platform: Path | None
    hosts: tuple[str, ...]
    launcher: tuple[str, ...]
    topology: str
    name: str
    way: str
    settings: Settings


@dataclass(frozen=True, eq=False)
class Ready:
    """A machine that can be measured, and its network.

    ``named``: whether somebody said what it is called. ``topology``: its network as described.
    """

    told: Told
    fabric: Fabric
    machine: Machine
    facts: Mapping[str, str]
    named: bool = True
    topology: str = ""


def prepared(wanted: Wanted) -> Ready:
    """Return the machine, after everything about it has been checked; nothing is measured yet.

    Errors: UsageError, P3SError: one line.
    """
    needed("learning a machine")
    if wanted.way and wanted.way not in LEARNED:
        raise UsageError(f"--way {wanted.way}: there are {', '.join(LEARNED)}")
    machine, hosts, name, facts = _machine(wanted)
    _check_hosts(hosts)
    topology = wanted.topology or _topology(wanted.platform)
    fabric = read_fabric(topology, len(hosts)) if topology else one_switch(len(hosts))
    nodes = _nodes(fabric, hosts)
    order = np.argsort(nodes)
    shapes(len(hosts), wanted.settings)
    told = Told(
        wanted.name or name,
        network_id(fabric),
        tuple(nodes[order].tolist()),
        tuple(hosts[k] for k in order.tolist()),
        wanted.settings,
    )
    return Ready(told, fabric, machine, facts, bool(wanted.name), topology)


def _machine(wanted: Wanted) -> tuple[Machine, tuple[str, ...], str, dict[str, str]]:
    """Return a machine, its hosts, what it is called and what is known of it."""
    if wanted.platform is None:
        real = real_machine(wanted.launcher)
        name = f"{real.mpi.family} {real.mpi.version}"
        return real, wanted.hosts, name, {"measured with": name}
    known = platform.hosts_of(wanted.platform)
    missing = [host for host in wanted.hosts if host not in known]
    if missing:
        raise P3SError(f"{wanted.platform}: has no host {missing[0]}; correct --hosts")
    facts = {"measured with": f"SimGrid, {wanted.platform.name}"}
    hosts = wanted.hosts or known
    return SimulatedMachine(wanted.platform), hosts, wanted.platform.stem, facts


def _check_hosts(hosts: Sequence[str]) -> None:
    twice = next((host for k, host in enumerate(hosts) if host in hosts[:k]), None)
    if twice is not None:
        raise UsageError(f"--hosts: {twice} is named twice; --ppn says how many ranks it has")


def _topology(path: Path | None) -> str:
    """Return the network of a platform, "" where there is none, or it is not known."""
    return "" if path is None else platform.network_of(path)


def _nodes(fabric: Fabric, hosts: Sequence[str]) -> np.ndarray:
    """Return which node of the network each host is; in order where it names none."""
    names = hosts if fabric.about.hosts else [""] * len(hosts)
    nodes = node_numbers(fabric, names)
    if len(set(nodes.tolist())) < len(nodes):
        raise P3SError(f"{fabric.about.source}: two of the hosts are one of its nodes")
    return nodes


def learned(ready: Ready, directory: Path, way: str = "", say: Say = lambda _: None) -> Learned:
    """Return the model of a machine; its phases are measured into a directory, as far as they are
    not there yet.

    Errors: P3SError, in one line.
    """
    data = measured(directory, ready.told, ready.fabric, ready.machine, say)
    say("training")
    told = ready.told
    model = train(data, ready.fabric, told.machine, told.network, way=way, facts=ready.facts)
    return replace(model, card=replace(model.card, named=ready.named, topology=ready.topology))
