"""A cluster of network namespaces on this machine: own host names, links of a limited rate.

Each node is a network namespace with one interface, eth0, that leads through a token bucket to a
bridge in a namespace of its own (the hub); the way back is limited alike. With a trunk there are
two bridges, and a link of its own rate between them. Everything is named after the run, so that
several clusters live side by side; processes in the namespaces are ended with the cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import signal
import string
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: What repeats best on a small machine: the burst is two frames of the kernel's default gso size.
RATE = "200mbit"
BURST = "128kb"
LATENCY = "100ms"
#: Of TCP on the nodes. Congestion control by estimated bandwidth (bbr, some machines' default)
#: makes the times of bursts vary by 10 %; a cluster's network does not shrink after an idle time.
TCP = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}
NETNS = Path("/etc/netns")
PREFIX = "p3s"
#: One file per cluster: the process that it belongs to, and its namespaces.
_OWNERS = Path("/run/p3s-test-clusters")
_LETTERS = 6
_TIMEOUT_S = 300.0

#: Runs a command on a node, word for word.
_RUN = """#!/bin/sh
# run NODE WORD...
node=$1; shift
exec ip netns exec "$node" unshare -u sh -c 'hostname "$0"; exec "$@"' "$node" "$@"
"""
#: Stands in for ssh: options are skipped, the rest is for a shell on the node.
_AGENT = """#!/bin/sh
# agent [OPTION...] NODE COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
node=$1; shift
case $node in %(net)s.*) node=%(name)s$((${node##*.} - 1));; esac
exec ip netns exec "$node" unshare -u sh -c 'hostname "$0"; exec sh -c "$1"' "$node" "$*"
"""
_NET = "10.77.0"


def missing() -> str:
    """Return why no cluster can be made here, empty if one can."""
    if os.getuid() != 0:
        return "only root can make network namespaces"
    for name in ("ip", "tc", "unshare"):
        if shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
            return f"{name} is not installed (Debian: iproute2, util-linux)"
    name = f"{PREFIX}probe{secrets.token_hex(3)}"
    made = _try("ip", "netns", "add", name)
    if made.returncode:
        return f"no network namespaces here: {_said(made)}"
    try:
        for words in (
            ["link", "add", "p0", "type", "veth", "peer", "name", "p1"],
            ["link", "add", "br0", "type", "bridge"],
        ):
            done = _try("ip", "-n", name, *words)
            if done.returncode:
                return f"no virtual links or bridges here: {_said(done)}"
        done = _try(
            "ip",
            "netns",
            "exec",
            name,
            "tc",
            "qdisc",
            "add",
            "dev",
            "p0",
            "root",
            "tbf",
            "rate",
            RATE,
            "burst",
            BURST,
            "latency",
            LATENCY,
        )
        return f"no token bucket here: {_said(done)}" if done.returncode else ""
    finally:
        _try("ip", "netns", "del", name)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join((done.stderr or done.stdout).split())[:200] or f"exit code {done.returncode}"


def _try(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    return subprocess.run(
        words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, env=env
    )


def _do(*words: str) -> None:
    done = _try(*words)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {_said(done)}")


def _ip(space: str, text: str) -> None:
    """Run ip in a namespace."""
    _do("ip", "-n", space, *text.split())


def _inside(space: str) -> tuple[str, ...]:
    """Return what runs a command in a namespace."""
    return "ip", "netns", "exec", space


def _limit(space: str, device: str, rate: str, burst: str, queue: str = LATENCY) -> None:
    """Limit what a device sends; what would wait longer than ``queue`` is lost."""
    words = f"tc qdisc add dev {device} root tbf rate {rate} burst {burst} latency {queue}"
    _do(*_inside(space), *words.split())


@dataclass(frozen=True)
class Trunk:
    """Which nodes are on the first bridge, and what the link to the second one carries."""

    first: tuple[int, ...]
    rate: str = RATE
    burst: str = BURST


class Cluster:
    """Nodes on this machine; start() makes them, stop() removes all of it.

    ``hosts``: their names. ``run``: script that runs a command on a node word for word; ``agent``:
    script that an MPI launcher uses in place of ssh. Both lie in ``work``. ``rate`` None: links
    are not limited; ``queue``: for how long what is sent may wait at one before it is lost.
    """

    def __init__(
        self,
        work: Path,
        nodes: int = 4,
        *,
        rate: str | None = RATE,
        burst: str = BURST,
        queue: str = LATENCY,
        trunk: Trunk | None = None,
    ) -> None:
        self.work, self.nodes, self.rate, self.burst = Path(work), nodes, rate, burst
        self.queue = queue
        self.trunk = trunk
        self.name = PREFIX + "".join(
            secrets.choice(string.ascii_lowercase) for _ in range(_LETTERS)
        )
        self.hub = f"{self.name}hub"
        self.hosts = tuple(f"{self.name}{node}" for node in range(nodes))
        self.run, self.agent = self.work / "run", self.work / "agent"
        self._made = False

    def address(self, node: int) -> str:
        """Return the address of a node."""
        return f"{_NET}.{node + 1}"

    def start(self) -> None:
        """Make everything; what a dead process has left behind is removed first."""
        sweep()
        self.work.mkdir(parents=True, exist_ok=True)
        for path, text in ((self.run, _RUN), (self.agent, _AGENT)):
            path.write_text(text % {"net": _NET, "name": self.name})
            path.chmod(0o755)
        atexit.register(self.stop)
        self._made = True
        try:
            self._make()
        except BaseException:
            self.stop()
            raise

    def _make(self) -> None:
        _OWNERS.mkdir(exist_ok=True)
        (_OWNERS / self.name).write_text(
            " ".join([str(os.getpid()), _born(os.getpid()), self.hub, *self.hosts])
        )
        names = [f"{self.address(i)} {host}" for i, host in enumerate(self.hosts)]
        for space in (self.hub, *self.hosts):
            own = NETNS / space
            own.mkdir(parents=True)
            (own / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))
            _do("ip", "netns", "add", space)
            _ip(space, "link set lo up")
            for name, value in TCP.items():
                # Each namespace has its own; `ip netns exec` mounts /sys, not /proc, anew.
                text = f"echo {value} > /proc/sys/net/ipv4/{name}"
                _do(*_inside(space), "sh", "-c", text)
        for bridge in ("br0", "br1") if self.trunk else ("br0",):
            _ip(self.hub, f"link add {bridge} type bridge")
            _ip(self.hub, f"link set {bridge} up")
        for node, host in enumerate(self.hosts):
            port = f"v{node}"
            side = 1 if self.trunk and node not in self.trunk.first else 0
            _ip(self.hub, f"link add {port} type veth peer name eth0 netns {host}")
            _ip(self.hub, f"link set {port} master br{side}")
            _ip(self.hub, f"link set {port} up")
            _ip(host, f"addr add {self.address(node)}/24 dev eth0")
            _ip(host, "link set eth0 up")
            if self.rate:
                _limit(host, "eth0", self.rate, self.burst, self.queue)
                _limit(self.hub, port, self.rate, self.burst, self.queue)
        if self.trunk:
            _ip(self.hub, "link add t0 type veth peer name t1")
            for side in (0, 1):
                _ip(self.hub, f"link set t{side} master br{side}")
                _ip(self.hub, f"link set t{side} up")
                _limit(self.hub, f"t{side}", self.trunk.rate, self.trunk.burst)

    def processes(self) -> list[int]:
        """Return the ids of the processes on the nodes."""
        return [pid for host in self.hosts for pid in _pids(host)]

    def topology(self) -> str:
        """Return Slurm's topology.conf of the cluster: one switch, or two and one above them."""
        first = self.trunk.first if self.trunk else tuple(range(self.nodes))
        second = [node for node in range(self.nodes) if node not in first]
        speed = f" LinkSpeed={self.trunk.rate}" if self.trunk else ""
        lines = [
            f"SwitchName=s{i} Nodes={','.join(self.hosts[node] for node in side)}{speed}"
            for i, side in enumerate((first, second))
            if side
        ]
        if len(lines) > 1:
            lines.append("SwitchName=top Switches=s0,s1")
        return "\n".join([*lines, ""])

    def command(self, node: int, *words: str) -> list[str]:
        """Return the words that run a command on a node."""
        return [str(self.run), self.hosts[node], *words]

    def stop(self) -> None:
        """End the processes on the nodes and remove everything; may be called again."""
        if not self._made:
            return
        self._made = False
        _remove((*self.hosts, self.hub))
        (_OWNERS / self.name).unlink(missing_ok=True)
        atexit.unregister(self.stop)

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def openmpi_words(cluster: Cluster) -> list[str]:
    """Return a launcher command for Open MPI 4 on the cluster, with the settings of benchmarks.

    Small messages between nodes go by TCP over the limited links, those inside a node through
    memory without single copy; waiting ranks yield, because all nodes share this machine's cores.
    """
    settings = {
        "plm_rsh_agent": str(cluster.agent),
        "pml": "ob1",
        "btl": "tcp,vader,self",
        "btl_vader_single_copy_mechanism": "none",
        "mpi_yield_when_idle": "1",
        "btl_tcp_if_include": "eth0",
        "oob_tcp_if_include": "eth0",
    }
    words = [word for name, value in settings.items() for word in ("--mca", name, value)]
    return [
        *cluster.command(0, "/usr/bin/mpiexec.openmpi"),
        "--oversubscribe",
        "--bind-to",
        "none",
        *words,
    ]


def _born(pid: int) -> str:
    """Return when a process started (field 22 of its stat), empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _pids(space: str) -> list[int]:
    return [int(word) for word in _try("ip", "netns", "pids", space).stdout.split()]


def _remove(spaces: Sequence[str]) -> None:
    """End what runs in namespaces, then remove them and their files."""
    for number, wait_s in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + wait_s
        for pid in [pid for space in spaces for pid in _pids(space)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while any(_pids(space) for space in spaces) and time.monotonic() < deadline:
            time.sleep(0.05)
    for space in spaces:
        _try("ip", "netns", "del", space)
        shutil.rmtree(NETNS / space, ignore_errors=True)


def sweep() -> None:
    """Remove the clusters of processes that are gone."""
    for path in _OWNERS.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            pid, born, *spaces = path.read_text().split()
            if spaces and _born(int(pid)) != born:
                _remove(spaces)
                path.unlink(missing_ok=True)


if __name__ == "__main__":
    with Cluster(Path(sys.argv[1])) as made:
        print(made.run, *made.hosts, flush=True)
        signal.pause()
