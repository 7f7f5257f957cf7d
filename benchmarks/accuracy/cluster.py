"""The simulated cluster: its description for SimGrid, and runs of programs on it."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Nodes of one core.
SPEED = "1Gf"
LOOPBACK = ("40Gbps", "200ns")
#: Messages up to this many bytes travel before their receive is posted (eager).
EAGER_BYTES = 65536
#: What a call costs its own processor in seconds, and per byte: MPI_Send, MPI_Isend, MPI_Recv.
OVERHEAD = {"os": (4e-7, 2e-11), "ois": (4e-7, 2e-11), "or": (4e-7, 2e-11)}
#: What a call that asks whether something has come costs in seconds; by default 100 us, and more
#: with each that finds nothing.
POLL_S = 4e-7
#: Whose choice of collective algorithms: the simulator's name, and family and version for P3S.
COLLECTIVES = ("ompi", "openmpi", "4.1")
#: Algorithms that are set instead, as the simulator and as P3S name them. Its form of Open MPI's
#: broadcast takes 18 us times the ranks for 4 bytes at 8, 16, 64 and 256 of them, and it makes one
#: for each communicator: up to 40 % of these short runs. Its ring, which is chosen for 8 bytes at 4
#: and 16 to 63 ranks, reduces and broadcasts where ranks have less than an element each (twice the
#: time), Open MPI's doubles then. Its reduction of 16 KB is another one from 16 ranks on.
ALGORITHMS = {
    "bcast": ("binomial_tree", "binomial"),
    "allreduce": ("rdb", "recursive_doubling"),
    "reduce": ("binomial", "binomial"),
}
#: Calls that make a communicator. The simulator broadcasts its number (Comm::Comm of SimGrid 3.32)
#: where Open MPI reduces three times; of the ways that P3S knows MPICH's single reduction is the
#: nearest: 434 us for MPI_Cart_create and what stands around it at 256 ranks, of 430 that it takes;
#: with Open MPI's way 576.
CREATIONS = ("comm_dup", "comm_split", "comm_create", "cart_create", "cart_sub", "graph_create")
#: Those that are set where nothing else is said.
SET = ("bcast", "allreduce")
#: What the simulator prints where no rank goes on; its exit code is 0 all the same.
_DEADLOCK = "Deadlock detected"
_TIME = re.compile(r"Simulated time:\s*([0-9.eE+-]+)\s*seconds")
#: A simulation of a few hundred ranks takes seconds, on a loaded machine a minute.
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Platform:
    """A network: links of which bandwidth and latency, and the simulator's name of its shape.

    An empty name: one switch that does not block, each node with one link in each direction.
    """

    bandwidth: str
    latency: str = "2us"
    shape: str = ""

    def nodes(self, wanted: int) -> tuple[int, str]:
        """Return how many nodes a cluster has that holds ``wanted``, and its parameters."""
        if self.shape == "FAT_TREE":
            leaves = -(-wanted // LEAF[0])
            return leaves * LEAF[0], f"2;{LEAF[0]},{leaves};1,{LEAF[1]};1,1"
        if self.shape == "TORUS":
            extents = [2, 2, 2]  # a node has no link to itself
            while math.prod(extents) < wanted:
                extents[extents.index(min(extents))] *= 2
            return math.prod(extents), ",".join(map(str, extents))
        return wanted, ""


#: Nodes of a leaf of the fat tree, and its uplinks, one to each switch above.
LEAF = (16, 4)
PLATFORMS = {
    "flat": Platform("10Gbps"),
    "fat-tree": Platform("1Gbps", shape="FAT_TREE"),
    "torus": Platform("10Gbps", shape="TORUS"),
}


class SimulationError(Exception):
    """A simulated run failed: one line."""


def missing() -> str:
    """Return why nothing can be simulated here, "" if it can."""
    absent = [tool for tool in ("smpicc", "smpirun") if shutil.which(tool) is None]
    return f"{', '.join(absent)}: not found; install libsimgrid-dev" if absent else ""


def version() -> str:
    """Return the simulator's version as it says it."""
    done = subprocess.run(["smpirun", "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or ["?"])[0].strip()


@dataclass(frozen=True)
class Cluster:
    """A described cluster of ``nodes``; ``directory`` holds its files and the simulator's own.

    ``network``: one of PLATFORMS; ``algorithms``: which of ALGORITHMS are set.
    """

    directory: Path
    nodes: int
    network: str = "flat"
    algorithms: tuple[str, ...] = SET

    @property
    def platform(self) -> Path:
        """The description that the simulator reads."""
        return self.directory / f"{self.network}-{self.nodes}.xml"

    @property
    def hosts(self) -> Path:
        """One node a line: rank i is on the i-th."""
        return self.directory / f"hosts-{self.nodes}"

    def write(self) -> None:
        """Write both files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        kind = PLATFORMS[self.network]
        nodes, parameters = kind.nodes(self.nodes)
        shape = f' topology="{kind.shape}" topo_parameters="{parameters}"' if kind.shape else ""
        self.platform.write_text(
            '<?xml version="1.0"?>\n'
            '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
            '<platform version="4.1">\n'
            f'  <cluster id="cluster" prefix="n-" suffix="" radical="0-{nodes - 1}"'
            f' speed="{SPEED}" bw="{kind.bandwidth}" lat="{kind.latency}"{shape}'
            f' loopback_bw="{LOOPBACK[0]}" loopback_lat="{LOOPBACK[1]}"/>\n'
            "</platform>\n"
        )
        self.hosts.write_text("".join(f"n-{i}\n" for i in range(self.nodes)))


def settings(algorithms: Sequence[str] = SET) -> list[str]:
    """Return the simulator's settings, beside the defaults of smpirun."""
    own = {
        "smpi/host-speed": SPEED,
        "smpi/cpu-threshold": "0",  # no computation is too short
        "smpi/wtime": "0",  # reading the clock takes no time
        "smpi/test": str(POLL_S),
        "smpi/iprobe": str(POLL_S),
        "smpi/grow-injected-times": "no",
        "smpi/coll-selector": COLLECTIVES[0],
        **{f"smpi/{call}": ALGORITHMS[call][0] for call in algorithms},
        "smpi/async-small-thresh": str(EAGER_BYTES),
        "smpi/send-is-detached-thresh": str(EAGER_BYTES),
        "smpi/display-timing": "yes",
        **{
            f"smpi/{name}": f"0:{constant}:{per_byte}"
            for name, (constant, per_byte) in OVERHEAD.items()
        },
    }
    return [f"--cfg={name}:{value}" for name, value in own.items()]


def _units_of_its_own(program: Path) -> list[str]:
    """Give every rank of a Fortran program its own copy of the run-time library.

    All ranks are one process: what one of them opened under a unit's number would be open for all.
    """
    found = re.search(rb"libgfortran\.so\.\d+", program.read_bytes())
    return [f"--cfg=smpi/privatize-libs:{found[0].decode()}"] if found else []


def collectives(algorithms: Sequence[str]) -> list[str]:
    """Return the words that tell P3S of the algorithms that are set."""
    own = [f"{call}={ALGORITHMS[call][1]}" for call in algorithms]
    return ["--collectives", ",".join([*own, *(f"{call}=mask" for call in CREATIONS)])]


def simulate(
    cluster: Cluster,
    clock: Path,
    program: Path,
    arguments: Sequence[str],
    ranks: int,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    preloaded: Sequence[Path] = (),
) -> tuple[float, str]:
    """Run ``program`` on the first nodes of a cluster; return the simulated time in s, its output.

    ``directory``: where it runs (None: here); ``preloaded``: libraries beside the clock.

    Errors: SimulationError when it fails or says no time.
    """
    words = [
        "smpirun",
        "-np",
        str(ranks),
        "-platform",
        str(cluster.platform),
        "-hostfile",
        str(cluster.hosts),
        "-wrapper",
        f"setarch -R env LD_PRELOAD={':'.join(map(str, (clock, *preloaded)))}",
        *settings(cluster.algorithms),
        *_units_of_its_own(program),
        str(program),
        *arguments,
    ]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={
            **os.environ,
            "TMPDIR": str(cluster.directory),
            "ACCURACY_ARGUMENTS": "\n".join([str(program), *arguments]),
            **(environment or {}),
        },
        start_new_session=True,
        cwd=directory,
    )
    try:
        text, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise SimulationError(
            f"{program.name} on {ranks} ranks did not end within {TIMEOUT_S:.0f} s"
        ) from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    found = _TIME.search(text)
    if process.returncode != 0 or found is None or _DEADLOCK in text:
        lines = [line for line in text.splitlines() if line.strip() and "/INFO]" not in line]
        raise SimulationError(
            f"{program.name} on {ranks} ranks: exit code {process.returncode}: "
            f"{(lines or ['no message'])[0][:300]}"
        )
    return float(found[1]), text
