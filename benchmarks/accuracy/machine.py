"""The machine file of the simulated cluster: p3s/machine/network.c run between two of its nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from accuracy import cluster
from accuracy.build import ACCESS_PS, BLOCK_PS, Builder

#: Simulated time of the measurement beyond its two rounds, in ns: repeats are equal.
_BUDGET_NS = 1


def measured(builder: Builder, path: Path, platform: str = "flat") -> str:
    """Measure messages between two nodes, write the machine file; return what network.c said."""
    from p3s import __version__
    from p3s.machine import network
    from p3s.machine.machinefile import CORE_KERNELS, CURVE_KERNELS, Cost, Curve, Machine

    source = Path(network.__file__).with_name("network.c")
    two = cluster.Cluster(builder.directory / "two", 2, platform)
    two.write()
    _, text = cluster.simulate(
        two, builder.clock, builder.plain(source, "network"), [str(_BUDGET_NS)], 2
    )
    found = network.parsed(text)
    # Every statement costs the same at any working set: that is what the cores are (counted.c).
    access = (ACCESS_PS + BLOCK_PS) * 1e-3
    Machine(
        name="simulated cluster",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        p3s_version=__version__,
        facts={"host": "simulated cluster", "cores": 1, "simulator": cluster.version()},
        settings={"clock": "simulated time"},
        core={name: Cost(BLOCK_PS * 1e-3, 0.0, 1) for name in CORE_KERNELS},
        curves={
            name: Curve((8192, 1 << 30), (access, access), (0.0, 0.0), (1, 1))
            for name in CURVE_KERNELS
        },
        # "background": the simulated network carries messages while ranks compute.
        network={
            "mpi": f"{' '.join(cluster.COLLECTIVES[1:])} as SMPI has it",
            "launcher": ["smpirun"],
            "background": True,
            **found,
            "ranges": network.ranges(found),
        },
    ).save(path)
    return text
