"""What messages cost, for the dependency simulation: curves over bytes, and links with a queue."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Floats, Ints
from p3s.base.errors import DamagedFile, P3SError
from p3s.simulate.switch_links import Trunks, Wires, tree

if TYPE_CHECKING:
    from p3s.machine.cluster import Cluster, Messages

NETWORK_SCHEMA = "p3s.network"
NETWORK_VERSION = 1


#: Messages of a stream are held up by more than their calls if they are this much further apart.
_APART = 1.5


@dataclass(frozen=True)
class Curve:
    """A cost in ns over bytes: straight lines between points.

    ``nbytes``: ascending; ``ns``: the cost there. Below the first point the first cost, beyond
    the last one along the line through the last two points, never falling.
    """

    nbytes: tuple[float, ...]
    ns: tuple[float, ...]

    def at(self, nbytes: npt.ArrayLike) -> Floats:
        """Return the cost of messages of these sizes."""
        x, y = np.asarray(self.nbytes), np.asarray(self.ns)
        sizes = np.asarray(nbytes, dtype=np.float64)
        cost = np.interp(sizes, x, y)
        if len(x) > 1:
            slope = max((y[-1] - y[-2]) / (x[-1] - x[-2]), 0.0)
            cost = np.where(sizes > x[-1], y[-1] + slope * (sizes - x[-1]), cost)
        return np.asarray(cost, dtype=np.float64)


NEVER = Curve((0.0,), (0.0,))


@dataclass(frozen=True)
class Path:
    """Messages over one distance.

    ``transfer``: from the later of the two starts until the receiver has all of it, where nothing
    else is on the way. ``send``: how long the sender's call takes for itself; ``receive``: how
    long the call takes that receives a message that is there already. Messages of more than
    ``eager_bytes`` wait for their receive to be posted, and their sender until they have gone.
    ``linked``: they pass the links of both nodes. ``busy``: how long a message keeps such a link
    from others, where that is longer than its bytes take at the link's rate (0: it is not).
    """

    transfer: Curve
    send: Curve
    receive: Curve
    eager_bytes: float
    linked: bool
    busy: Curve = NEVER


@dataclass(frozen=True)
class Network:
    """What messages cost on a cluster of nodes with one link each.

    ``paths``: by distance (0: inside a node). ``rate``: bytes per ns that a node's link carries in
    each direction, inf where it is no limit; ``burst``: bytes that pass at once after a pause.
    ``post``: ns of a call that starts a request or completes one that is complete.
    ``source``: what it was made from.
    ``sender_buffer``: bytes that a node takes off the sender of a rendezvous message before its
    link has carried them. ``background``: rendezvous messages begin while their ranks compute;
    False: when both are inside a call. ``handshake``: what announces a rendezvous message, and the
    answer, wait at busy links too. ``trunks``: the links between switches, and which node is where;
    None: nothing is limited there. ``wires``: links between switches of any other network instead.
    ``fair``: messages on one link share its rate; False: they pass one after the other. ``back``:
    share of a message's rate that its answers (of TCP) take on the way back.
    """

    paths: dict[int, Path]
    rate: float = math.inf
    burst: float = 0.0
    post: float = 0.0
    source: str = ""
    detail: dict[str, float] = field(default_factory=dict)
    sender_buffer: float = 0.0
    background: bool = True
    handshake: bool = False
    trunks: Trunks | None = None
    wires: Wires | None = None
    fair: bool = False
    back: float = 0.0

    def nearest(self, distance: int) -> int:
        """Return the distance with a path that is nearest to a distance."""
        return min(self.paths, key=lambda each: (abs(each - distance), each))

    def path(self, distance: int) -> Path:
        """Return the path of a distance; of the nearest one that is known where it is not."""
        return self.paths[self.nearest(distance)]

    def to_json(self) -> dict[str, Any]:
        """Return the network as plain data; ``rate`` is null where it is no limit."""
        return {
            "schema": NETWORK_SCHEMA,
            "schema_version": NETWORK_VERSION,
            "source": self.source,
            "rate_bytes_per_ns": self.rate if math.isfinite(self.rate) else None,
            "burst_bytes": self.burst,
            "post_ns": self.post,
            "sender_buffer_bytes": self.sender_buffer,
            "background": self.background,
            "handshake": self.handshake,
            "paths": [
                {
                    "distance": distance,
                    **{
                        name: {"bytes": list(curve.nbytes), "ns": list(curve.ns)}
                        for name, curve in (
                            ("transfer", path.transfer),
                            ("send", path.send),
                            ("receive", path.receive),
                            ("busy", path.busy),
                        )
                    },
                    "eager_bytes": path.eager_bytes if math.isfinite(path.eager_bytes) else None,
                    "linked": path.linked,
                }
                for distance, path in sorted(self.paths.items())
            ],
            "detail": dict(self.detail),
            **({"fair": True, "back": self.back} if self.fair else {}),
            **({} if self.trunks is None else {"trunks": self.trunks.to_json()}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str = "network") -> Network:
        """Return the network of plain data; Damaged, one line, says what is wrong with it."""
        try:
            if data["schema"] != NETWORK_SCHEMA or data["schema_version"] != NETWORK_VERSION:
                raise ValueError(f"not {NETWORK_SCHEMA} version {NETWORK_VERSION}")
            rate = data["rate_bytes_per_ns"]
            network = cls(
                paths={int(path["distance"]): _path(path) for path in data["paths"]},
                rate=math.inf if rate is None else _cost(rate),
                burst=_cost(data["burst_bytes"]),
                post=_cost(data["post_ns"]),
                source=str(data["source"]),
                detail={str(name): float(value) for name, value in data["detail"].items()},
                sender_buffer=_cost(data["sender_buffer_bytes"]),
                background=bool(data["background"]),
                handshake=bool(data.get("handshake", False)),
                fair=bool(data.get("fair", False)),
                back=_cost(data.get("back", 0.0)),
                trunks=Trunks.from_json(data["trunks"]) if data.get("trunks") else None,
            )
            if not network.paths or network.rate <= 0:
                raise ValueError("no path" if not network.paths else "a rate of 0")
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            why = f"{err} is missing" if isinstance(err, KeyError) else str(err)
            raise DamagedFile(f"{where}: damaged ({why[:120]}); measure it again") from err
        return network


def _cost(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value} is no cost")
    return number


def _curve(data: Mapping[str, Any]) -> Curve:
    nbytes = tuple(_cost(x) for x in data["bytes"])
    ns = tuple(_cost(y) for y in data["ns"])
    if not nbytes or len(nbytes) != len(ns):
        raise ValueError("a cost without as many points as bytes")
    if any(a >= b for a, b in zip(nbytes, nbytes[1:], strict=False)):
        raise ValueError("the bytes of a cost do not ascend")
    return Curve(nbytes, ns)


def _path(data: Mapping[str, Any]) -> Path:
    eager = data["eager_bytes"]
    return Path(
        _curve(data["transfer"]),
        _curve(data["send"]),
        _curve(data["receive"]),
        math.inf if eager is None else float(eager),
        bool(data["linked"]),
        _curve(data["busy"]) if "busy" in data else NEVER,
    )


def line(constant_ns: float, ns_per_byte: float = 0.0) -> Curve:
    """Return the cost constant + bytes x per byte."""
    if not ns_per_byte:
        return Curve((0.0,), (constant_ns,))
    return Curve((0.0, 1e6), (constant_ns, constant_ns + 1e6 * ns_per_byte))


def rough_network(
    *,
    latency_ns: float = 2_000.0,
    rate: float = 12.5,
    inside_latency_ns: float = 500.0,
    inside_rate: float = 8.0,
    overhead_ns: float = 200.0,
    eager_bytes: float = 16_384.0,
    inside_eager_bytes: float = 4_096.0,
    burst: float = 0.0,
) -> Network:
    """Return a network for plans and estimates, before anything is measured.

    Rates in bytes per ns: a link of 100 Gbit/s by default, and memory inside of nodes. A message
    takes latency + bytes / rate, a call ``overhead_ns``. Errors: P3SError for a rate of 0.
    """
    if not (rate > 0 and inside_rate > 0):
        raise P3SError("network: a rate is 0; give bytes per ns")
    cpu = line(overhead_ns)
    return Network(
        {
            0: Path(line(inside_latency_ns, 1 / inside_rate), cpu, cpu, inside_eager_bytes, False),
            1: Path(line(latency_ns, 1 / rate), cpu, cpu, eager_bytes, True),
        },
        rate=rate,
        burst=burst,
        post=overhead_ns / 2,
        source="rough",
    )


def network_from_machine(machine: Any) -> Network:
    """Return the network of a machine file's measurement between two ranks (p3s.machine).

    ``machine``: a Machine, or the content of a machine file. Transfers are the measured one-way
    times, sends and receives the measured overheads; where none was measured for a size (a
    rendezvous message cannot have arrived) a receive costs what the largest measured one does.
    Two ranks of one host say nothing of links, two hosts nothing of messages inside of a host:
    the missing path is the other one's, and ``source`` says so, unless ``inside`` of the
    measurement has it. The rate of a link is the one of
    the largest messages in a stream; where smaller ones follow each other more slowly than both
    ends need for their calls (LogGP's g), it is the link that they keep busy. Errors: P3SError
    when there is no measurement.
    """
    name = machine.get("name", "") if isinstance(machine, Mapping) else machine.name
    measured = machine.get("network") if isinstance(machine, Mapping) else machine.network
    if not measured:
        raise P3SError(f"machine {name}: its network was not measured; run p3s machine measure")
    try:
        between = _read_pair_costs(measured)
        inside = _read_pair_costs(measured["inside"]) if measured.get("inside") else between
        post = _cost(measured.get("post_ns", min(*between.send.ns, *between.receive.ns[:1])))
        one_host = len(set(measured["hosts"])) == 1
    except (KeyError, TypeError, ValueError) as err:
        raise DamagedFile(
            f"machine {name}: its network is damaged ({err}); measure it again"
        ) from err
    other = (
        "messages between nodes as those inside"
        if one_host
        else "messages inside of nodes measured between two ranks of one"
        if inside is not between
        else "messages inside of nodes as those between"
    )
    return Network(
        {
            0: inside.path(False, busy=inside is between and not one_host),
            1: between.path(not one_host, busy=not one_host),
        },
        rate=math.inf if one_host else between.rate,
        post=post,
        source=f"machine {name}: two ranks on {'one host' if one_host else 'two hosts'}, {other}",
    )


@dataclass(frozen=True)
class _PairCosts:
    """What was measured between two ranks; ``rate``: of the largest messages in a stream."""

    transfer: Curve
    send: Curve
    receive: Curve
    busy: Curve
    eager: float
    rate: float

    def path(self, linked: bool, *, busy: bool) -> Path:
        """Return it as a path; ``busy``: its messages keep links busy."""
        busy_curve = self.busy if busy else NEVER
        return Path(self.transfer, self.send, self.receive, self.eager, linked, busy_curve)


def _read_pair_costs(measured: Mapping[str, Any]) -> _PairCosts:
    """Return the costs of a measurement. Errors: KeyError, TypeError, ValueError."""
    sizes = measured["sizes"]
    nbytes = tuple(float(b) for b in sizes["bytes"])
    last, receives = 0.0, []
    for value in sizes["receive_ns"]:
        last = last if value is None else _cost(value)
        receives.append(last)
    send = Curve(nbytes, tuple(_cost(y) for y in sizes["send_ns"]))
    gaps = [_cost(y) for y in sizes["gap_ns"]]
    call_ns = [max(a, b) for a, b in zip(send.ns, receives, strict=True)]
    busy = tuple(
        gap if gap > _APART * calls else 0.0 for gap, calls in zip(gaps, call_ns, strict=True)
    )
    return _PairCosts(
        Curve(nbytes, tuple(_cost(y) for y in sizes["one_way_ns"])),
        send,
        Curve(nbytes, tuple(receives)),
        Curve(nbytes, busy),
        max(float(measured["eager_bytes"]), 0.0),
        nbytes[-1] / gaps[-1] if gaps[-1] > 0 else math.inf,
    )


def network_from_cluster(
    cluster: Cluster, nodes: int, end: str = "typical", among: Ints | None = None
) -> Network:
    """Return the network of a cluster file for a run on ``nodes`` nodes in a row.

    ``among``: only these of them are simulated; each has its share of the links above it.

    ``end``: typical, low (the faster end of every figure) or high. Distances are the switches on
    the way; groups of nodes whose links upwards are a limit become a tree of links.
    """
    rate = 1.0 / cluster.link[end]
    paths = {0: _cluster_path(cluster.inside, end, 0.0, False)}
    for level in cluster.levels:
        paths[level.switches] = _cluster_path(cluster.between, end, level.extra[end], True)
    below = [(level.nodes, level.uplink[end]) for level in cluster.levels if level.nodes]
    trunks = tree([size for size, _ in below], [share * rate for _, share in below], nodes, rate)
    return Network(
        paths,
        rate=rate,
        post=cluster.post[end],
        background=cluster.background[end],
        trunks=trunks if trunks is None or among is None else trunks.of_some(among),
        source=f"those of {'a typical ' if cluster.typical else ''}{cluster.label} "
        f"({cluster.name})",
    )


def _cluster_path(messages: Messages, end: str, extra: float, linked: bool) -> Path:
    """Return the path of messages that take ``extra`` ns longer."""
    call = Curve(messages.call["bytes"], messages.call[end])
    gap = messages.gap[end]
    return Path(
        Curve(messages.nbytes, tuple(ns + extra for ns in messages.one_way[end])),
        call,
        call,
        messages.eager_bytes,
        linked,
        line(gap) if linked and gap else NEVER,
    )


def cluster_distances(cluster: Cluster, nodes: int, among: Ints | None = None) -> Ints:
    """Return the switches between any two of ``nodes`` nodes in a row, nodes x nodes; 0: itself.

    ``among``: only between these of them.
    """
    node = np.arange(nodes) if among is None else among
    switches = np.full((len(node), len(node)), cluster.levels[-1].switches, dtype=np.int64)
    for level in reversed(cluster.levels[:-1]):
        group = node // (level.nodes or nodes)
        switches[group[:, None] == group[None, :]] = level.switches
    np.fill_diagonal(switches, 0)
    return switches
