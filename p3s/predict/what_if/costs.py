"""Costs of messages with another latency, bandwidth or time in calls, or none at all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from p3s.predict.what_if.changes import IDEAL, Change, OnNetwork, Scaled
from p3s.simulate.network import NEVER, Curve, Network, Path


def altered_network(parts: Sequence[Change]) -> Callable[[Network], Network] | None:
    """Return what changes make of costs of messages; None where they leave them alone."""
    if any(isinstance(part, OnNetwork) and part.name == IDEAL for part in parts):
        return ideal
    factors = {part.what: part.factor for part in parts if isinstance(part, Scaled)}
    steps = [(make, factors[name]) for name, make in _MADE.items() if name in factors]
    if not steps:
        return None

    def made(network: Network) -> Network:
        for make, factor in steps:
            network = make(network, factor)
        return network

    return made


def ideal(network: Network) -> Network:
    """Return a network on which messages take no time, neither on their way nor in calls.

    Large messages still wait for their receive: who waits for whom stays as it is.
    """
    paths = {
        distance: replace(path, transfer=NEVER, send=NEVER, receive=NEVER, busy=NEVER)
        for distance, path in network.paths.items()
    }
    return replace(
        network,
        paths=paths,
        rate=math.inf,
        burst=0.0,
        post=0.0,
        sender_buffer=0.0,
        trunks=None,
        wires=None,
    )


def with_latency(network: Network, factor: float) -> Network:
    """Return messages between nodes with ``factor`` times the time that an empty one takes.

    As much is taken off messages of any size, and nothing takes less than 0.
    """

    def path(each: Path) -> Path:
        less = (1.0 - factor) * float(each.transfer.at(0.0))
        return replace(each, transfer=_shifted(each.transfer, -less))

    return _between(network, path)


def with_bandwidth(network: Network, factor: float) -> Network:
    """Return messages between nodes whose bytes take 1/``factor`` as long, on all links.

    What a message of any size takes beyond an empty one is divided by it.
    """

    def path(each: Path) -> Path:
        return replace(each, transfer=_slope(each.transfer, factor), busy=_slope(each.busy, factor))

    made = replace(_between(network, path), rate=network.rate * factor)
    if made.trunks is not None:
        rates = tuple(rate * factor for rate in made.trunks.rate)
        made = replace(made, trunks=replace(made.trunks, rate=rates))
    if made.wires is not None:
        rates = tuple(rate * factor for rate in made.wires.rate)
        made = replace(made, wires=replace(made.wires, rate=rates))
    return made


def with_software(network: Network, factor: float) -> Network:
    """Return calls that take ``factor`` times as long for themselves, inside of nodes too."""
    paths = {
        distance: replace(
            path, send=_times(path.send, factor), receive=_times(path.receive, factor)
        )
        for distance, path in network.paths.items()
    }
    return replace(network, paths=paths, post=network.post * factor)


_MADE = {"latency": with_latency, "bandwidth": with_bandwidth, "software": with_software}


def _between(network: Network, change: Callable[[Path], Path]) -> Network:
    """Return a network whose paths between nodes are changed."""
    paths = {d: path if d == 0 else change(path) for d, path in network.paths.items()}
    return replace(network, paths=paths)


def _shifted(curve: Curve, ns: float) -> Curve:
    return Curve(curve.nbytes, tuple(max(each + ns, 0.0) for each in curve.ns))


def _times(curve: Curve, factor: float) -> Curve:
    return Curve(curve.nbytes, tuple(each * factor for each in curve.ns))


def _slope(curve: Curve, factor: float) -> Curve:
    first = float(curve.at(0.0))
    return Curve(curve.nbytes, tuple(first + (each - first) / factor for each in curve.ns))
