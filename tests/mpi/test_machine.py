"""Measuring a machine: kernels, what a machine says of itself, messages, files, the commands."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from commands import cli
from machines import synthetic

from p3s.base.errors import P3SError
from p3s.base.host import cores
from p3s.base.text import size_text
from p3s.machine import machinefile, programs
from p3s.machine.filesystem import measure_files
from p3s.machine.machinefile import CORE_KERNELS, CURVE_KERNELS, MACHINE, Curve, Loaded, Machine
from p3s.machine.measure import Timings, _list_disturbances, _network_s, measure
from p3s.machine.programs import Runner, Runners
from p3s.machine.show import compare_machines, plot, render

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def machine() -> Machine:
    """This machine, measured in the shortest way: three repeats of each point, no network."""
    return measure(quick=True, network=False, budget_s=0.5)


# ---- kernels -------------------------------------------------------------------------------


def test_every_kernel_was_measured_and_repeated(machine: Machine) -> None:
    assert list(machine.core) == list(CORE_KERNELS) and list(machine.curves) == list(CURVE_KERNELS)
    for cost in machine.core.values():
        assert cost.ns > 0 and cost.spread >= 0 and cost.repeats >= 3
    for curve in [*machine.curves.values(), *machine.loaded.curves.values()]:
        assert min(curve.ns) > 0 and min(curve.repeats) >= 3
        assert curve.working_set[0] == 8 * KIB
    last = max(cache.bytes for cache in machine.facts.caches)
    largest = machine.curves["chase"].working_set[-1]
    limit = min(4 * last, machinefile.MOST_BYTES)
    assert largest <= limit < 2 * largest, "sizes are powers of two, caches need not be"
    assert machine.network is None and "--no-network" in machine.network_missing


def test_no_kernel_was_optimised_away(machine: Machine) -> None:
    """An integer addition of a chain takes one clock cycle: what is plausible follows from it."""
    cycle, core = machine.core["int_add"].ns, {k: c.ns for k, c in machine.core.items()}
    assert 0.1 < cycle < 5, "no processor has 10 GHz or 0.2"
    assert core["fp_add"] > 1.5 * cycle, "floating point additions wait for each other"
    assert core["divide"] > 3 * cycle
    assert core["branch"] > 2 * cycle, "random branches are not foreseen"
    assert 0.02 * cycle < core["multiply_add"] < core["fp_add"]
    chase = machine.curves["chase"]
    assert chase.ns[0] > 2 * cycle, "a load that waits for a load takes some cycles in any cache"
    assert chase.ns[-1] > 3 * chase.ns[0], "the largest working set is in no cache"
    for name in ("read", "triad", "strided", "gather"):
        curve = machine.curves[name]
        assert 0.05 * cycle < curve.ns[0] < chase.ns[0], name
        assert curve.ns[-1] < chase.ns[-1]


def test_working_sets_go_to_four_times_the_last_cache() -> None:
    caches = [machinefile.Cache(1, 32 * KIB), machinefile.Cache(3, 32 * MIB)]
    sizes = machinefile.working_sets(caches, 64 * GIB, quick=False)
    assert sizes[:4] == [8 * KIB, 12 * KIB, 16 * KIB, 24 * KIB] and sizes[-1] == 128 * MIB
    assert machinefile.working_sets(caches, 64 * GIB, quick=True)[1:3] == [16 * KIB, 32 * KIB]
    assert machinefile.working_sets(caches, 64 * MIB, quick=False)[-1] == 16 * MIB, (
        "capped by memory"
    )
    assert machinefile.working_sets([], 64 * GIB, quick=True)[-1] == 128 * MIB
    assert (
        machinefile.working_sets([machinefile.Cache(3, 4 * GIB)], 1 << 50, quick=True)[-1]
        == 2 * GIB
    )


def _program(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_wrong_result_is_an_error_not_a_time(tmp_path: Path) -> None:
    program = _program(tmp_path, 'echo ready 1; read line; echo "wrong chase"')
    with Runners(program, [0], 4096) as runners, pytest.raises(P3SError, match="chase computed"):
        runners.run("chase", 4096, 1000)


def test_a_program_that_ends_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="exit code 7"):
        Runner(_program(tmp_path, "exit 7"), 0, 4096)
    with pytest.raises(P3SError, match="got no 4096 bytes of memory"):
        Runner(_program(tmp_path, "echo no memory; exit 1"), 0, 4096)


# ---- what a machine says of itself ---------------------------------------------------------


def test_lists_of_cores() -> None:
    assert cores.numbers_of("0-3,8") == [0, 1, 2, 3, 8]
    assert cores.numbers_of("5") == [5]
    assert cores.numbers_of("") == cores.numbers_of("x-3") == []


def test_caches_and_cores_come_from_sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu in range(4):
        rows = [
            ("1", "Data", "48K", f"{cpu}"),
            ("1", "Instruction", "32K", f"{cpu}"),
            ("2", "Unified", "2048K", f"{cpu}"),
            ("3", "Unified", "36M", "0-3"),
        ]
        for number, (level, kind, size, shared) in enumerate(rows):
            folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{number}"
            folder.mkdir(parents=True)
            for name, text in (
                ("level", level),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", shared),
                ("coherency_line_size", "64"),
            ):
                (folder / name).write_text(text + "\n")
        topology = tmp_path / f"cpu{cpu}" / "topology"
        topology.mkdir()
        (topology / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    found = machinefile.caches(0, tmp_path)
    assert [(c.level, c.bytes, c.cores) for c in found] == [
        (1, 48 * KIB, 1),
        (2, 2 * MIB, 1),
        (3, 36 * MIB, 4),
    ]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert cores.physical_cores(tmp_path) == [0, 1], "one of two hardware threads per core"


def test_processor_is_named_on_other_architectures(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n")
    assert "cpu part 0xd40" in machinefile.processor(path)
    path.write_text("model name\t: Some CPU\ncpu family\t: 6\n")
    assert machinefile.processor(path) == "Some CPU (cpu family 6)"


# ---- messages ------------------------------------------------------------------------------


def _printed(eager: int = 4096) -> str:
    """What network.c would print on a network of known LogGP parameters."""
    lines = [f"eager {eager}", "unattended 256"]
    for size in [0, *(1 << k for k in range(23))]:
        if size <= eager:
            one_way, send, receive, gap = 200 + 40 + 90 + 0.5 * size, 40, 90, 50 + 0.4 * size
        else:
            one_way, send, receive, gap = 2000 + 60 + 90 + 0.1 * size, 60, -1, 900 + 0.08 * size
        lines.append(
            f"size {size} 100 {one_way} {one_way * 1.1} {send} {send} {receive} {receive} {gap}"
        )
    return "\n".join([*lines, "rank 0 n0 3", "rank 1 n1 5", ""])


def test_loggp_parameters_are_found_per_range() -> None:
    found = programs.parse_network(_printed())
    assert found["hosts"] == ["n0", "n1"] and found["cores"] == [3, 5]
    assert found["eager_bytes"] == 4096 and found["unattended_bytes"] == 256
    eager, rendezvous = programs.ranges(found)
    for part, wanted in (
        (eager, (0, 4096, 200, 40, 90, 50, 0.5, 0.4)),
        (rendezvous, (4097, 1 << 22, 2000, 60, 90, 900 + 0.08 * 8192, 0.1, 0.08)),
    ):
        keys = (
            "from_bytes",
            "to_bytes",
            "L_ns",
            "o_send_ns",
            "o_receive_ns",
            "g_ns",
            "G_ns_per_byte",
            "stream_G_ns_per_byte",
        )
        assert [part[key] for key in keys] == pytest.approx(wanted, rel=1e-6)
        assert part["misfit"] < 1e-9


def test_one_range_alone_and_a_wavy_network() -> None:
    everything = programs.ranges(programs.parse_network(_printed(eager=1 << 22)))
    assert [part["kind"] for part in everything] == ["eager"]
    never = programs.ranges(programs.parse_network(_printed(eager=-1)))
    assert [part["kind"] for part in never] == ["rendezvous"] and never[0]["o_receive_ns"] == 0
    found = programs.parse_network(_printed())
    found["sizes"]["one_way_ns"][5] *= 3
    assert programs.ranges(found)[0]["misfit"] > 0.3
    assert min(programs.ranges(found)[0][key] for key in ("L_ns", "G_ns_per_byte")) >= 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rank 0 a 1",
        _printed().replace("rank 1 n1 5", ""),
        _printed().replace("eager 4096", "eager many"),
    ],
)
def test_output_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(P3SError):
        programs.parse_network(text)


# ---- files ---------------------------------------------------------------------------------


def test_a_file_keeps_everything(tmp_path: Path) -> None:
    found = programs.parse_network(_printed())
    whole = synthetic()
    whole = Machine(
        **{
            **vars(whole),
            "network": {**found, "ranges": programs.ranges(found)},
            "loaded": Loaded(4, {"read": whole.curves["read"]}),
            "disturbed": ("a cat",),
        }
    )
    whole.save(tmp_path / "machine.json")
    again = Machine.load(tmp_path / "machine.json")
    assert MACHINE.data(again) == MACHINE.data(whole)
    assert again.curves["chase"].at(8 * KIB) == pytest.approx(whole.curves["chase"].ns[0])


def test_another_version_or_thing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    for change in ({"schema_version": 2}, {"schema": "p3s.model"}):
        path.write_text(json.dumps({**MACHINE.data(synthetic()), **change}))
        assert cli(f"machine show {path}", code=1).err.count("\n") == 1
    data = {key: value for key, value in MACHINE.data(synthetic()).items() if key != "core"}
    path.write_text(json.dumps(data))
    said = cli(f"machine show {path}", code=1, err=("damaged", "measure that machine again"))
    assert said.out == "" and said.err.count("\n") == 1
    path.write_text("{")
    cli(f"machine compare {path} {path}", code=1, err="damaged")
    cli(f"machine show {tmp_path / 'none.json'}", code=1)


def test_costs_between_points_lie_between_them() -> None:
    curve = Curve((1000, 4000), (1.0, 4.0), (0.0, 0.2), (3, 3))
    assert curve.at(2000) == pytest.approx(2.0) and curve.spread_at(2000) == pytest.approx(0.1)
    assert curve.at(1) == 1.0 and curve.at(1e9) == 4.0


# ---- show and compare ----------------------------------------------------------------------


def test_show_has_table_plot_and_caches() -> None:
    text = render(synthetic())
    for word in (
        "divide",
        "32 MiB",
        "chase, ns",
        "caches: L1 32 KiB, L2 1 MiB, L3 32 MiB",
        "network: not measured: synthetic",
    ):
        assert word in text
    lines = plot(synthetic().curves).split("\n")
    assert all(len(line) <= 80 for line in lines)
    # The chase rises from the left to the right.
    rows = [line for line in lines if "|" in line and "c" in line.partition("|")[2]]
    assert rows[0].rindex("c") > rows[-1].rindex("c")
    assert (size_text(512), size_text(12 * KIB), size_text(1 << 31)) == ("512 B", "12 KiB", "2 GiB")


def test_compare_gives_ratios_with_intervals() -> None:
    slow = synthetic(ghz=1.5, memory=2.0, name="slow", spread=0.1)
    result = compare_machines(synthetic(), slow)
    for ratio in result["core"].values():
        assert ratio["ratio"] == pytest.approx(2.0)
        assert ratio["low"] == pytest.approx(2.0 / 1.005) and ratio["high"] == pytest.approx(2.2)
    for curve in result["curves"].values():
        assert curve["ratio"] == pytest.approx([2.0] * len(curve["ratio"]))
    assert result["notes"] == []
    arm = synthetic(architecture="aarch64", name="arm")
    assert "other instruction sets" in compare_machines(synthetic(), arm)["notes"][0]


def test_compare_command(tmp_path: Path) -> None:
    synthetic().save(tmp_path / "a.json")
    synthetic(ghz=1.0, name="other").save(tmp_path / "b.json")
    names = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    cli("machine compare", *names, out=("other over synthetic", "int_add"))
    assert cli("machine compare", *names, "--json").data["schema"] == "p3s.machine_comparison"


def test_what_disturbed_is_said() -> None:
    def timed(ratios: list[float], spread: float = 0.0, **more: object) -> Timings:
        ns = {("read", 4096): [1.0, 1.0 + spread, 1.0 + spread]} if ratios else {}
        return Timings(ns, ratios, **more)  # type: ignore[arg-type]

    none = timed([])
    assert _list_disturbances(timed([1.0] * 10), none) == []
    said = _list_disturbances(timed([1.0] * 8 + [2.0] * 2, pinned=False), timed([1.5] * 4, late=2))
    assert len(said) == 4 and "2 of 10 timings" in said[0]
    assert "up to 30 % for read" in _list_disturbances(timed([1.0], 0.3), none)[0]
    assert "read on all cores" in _list_disturbances(none, timed([1.0], 0.3))[0]


# ---- the command ---------------------------------------------------------------------------


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure three working sets in a short time."""
    monkeypatch.setattr("p3s.machine.measure.QUICK_S", 0.5)
    monkeypatch.setattr(
        "p3s.machine.measure.working_sets", lambda *_: [8 * KIB, 256 * KIB, 8 * MIB]
    )


@pytest.mark.usefixtures("few_points")
def test_measure_with_messages(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "machine.json"
    mpiexec = os.environ.get("P3S_TEST_MPIEXEC")
    extra = ["--launcher", f"{mpiexec} --oversubscribe -n {{np}}"] if mpiexec else []
    printed = cli(f"machine measure --quick -o {path} --json", *extra).data
    written = json.loads(path.read_text())
    assert {**written, **printed} == written and written.keys() - printed.keys() <= {"digest"}
    found = Machine.load(path).network
    assert found is not None
    sizes = found["sizes"]
    assert sizes["bytes"][:3] == [0, 1, 2] and sizes["bytes"][-1] == 4 * MIB
    assert min(sizes["one_way_ns"]) > 0 and min(sizes["send_ns"]) > 0
    assert found["ranges"][0]["G_ns_per_byte"] >= 0 and len(found["hosts"]) == 2
    assert found["eager_bytes"] >= 0 and found["unattended_bytes"] >= 0
    for where in ("near", "far"):
        assert [row[0] for row in found["pack"][where]] == [8, 64, 512, 4096]
        assert min(ns for row in found["pack"][where] for ns in row) > 0
    cli(f"machine show {path}", out="rendezvous")


@pytest.mark.usefixtures("few_points")
def test_without_mpi_the_computation_is_still_measured(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    args = ["machine", "measure", "--quick", "-o", str(path), "--launcher", "nompiexec -n {np}"]
    said = cli(*args, code=3)
    assert "computation was measured, the network was not: nompiexec" in said.err
    assert Machine.load(path).network is None and "chase" in said.out


def test_without_a_compiler_nothing_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    path = tmp_path / "m.json"
    cli(f"machine measure -o {path}", code=1, err="no C compiler (cc)")
    assert not path.exists()


@pytest.mark.parametrize("name", ["measure", "show", "compare"])
def test_help_ends_with_an_example_and_the_next_step(name: str) -> None:
    text = cli("machine", name, "--help").out
    last = text[text.index("Example:") :]
    assert f"p3s machine {name}" in last and "Next:" in last and "--json" in text


@pytest.mark.parametrize("nbytes", [1, 4096, (1 << 20) - 1])
def test_files_below_a_mebibyte_are_timed_with_one_call(nbytes: int, tmp_path: Path) -> None:
    rates = measure_files(tmp_path, None, [2], nbytes, 1).rates
    ways = {(rate.way, rate.what) for rate in rates}
    assert {("posix", "write"), ("posix", "read"), ("mpi", "write"), ("stdio", "write")} <= ways
    assert all(rate.call_s + rate.byte_s > 0 for rate in rates if rate.what == "write")
    assert not list(tmp_path.glob("p3s-files*"))


def test_files_without_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(P3SError, match="0 bytes of each process; 1 and more"):
        measure_files(tmp_path, None, [2], 0, 1)


def test_messages_get_what_is_left_of_the_time() -> None:
    usual = _network_s(20.0, 11.0)
    assert 0 < usual < 20.0 - 11.0
    assert _network_s(20.0, 0.0) == usual, "no more than their share"
    assert 0 < _network_s(20.0, 15.0) < usual and _network_s(20.0, 15.0) < 20.0 - 15.0
    assert 0 < _network_s(20.0, 300.0) < usual, "the others took longer: not nothing"
