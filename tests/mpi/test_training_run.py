"""The runner of traffic on real MPI, in SimGrid, and on a cluster of network namespaces."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cluster.network import Cluster, missing, openmpi_words
from traffic_patterns import around, fixed_halo

from p3s.base.errors import P3SError
from p3s.base.host.compiling import compile_cached
from p3s.machine.topology.trees import one_switch
from p3s.methods.placement.costs import network_id, row_of
from p3s.methods.placement.learned import Settings as Fit
from p3s.methods.placement.phases import together, traffic
from p3s.methods.placement.training import jobs
from p3s.methods.placement.training.campaign import Settings, random_pairs
from p3s.methods.placement.training.costs import hockney_of, network_of, seconds_of
from p3s.methods.placement.training.dataset import DatasetHeader, measure_dataset
from p3s.methods.placement.training.jobs import (
    Job,
    RealMachine,
    Repeats,
    SimulatedMachine,
    measure,
    real_machine,
)
from p3s.methods.placement.training.train import B, train
from p3s.program.mapping import block

SIMGRID = pytest.mark.skipif(not shutil.which("smpirun"), reason="SimGrid is not installed")
PLATFORM = (
    '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'
    '<platform version="4.1"><cluster id="c" prefix="n" suffix="" radical="0-7" speed="1Gf" '
    'bw="1Gbps" lat="10us"/></platform>'
)


def _machine() -> RealMachine:
    try:
        return real_machine(repeats=Repeats(1, 8))
    except P3SError as error:
        pytest.skip(str(error))


def _phases(ranks: int) -> dict:
    pairs = [random_pairs(np.arange(ranks) // 2, 3, 1000, 0.5, seed)[0] for seed in range(2)]
    several = together([traffic(ranks, [0, 0, 1], [1, 1, 0], [10, 0, 5], [3, 1, 2]), pairs[0]])
    return {4: pairs[0], 9: pairs[1], 11: several, 12: traffic(ranks, [], [], [])}


@pytest.mark.parametrize("ranks", [2, 4])
def test_any_traffic_runs_and_takes_the_third_quartile_of_the_slowest(tmp_path, ranks) -> None:
    machine = _machine()
    job = Job(("localhost",) * ranks, _phases(ranks), machine.repeats)
    jobs.write_job(job, tmp_path)
    program = compile_cached(
        "exchange", [jobs._SOURCE], ("-O2", "-w"), compiler=machine.mpi.mpicc, what="the runner"
    )
    from p3s.signature_runner.launch import run_traced

    words = [*machine.mpi.words, "-n", "{np}", str(program)]
    files = [str(tmp_path / name) for name in ("job.bin", "results.txt")]
    run_traced(
        [*words, *files, "times"], ranks, tmp_path / "run", timeout_s=300, trace=False, sharing=True
    )
    lines = (tmp_path / "results.txt").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == [4, 9, 11, 12]
    for line in lines:
        first, *each = line.split(" : ")
        times = np.sort([[float(x) for x in rank.split()] for rank in each], axis=1)
        assert times.shape == (ranks, 8) and (times > 0).all()
        assert float(first.split()[1]) == times[:, 3 * 8 // 4].max()


def test_the_runner_is_resumed_after_it_was_killed(tmp_path) -> None:
    """Phases that take long: the launching process is killed between two of them."""
    machine = _machine()
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom pathlib import Path\n"
        "from p3s.methods.placement.phases import traffic\n"
        "from p3s.methods.placement.training.jobs import Job, Repeats, measure, real_machine\n"
        "sent = {k: traffic(2, [0], [1], 1 << 20, 40) for k in range(40)}\n"
        "job = Job(('localhost',) * 2, sent, Repeats(0, 4))\n"
        "measure(job, real_machine(), Path(sys.argv[1]))\n"
    )
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path / "job")])
    results = tmp_path / "job" / "results.txt"
    deadline = time.monotonic() + 300
    while process.poll() is None and len(jobs.read_results(tmp_path / "job")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    _wait_for_the_end_of(str(tmp_path / "job"))
    before = jobs.read_results(tmp_path / "job")
    if len(before) == 40:
        pytest.skip("all was measured before it could be killed")
    assert before and results.exists()
    sent = {k: traffic(2, [0], [1], 1 << 20, 40) for k in range(40)}
    found = measure(Job(("localhost",) * 2, sent, Repeats(0, 1)), machine, tmp_path / "job")
    assert list(found) == list(range(40)) and {k: found[k] for k in before} == before
    numbers = [int(line.split()[0]) for line in results.read_text().splitlines()]
    assert sorted(numbers) == list(range(40)), "a phase was measured twice"


def _wait_for_the_end_of(word: str) -> None:
    """Wait until no process has a word in its command: the launcher ends with who started it."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        running = False
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                running |= word.encode() in path.read_bytes()
        if not running:
            return
        time.sleep(0.05)


@SIMGRID
def test_simulated_runs_are_the_same_every_time(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    platform = tmp_path / "p.xml"
    platform.write_text(PLATFORM)
    machine, hosts = SimulatedMachine(platform), tuple(f"n{k // 2}" for k in range(8))
    halo = fixed_halo((2, 2, 2), around(3), 10_000)
    job = Job(
        hosts,
        {**_phases(8), 20: halo, 21: dataclasses.replace(halo, messages=halo.messages * 2)},
        machine.repeats,
    )
    one, other = (measure(job, machine, Path(name)) for name in ("one", "other"))
    assert one == other and list(one) == [4, 9, 11, 12, 20, 21]
    assert 1.7 < one[21] / one[20] < 2.3


@SIMGRID
def test_what_simgrid_says_of_a_job_is_told_in_one_line(tmp_path) -> None:
    platform = tmp_path / "p.xml"
    platform.write_text(PLATFORM)
    machine = SimulatedMachine(platform)
    job = Job(("n0", "absent"), {0: traffic(2, [0], [1], 5)}, machine.repeats)
    with pytest.raises(P3SError, match="SimGrid failed") as err:
        measure(job, machine, tmp_path / "job")
    assert "\n" not in str(err.value)


def test_no_simgrid(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = SimulatedMachine(tmp_path / "p.xml")
    with pytest.raises(P3SError, match="install SimGrid"):
        measure(Job(("a",), {0: traffic(1, [], [], [])}, machine.repeats), machine, tmp_path)


# ---- a cluster of namespaces ---------------------------------------------------------------

WHY = missing()
if not WHY and not (
    Path("/usr/bin/mpiexec.openmpi").exists() and Path("/usr/bin/mpicc.openmpi").exists()
):
    WHY = "Debian's Open MPI is not installed"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), rate="100mbit") as made:
        yield made


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_twice_the_traffic_between_nodes_takes_twice_as_long(cluster, tmp_path) -> None:
    """A link of 100 Mbit/s for each of four nodes with two ranks; ranks send as much both times."""
    pytest.importorskip("sklearn")
    fabric, placed = one_switch(4), block(8, 2)
    machine = dataclasses.replace(
        real_machine(openmpi_words(cluster), Repeats(1, 4)), timeout_s=120.0
    )
    settings = Settings(ranks=8, slots=2, phases=80, budget_s=15.0)
    told = DatasetHeader("cluster", network_id(fabric), (0, 1, 2, 3), cluster.hosts, settings)
    data = measure_dataset(tmp_path / "phases", told, fabric, machine)
    rank = np.arange(8)
    mate, next_, after = rank ^ 1, (rank + 2) % 8, (rank + 4) % 8
    size = 200_000
    half = traffic(8, np.tile(rank, 2), np.concatenate([mate, next_]), size)
    all_ = traffic(8, np.tile(rank, 2), np.concatenate([after, next_]), size)
    hosts = tuple(host for host in cluster.hosts for _ in range(2))
    found = measure(Job(hosts, {0: half, 1: all_}, Repeats(1, 8)), machine, tmp_path / "asked")
    assert found[1] / found[0] == pytest.approx(2, rel=0.2)
    network = network_of(data.probes, "cluster")
    simple = dataclasses.replace(hockney_of(data.probes, network), gamma=0.0)
    assert seconds_of(simple, half, placed, fabric) == seconds_of(simple, all_, placed, fabric)
    fit = Fit(trees=60, rate=0.1, depth=4, leaf=3)
    model = train(data, fabric, "cluster", network_id(fabric), way=B, settings=fit)
    said = model.predict([row_of((sent, placed), fabric) for sent in (half, all_)])
    assert said.seconds == pytest.approx([found[0], found[1]], rel=0.25)
