"""The machine file of the simulated cluster: p3s/machine/network.c run between two of its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accuracy import cluster
from accuracy.build import ACCESS_PS, BLOCK_PS, Builder

#: Simulated time of the measurement beyond its two rounds, in ns: repeats are equal.
_BUDGET_NS = 1


def measured(builder: Builder, path: Path, platform: str = "flat") -> str:
    """Measure messages between two nodes, write the machine file; return what network.c said."""
    from p3s.machine import programs

    two = cluster.Cluster(builder.directory / "two", 2, platform)
    two.write()
    text = between(builder, two)
    save(path, programs.parse_network(text))
    return text


def between(builder: Builder, two: cluster.Cluster) -> str:
    """Measure messages between the first two ranks of a cluster; return what network.c said."""
    from p3s.machine import programs

    source = Path(programs.__file__).with_name("network.c")
    program = builder.plain(source, "network")
    return cluster.simulate(two, builder.clock, program, [str(_BUDGET_NS)], 2)[1]


def save(path: Path, found: Mapping[str, Any], inside: Mapping[str, Any] | None = None) -> None:
    """Write the machine file of a measurement between two nodes, and of one inside a node."""
    from p3s import __version__
    from p3s.machine import programs
    from p3s.machine.machinefile import CORE_KERNELS, CURVE_KERNELS, Cost, Curve, Facts, Machine

    # Ranks of the simulator share a kernel, by which network.c tells machines apart.
    found = {**found, "hosts": [f"n-{node}" for node in range(2)]}
    mpi = f"{' '.join(cluster.COLLECTIVES[1:])} as SMPI has it"
    own = inside and {**inside, "mpi": mpi, "ranges": programs.ranges(dict(inside))}
    # Every statement costs the same at any working set: that is what the cores are (counted.c).
    access = (ACCESS_PS + BLOCK_PS) * 1e-3
    Machine(
        name="simulated cluster",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        p3s_version=__version__,
        facts=Facts(host="simulated cluster", cores=1),
        settings={"clock": "simulated time", "simulator": cluster.version()},
        core={name: Cost(BLOCK_PS * 1e-3, 0.0, 1) for name in CORE_KERNELS},
        curves={
            name: Curve((8192, 1 << 30), (access, access), (0.0, 0.0), (1, 1))
            for name in CURVE_KERNELS
        },
        # "background": the simulated network carries messages while ranks compute.
        network={
            "mpi": mpi,
            "launcher": ["smpirun"],
            "background": True,
            **found,
            "ranges": programs.ranges(found),
            **({} if inside is None else {"inside": own}),
        },
    ).save(path)
