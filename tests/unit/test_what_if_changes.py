"""Reading changes such as latency/2, and costs of messages with them."""

from __future__ import annotations

import math

import pytest

from p3s.base.errors import UsageError
from p3s.pipeline.predicting import what_ifs_of
from p3s.predict.what_if.altered import altered_network, scaled
from p3s.predict.what_if.changes import Change, Changes, check_phases, read_changes
from p3s.program.collectives.choose import Rule
from p3s.simulate.network import Network, rough_network
from p3s.simulate.switch_links import Trunks


@pytest.mark.parametrize(
    ("text", "parts", "canonical"),
    [
        ("latency/2", [Change("latency", 0.5)], "latency / 2"),
        ("Bandwidth *2", [Change("bandwidth", 2.0)], "bandwidth * 2"),
        ("software*0", [Change("software", 0.0)], "software * 0"),
        ("phase 3 * 0.7", [Change("phase", 0.7, 3)], "phase 3 * 0.7"),
        ("phase -1/3", [Change("phase", 1 / 3, -1)], "phase start / 3"),
        ("Phase END*0.5", [Change("phase", 0.5, -2)], "phase end / 2"),
        ("balanced phase end", [Change("balanced", phase=-2)], "balanced phase end"),
        ("compute/1.6", [Change("compute", 0.625)], "compute * 0.625"),
        ("balanced", [Change("balanced")], "balanced"),
        ("Balanced phase 2", [Change("balanced", phase=2)], "balanced phase 2"),
        ("allreduce=RING", [Change("allreduce", Rule("allreduce", "ring"))], "allreduce=ring"),
        (
            "MPI_Bcast=pipeline:65536",
            [Change("bcast", Rule("bcast", "pipeline", 65536))],
            "bcast=pipeline:65536",
        ),
        ("network = ideal", [Change("network", "ideal")], "network=ideal"),
        ("network=Dir/My.json", [Change("network", "Dir/My.json")], "network=Dir/My.json"),
        ("placement=cyclic", [Change("placement", "cyclic")], "placement=cyclic"),
        (
            "latency/2, phase 0*0.5,balanced",
            [Change("latency", 0.5), Change("phase", 0.5, 0), Change("balanced")],
            "latency / 2, phase 0 / 2, balanced",
        ),
    ],
)
def test_what_is_read(text: str, parts: list[object], canonical: str) -> None:
    """What is written again is read as the same."""
    found = read_changes(text)
    assert list(found.parts) == parts
    assert found.text == canonical
    assert read_changes(canonical).text == canonical


def test_a_phase_that_there_is_not() -> None:
    check_phases([read_changes("phase 2/2, latency/2")], [0, 2])
    with pytest.raises(UsageError, match="no phase 3; there are start, 0, 2"):
        check_phases([read_changes("phase 3/2")], [0, 2, -1])


def test_the_table_is_asked_for_or_not() -> None:
    assert what_ifs_of([]).table is None and not what_ifs_of([]).asked
    assert what_ifs_of(["none"]).table is False
    found = what_ifs_of(["table", "latency/2", "latency * 0.5"])
    assert found.table is True and [each.text for each in found.asked] == ["latency / 2"]
    with pytest.raises(UsageError, match="leave the others out"):
        what_ifs_of(["none", "latency/2"])


def made(network: Network, text: str) -> Network:
    change = altered_network(read_changes(text))
    assert change is not None
    return change(network)


def test_latency_and_bandwidth_of_a_network() -> None:
    """A message takes latency + bytes / rate: half of the one, or of the other."""
    network = rough_network(latency_ns=2000.0, rate=10.0, inside_latency_ns=500.0)
    half = scaled(network, latency=0.5).path(1).transfer.at([0, 1000])
    assert half.tolist() == [1000.0, 1100.0]
    fast = scaled(network, bandwidth=2.0)
    assert fast.path(1).transfer.at([0, 1000]).tolist() == [2000.0, 2050.0]
    assert fast.rate == 20.0
    both = made(network, "latency*0, bandwidth*2")
    assert both.path(1).transfer.at([0, 1000]).tolist() == [0.0, 50.0]
    for changed in (fast, both):
        assert changed.path(0) == network.path(0)  # messages inside of a node stay as they are
    longer = scaled(network, latency=3.0).path(1).transfer.at([0, 1000])
    assert longer.tolist() == [6000.0, 6100.0]


def test_software_and_an_ideal_network() -> None:
    network = rough_network(overhead_ns=200.0)
    found = made(network, "software/4")
    for path in found.paths.values():
        assert (path.send.at(0), path.receive.at(1e6)) == (50.0, 50.0)
    assert found.post == network.post / 4
    free = made(network, "network=ideal")
    assert free.rate == math.inf and free.post == 0 and free.trunks is None
    for path in free.paths.values():
        assert not path.transfer.at([0, 1e9]).any() and not path.send.at([0, 1e9]).any()
    assert altered_network(read_changes("balanced, network=my")) is None


def test_links_between_switches_are_faster_too() -> None:
    trunks = Trunks((0, 1), (-1, -1), (5.0, math.inf), (0.0, 0.0))
    network = Network(rough_network().paths, rate=10.0, trunks=trunks)
    faster = scaled(network, bandwidth=4.0)
    assert faster.trunks is not None and faster.trunks.rate == (20.0, math.inf)


def test_changes_of_a_kind() -> None:
    found = Changes(
        "", (Change("balanced", phase=1), Change("phase", 0.5, 2), Change("latency", 0.5))
    )
    assert found.of("balanced") == [Change("balanced", phase=1)] and found.phases == {1, 2}
