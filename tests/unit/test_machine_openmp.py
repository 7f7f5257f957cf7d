"""What teams of OpenMP threads cost: interpolation, files, text, places of threads, clocks."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from commands import cli
from machines import synthetic
from openmp_made import openmp, overhead_ns

from p3s.base.artefacts import write_json
from p3s.base.errors import P3SError, UsageError
from p3s.base.host import cores
from p3s.machine import threads as clock
from p3s.machine.machinefile import Machine
from p3s.machine.show import compare_machines, render, render_ratios
from p3s.machine.threads import counts, openmp_program, teams

NS = 1e-9


def test_overheads_between_points_lie_between_them() -> None:
    found = openmp()
    for threads in (1, 2, 4):
        for iterations in (1, 8, 64):
            wanted = overhead_ns(threads, iterations) * NS
            assert found.overhead("dynamic", threads, iterations) == pytest.approx(wanted)
    low, high = found.overhead("static", 2, 8), found.overhead("static", 2, 64)
    assert low < found.overhead("static", 2, 20) < high
    assert found.overhead("static", 2, 20) == pytest.approx(overhead_ns(2, 20) * NS)
    assert found.overhead("barrier", 3) == pytest.approx(overhead_ns(3, 1) * NS)
    assert found.overhead("static", 2, 0.5) == found.overhead("static", 2, 1)


def test_beyond_the_points_the_last_slope_goes_on() -> None:
    found = openmp()
    assert found.overhead("static", 2, 1000) == pytest.approx(overhead_ns(2, 1000) * NS)
    assert found.fork_join(8) == pytest.approx(overhead_ns(8, 1) * NS)
    assert found.oversubscribed(5) and not found.oversubscribed(4)
    with pytest.raises(UsageError, match="taskloop: no construct"):
        found.overhead("taskloop", 2)


def test_bandwidth_and_latencies() -> None:
    found = openmp()
    assert found.bandwidth(2) == 1.8e10 and found.bandwidth(2, far=True) == 2e10
    assert found.bandwidth(3) == pytest.approx(1.9e10) and found.bandwidth(64) == 2e10
    assert openmp(far=False).bandwidth(4, far=True) == 2e10
    assert found.memory_s == pytest.approx(80e-9)
    # 32,768 lines are 2 MiB: between 4 ns at 1 MiB and 80 ns at 128 MiB.
    assert found.walk_s == pytest.approx(150e-9 - found.line.at(2 << 20) * NS)
    assert found.tlb_s == pytest.approx(found.memory_s + found.walk_s)


# ---- files and text --------------------------------------------------------------------------


def test_a_machine_file_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    replace(synthetic(), openmp=openmp()).save(path)
    assert Machine.load(path).openmp == openmp()
    synthetic().save(path)
    assert Machine.load(path).openmp is None
    data = json.loads(path.read_text())
    del data["openmp"]
    write_json(path, data)
    assert Machine.load(path).openmp is None, "files from before have no such part"


def test_show_marks_what_shares_cores() -> None:
    made = replace(openmp(), hardware_threads=2)
    text = render(replace(synthetic(), openmp=made))
    for word in (
        "OMP_WAIT_POLICY=passive",
        "4 *",
        "* 4 threads share",
        "triad, threads far",
        "GHz",
    ):
        assert word in text
    unknown = replace(made, clock=replace(made.clock, hz=(), why="nobody says"))
    assert "clock not known: nobody says" in render(replace(synthetic(), openmp=unknown))


def test_compare_has_ratios_by_threads() -> None:
    one = replace(synthetic(), openmp=openmp())
    other = replace(synthetic(name="b"), openmp=openmp(slow=2.0))
    found = compare_machines(one, other)
    for name in ("parallel", "dynamic, 64 a thread"):
        assert found["openmp"][name]["ratio"] == pytest.approx([2.0, 2.0, 2.0])
    assert found["openmp"]["triad"]["ratio"] == [1.0, 1.0, 1.0]
    assert "dynamic, 64 a thread" in render_ratios(found)
    assert compare_machines(one, synthetic())["openmp"] is None


# ---- teams -----------------------------------------------------------------------------------


def test_numbers_of_threads() -> None:
    assert counts(1, 1, False) == [1] and counts(1, 1, True) == [1, 2]
    assert counts(6, 6, False) == [1, 2, 4, 6]
    assert counts(6, 12, False) == [1, 2, 4, 6, 12]
    assert counts(6, 6, True) == [1, 2, 4, 6, 8, 12]
    assert counts(64, 64, False)[-2:] == [32, 64]


def sysfs(root: Path, packages: int, cores: int, smt: int) -> None:
    """Write a node: sockets of cores with pairs sharing an L2, SMT siblings numbered last."""
    every = packages * cores
    for cpu in range(every * smt):
        core = cpu % every
        package, pair = core // cores, core // 2 * 2
        folder = root / f"cpu{cpu}"
        siblings = ",".join(str(core + every * k) for k in range(smt))
        shared = ",".join(str(c + every * k) for c in (pair, pair + 1) for k in range(smt))
        last = ",".join(
            str(package * cores + c + every * k) for c in range(cores) for k in range(smt)
        )
        for name, text in (
            ("topology/physical_package_id", str(package)),
            ("topology/thread_siblings_list", siblings),
            ("cache/index2/level", "2"),
            ("cache/index2/type", "Unified"),
            ("cache/index2/shared_cpu_list", shared),
            ("cache/index3/level", "3"),
            ("cache/index3/type", "Unified"),
            ("cache/index3/shared_cpu_list", last),
            (f"node{package}/cpulist", last),
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text + "\n")


def test_places_close_and_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, packages=2, cores=4, smt=2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    found = cores.hardware_threads(tmp_path)
    assert cores.domains(found) == 2
    assert cores.close(found) == [*range(8), *range(8, 16)]
    assert cores.spread_threads(found)[:8] == [0, 4, 2, 6, 1, 5, 3, 7], (
        "sockets, then caches, then cores"
    )
    assert sorted(cores.spread_threads(found)[8:]) == list(range(8, 16)), (
        "second threads of cores last"
    )
    made = teams(found, 8, 16, False)
    assert [(t.threads, t.far) for t in made][:3] == [(1, False), (2, False), (2, True)]
    assert [t.threads for t in made if t.far] == [2, 4], "with 1 or 8 it is on the same cores"
    assert made[2].cpus == (0, 4)
    assert made[2].environment()["OMP_PLACES"] == "{0},{4}"
    assert [t.threads for t in made if not t.far] == [1, 2, 4, 8, 16]


def test_a_node_with_one_order_only_has_no_far_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    found = cores.hardware_threads(tmp_path)
    assert cores.close(found) == cores.spread_threads(found) == [3], "sysfs may tell nothing"
    made = teams(found, 1, 1, True)
    assert [(t.threads, t.cpus) for t in made] == [(1, (3,)), (2, ())]
    assert made[1].environment()["OMP_PROC_BIND"] == "false"


def test_a_quota_limits_teams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, packages=1, cores=8, smt=1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert {t.threads for t in teams(cores.hardware_threads(tmp_path), 8, 3, False)} == {1, 2, 3}


def test_clocks_of_cpufreq_and_cpuinfo(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\ncpu MHz : 2000.5\nprocessor : 1\ncpu MHz : 3000.0\n")
    assert clock.source(tmp_path, info) == "cpuinfo"
    assert clock.told_hz((1,), tmp_path, info) == 3e9
    assert clock.told_hz((), tmp_path, info) == pytest.approx(2500.25e6)
    info.write_text(info.read_text() + "flags : fpu hypervisor lahf\n")
    assert clock.told_hz((1,), tmp_path, info) is None
    assert "virtual machine" in clock.why_unknown(tmp_path, info)
    for cpu in (0, 1):
        folder = tmp_path / f"cpu{cpu}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{(cpu + 2) * 1000000}\n")
    assert clock.source(tmp_path, info) == "cpufreq"
    assert clock.told_hz((0, 1), tmp_path, info) == 2.5e9
    assert clock.told_hz((7,), tmp_path, info) is None


def test_a_compiler_without_openmp_is_one_line(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'cc: error: unrecognized option -fopenmp' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(P3SError, match="compiles no OpenMP .*unrecognized.*libomp"):
        openmp_program(str(compiler))


def test_oversubscribe_needs_openmp() -> None:
    cli("machine measure --oversubscribe", code=2, err="only with --openmp")
