"""A SimGrid platform whose messages take what a Network says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from p3s.base.arrays import Ints
from p3s.simulate.network import Curve, Network
from p3s.simulate.network import Path as Path_

#: Bytes per ns of a link that is no limit.
_NO_LIMIT = 1e4
#: Bytes that SMPI adds to every message on its way.
_ENVELOPE = 16
#: Sizes for which there are factors: those in the trace, if not too many, and powers of this.
_MOST_SIZES, _GRID, _LARGEST = 500, 1.2, 1e9
PLATFORM, HOSTS = "platform.xml", "hosts.txt"


@dataclass(frozen=True)
class Line:
    """From ``above`` bytes on (exclusive) a cost of ``ns`` + bytes x ``per_byte`` ns."""

    above: float
    ns: float
    per_byte: float


def lines_of(curve: Curve, less: Sequence[Curve] = (), until: float = math.inf) -> list[Line]:
    """Return a curve, less others up to ``until`` bytes, as lines that do not fall below 0."""
    points = sorted(
        {
            0.0,
            *curve.nbytes,
            *(x for other in less for x in other.nbytes),
            *([until] if math.isfinite(until) else []),
        }
    )
    pieces: list[Line] = []
    for a, b in zip(points, [*points[1:], max(2 * points[-1], 1e6)], strict=True):
        # A little inside: at the end of a piece two values meet.
        x = np.array([a + (b - a) * 1e-9, b])
        y = curve.at(x)
        if b <= until:
            y = np.maximum(y - sum((other.at(x) for other in less), np.zeros(2)), 0.0)
        slope = max(float((y[1] - y[0]) / (x[1] - x[0])), 0.0)
        constant = float(y[1]) - slope * b
        if constant < 0:
            slope, constant = float(y[1]) / b, 0.0
        if not pieces or (
            abs(slope - pieces[-1].per_byte) > 1e-9 * max(slope, 1e-12)
            or abs(constant - pieces[-1].ns) > 1e-6 * max(constant, 1e-6)
        ):
            pieces.append(Line(a, constant, slope))
    return pieces


def settings(network: Network, sizes: Sequence[int] = ()) -> tuple[dict[str, str], dict[str, str]]:
    """Return attributes of the cluster and settings of SMPI that give a network's costs.

    The one-way time of a message is its transfer: what the sender's call takes passes before
    SimGrid begins the transfer, and what the receiver's takes behind it, so that the latency of
    eager messages is less by as much. Factors per size make the rest, of the transfer between
    nodes; inside of nodes they apply too, to the latency and rate there. Where links are no limit
    there are factors on latency and bandwidth. Where they are, a factor on the bandwidth would
    take up that much more of the link, so that all of it is latency: exactly for ``sizes`` (the
    bytes of messages), and for sizes between within a tenth of their distance from each other.
    """
    far, near = network.path(1), network.path(0)
    eager = far.eager_bytes if math.isfinite(far.eager_bytes) else 1e12
    transfer = lines_of(far.transfer, (far.send, far.receive), eager)
    latency = max(transfer[0].ns, 1e-3)
    slowest = [1.0 / line.per_byte for line in transfer if line.per_byte > 0]
    limited = far.linked and math.isfinite(network.rate)
    rate = network.rate if limited else max(slowest, default=_NO_LIMIT)
    inside = lines_of(near.transfer, (near.send, near.receive), eager)
    near_rate = max(
        (1.0 / line.per_byte for line in inside if line.per_byte > 0), default=_NO_LIMIT
    )
    if limited:
        factor = _steps(far, rate, latency, eager, sizes)
    else:
        factor = [
            (
                line.above + _ENVELOPE * (line.above > 0),
                max(line.ns - _ENVELOPE * line.per_byte, 0.0) / latency,
                1.0 / (line.per_byte * rate) if line.per_byte > 0 else 1.0,
            )
            for line in transfer
        ]
    send, receive = (_overhead(curve, eager) for curve in (far.send, far.receive))
    beyond = f"{_number(eager)}:{{}}:0"
    cluster = {
        "speed": "1Gf",
        "bw": _rate(rate),
        "lat": f"{_seconds(latency / 2)}s",
        "sharing_policy": "SPLITDUPLEX" if limited else "FATPIPE",
        "loopback_bw": _rate(near_rate),
        "loopback_lat": f"{_seconds(inside[0].ns)}s",
    }
    config = {
        "smpi/lat-factor": ";".join(f"{_number(a)}:{_number(x)}" for a, x, _ in factor),
        "smpi/bw-factor": "0:1"
        if limited
        else ";".join(f"{_number(a)}:{_number(x)}" for a, _, x in factor),
        "smpi/os": ";".join([*send, beyond.format(0)]),
        "smpi/ois": ";".join([*send, beyond.format(_seconds(network.post))]),
        "smpi/or": ";".join([*receive, beyond.format(0)]),
        "smpi/async-small-thresh": _number(eager + 1),
        "smpi/send-is-detached-thresh": _number(eager + 1),
        "network/TCP-gamma": "0",
        "network/crosstraffic": "0",
        "network/weight-S": "0",
    }
    return cluster, config


def _steps(
    path: Path_, rate: float, latency: float, eager: float, sizes: Sequence[int]
) -> list[tuple[float, float, float]]:
    """Return (size above which it holds, factor on the latency, 1.0) for sizes of messages."""
    sizes_seen = sorted({max(int(size), 1) for size in sizes})
    if len(sizes_seen) > _MOST_SIZES:
        sizes_seen = []
    grid = {int(_GRID**k) for k in range(int(math.log(_LARGEST, _GRID)) + 1)}
    values = np.array(
        sorted({*sizes_seen, *grid, *([int(eager), int(eager) + 1] if eager < _LARGEST else [])}),
        dtype=np.float64,
    )
    soft = np.where(values <= eager, path.send.at(values) + path.receive.at(values), 0.0)
    extra = np.maximum(path.transfer.at(values) - soft - (values + _ENVELOPE) / rate, 0.0)
    between = np.concatenate(([0.0], (values[1:] + values[:-1]) / 2 + _ENVELOPE))
    return [(a, x / latency, 1.0) for a, x in zip(between.tolist(), extra.tolist(), strict=True)]


def lacks(network: Network) -> list[str]:
    """Return what of a network's costs the platform does not have, one line each."""
    missing = []
    if not network.background:
        missing.append("large messages move while ranks compute, unlike in the measured library")
    if any(max(path.busy.ns, default=0.0) > 0 for path in network.paths.values()):
        missing.append(
            "messages keep a link only as long as their bytes take, not the measured gap"
        )
    if network.burst > 0 or network.sender_buffer > 0:
        missing.append("links have no bursts")
    if network.trunks is not None:
        missing.append("links between switches are no limit")
    return missing


def _overhead(curve: Curve, eager: float) -> list[str]:
    """Return what a call takes for eager messages, as SMPI reads it."""
    return [
        f"{_number(line.above)}:{_seconds(line.ns)}:{_seconds(line.per_byte)}"
        for line in lines_of(curve)
        if line.above < eager
    ]


def write_platform(
    directory: Path, network: Network, node_of: Ints, sizes: Iterable[int] = ()
) -> None:
    """Write platform.xml and hosts.txt: one host per node, and the host of every rank.

    ``node_of``: node of every rank. ``sizes``: bytes of the messages in the trace. Latencies of
    paths beyond the nearest one between nodes are not told apart.
    """
    from xml.sax.saxutils import quoteattr  # imports half of urllib

    nodes, per = int(node_of.max()) + 1, int(np.bincount(node_of).max())
    cluster, config = settings(network, sorted(sizes))
    attributes = {
        "id": "cluster",
        "prefix": "node-",
        "suffix": "",
        "radical": f"0-{nodes - 1}",
        "core": str(per),
        **cluster,
    }
    text = [
        "<?xml version='1.0'?>",
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        f"<!-- {_comment(network.source)} -->",
        '<platform version="4.1">',
        "  <config>",
        *(
            f"    <prop id={quoteattr(key)} value={quoteattr(value)}/>"
            for key, value in config.items()
        ),
        "  </config>",
        "  <cluster " + " ".join(f"{k}={quoteattr(v)}" for k, v in attributes.items()) + "/>",
        "</platform>",
        "",
    ]
    (directory / PLATFORM).write_text("\n".join(text), encoding="utf-8")
    (directory / HOSTS).write_text("".join(f"node-{node}\n" for node in node_of.tolist()))


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("--", "- -") or "network"


def _number(value: float) -> str:
    return f"{value:.9g}"


def _seconds(ns: float) -> str:
    return f"{ns * 1e-9:.9g}"


def _rate(bytes_per_ns: float) -> str:
    return f"{bytes_per_ns * 1e9:.9g}Bps"
