"""Expanded collectives in the dependency simulation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from steps_builder import Builder

from p3s.program.collectives.choose import library_of
from p3s.program.collectives.expand import expand
from p3s.simulate.network import Network, Path, line
from p3s.simulate.simulate import simulate

CALLS = (
    "Barrier",
    "Bcast",
    "Reduce",
    "Allreduce",
    "Gather",
    "Scatter",
    "Allgather",
    "Alltoall",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
)


@pytest.mark.parametrize(
    "family, version", [("openmpi", "4.1.4"), ("openmpi", "5.0.3"), ("mpich", "4.2.0")]
)
def test_they_end_when_every_message_is_synchronous(family: str, version: str) -> None:
    own = line(10.0)
    paths = {d: Path(line(1000.0 + 4000 * d, 0.5), own, own, -1, d > 0) for d in (0, 1)}
    network = Network(paths, rate=2.0, post=5.0)
    library = library_of(family, version)
    for call in CALLS:
        for p in (2, 5, 8, 17):
            for nbytes in (8, 70_000):
                root = 1 if call in ("Bcast", "Reduce", "Gather", "Scatter") else -1
                b = Builder(p)
                for rank in range(p):
                    for _ in range(2):
                        b.add(rank, f"MPI_{call}", root, nbytes, work_ns=100.0 * rank)
                steps = expand(b.build(), library).steps
                found = simulate(steps, np.arange(p) // 4, network)
                assert np.isfinite(found.end_ns).all()


def test_recursive_doubling_takes_its_rounds() -> None:
    """Eight bytes summed by 16 ranks: four exchanges one after the other."""
    own = line(0.0)
    network = Network({0: Path(line(1000.0), own, own, 4096, False)})
    b = Builder(16)
    for rank in range(16):
        b.add(rank, "MPI_Allreduce", nbytes=8)
    library = library_of("openmpi", "4.1.4", "allreduce=recursive_doubling")
    found = simulate(expand(b.build(), library).steps, np.zeros(16, int), network)
    assert found.end_ns.max() == 4000.0


def test_wanted_algorithms_are_known_before_anything_else_is_imported() -> None:
    words = "from p3s.program.collectives.choose import rules_of; rules_of('bcast=binomial')"
    command = [sys.executable, "-c", words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
