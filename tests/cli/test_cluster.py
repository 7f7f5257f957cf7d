"""Files of typical clusters, and the simulation with what they say of messages."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from capture_writer import put_run_json
from commands import cli
from replay_patterns import PATTERNS
from test_estimators import Trace, one_message, put_spread, study_of

from p3s.base.errors import DamagedFile, UsageError
from p3s.base.schemas import load_schema
from p3s.base.settings import traces_of
from p3s.base.study import write_json
from p3s.machine.cluster import DEFAULT, ENDS, Cluster, cluster_of, names, typical
from p3s.predict.estimated import SOFTWARE, TYPICAL, WAITING
from p3s.predict.estimators import Setting, available, estimate, estimate_many
from p3s.simulate.network import cluster_distances, network_from_cluster
from p3s.simulate.switch_links import tree

#: Figures of a file, each of which needs a source.
FIGURES = {
    "cores_per_node",
    "levels",
    "between.one_way_ns",
    "between.call_ns",
    "between.eager_bytes",
    "inside.one_way_ns",
    "inside.call_ns",
    "inside.eager_bytes",
    "link_ns_per_byte",
    "post_ns",
    "background",
}


@pytest.mark.parametrize("name", names())
def test_a_file_is_as_published_and_its_figures_have_sources(name: str) -> None:
    cluster = typical(name)
    jsonschema.validate(cluster.data, dict(load_schema("cluster-1")))
    assert cluster.name == name and cluster.typical
    assert cluster.about() == {"name": name, "label": cluster.label, "source": "typical"}
    sources = cluster.data["sources"]
    told = {figure for source in sources for figure in source["figures"]}
    assert told - {"between.message_gap_ns"} == FIGURES
    assert ("between.message_gap_ns" in told) == any(cluster.between.gap.values())
    for source in sources:
        published = source["how"] in ("measured", "datasheet")
        assert not published or source["url"].startswith("https://"), source["what"]
    measured = [s for s in sources if s["how"] == "measured" and "one_way" in s["figures"][0]]
    assert measured, "at least some times are published"


@pytest.mark.parametrize("name", names())
def test_times_grow_with_bytes_and_distance_and_ends_enclose(name: str) -> None:
    cluster = typical(name)
    for messages in (cluster.between, cluster.inside):
        for end in ENDS:
            times = messages.one_way[end]
            assert times[0] > 0 and all(a <= b for a, b in zip(times, times[1:], strict=False))
            call = np.interp(messages.nbytes, messages.call["bytes"], messages.call[end])
            assert (call < times).all(), "a call is no longer than the message"
    usual, fast, slow = (network_from_cluster(cluster, 5000, end) for end in ENDS)
    assert slow.rate <= usual.rate <= fast.rate
    large = 4 << 20
    for network in (usual, fast, slow):
        at = [network.paths[d].transfer.at([8, large]) for d in sorted(network.paths)]
        assert all((a <= b).all() for a, b in zip(at[1:], at[2:], strict=False))
        assert at[0][0] < at[1][0], "shorter inside of a node"
        assert large / network.rate <= 1.05 * at[1][1], "not faster than the link"
        assert [network.paths[d].linked for d in sorted(network.paths)] == [
            d > 0 for d in sorted(network.paths)
        ]
    for distance, path in usual.paths.items():
        assert (fast.paths[distance].transfer.at([0, large]) <= path.transfer.at([0, large])).all()
        assert (path.transfer.at([0, large]) <= slow.paths[distance].transfer.at([0, large])).all()


def test_the_usual_one_is_there_and_others_are_named(tmp_path: Path) -> None:
    assert DEFAULT in names() and cluster_of("").name == DEFAULT
    kinds = " ".join(typical(name).label for name in names())
    assert "fat tree" in kinds and "dragonfly" in kinds and "Ethernet" in kinds
    with pytest.raises(UsageError, match="neither a file nor one of ethernet-100g"):
        cluster_of("token-ring")
    own = {**typical("slingshot").data, "name": "ours"}
    write_json(tmp_path / "ours.json", own)
    found = cluster_of(str(tmp_path / "ours.json"))
    assert found.about()["source"] == "file" and found.between == typical("slingshot").between


def _set(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    here = changed
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("link_ns_per_byte",), 3, "link_ns_per_byte is 3, not object"),
        (("link_ns_per_byte", "typical"), 99, "typical is not between low and high"),
        (("link_ns_per_byte",), {"low": 0, "typical": 0, "high": 0}, "link_ns_per_byte is 0"),
        (("between", "bytes", 3), 1e9, "bytes do not ascend"),
        (("between", "bytes"), [1, 2], "has not 2 values"),
        (("between", "one_way_ns", "typical", 2), 1.0, "not between low and high"),
        (("inside", "call_ns", "low"), [], "has 0 entries"),
        (("levels", 0, "nodes"), None, "the last one, and no other"),
        (("levels", 1, "nodes"), 17, "not made of whole smaller ones"),
        (("levels", 0, "switches"), 4, "switches do not ascend"),
        (("levels", 1, "uplink_share", "high"), 0, "nothing leaves a group"),
        (("levels", 1, "uplink_share", "typical"), 2, "typical is not between"),
        (("background", "low"), "yes", "not boolean"),
        (("sources", 0, "how"), "guessed", "not one of"),
        (("cores",), 3, None),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(path: Any, value: Any, says: str | None) -> None:
    data = _set(dict(typical("slingshot").data), path, value)
    if says is None:  # keys may be added within a version
        assert Cluster.of(data, "x.json").name == "slingshot"
        return
    with pytest.raises(DamagedFile, match=says) as caught:
        Cluster.of(data, "x.json")
    assert str(caught.value).startswith("x.json: ") and "\n" not in str(caught.value)


def test_equal_times_on_the_way_down_are_refused() -> None:
    data = dict(typical("slingshot").data)
    for end in ENDS:
        data = _set(data, ("inside", "one_way_ns", end, -1), data["inside"]["one_way_ns"][end][0])
    with pytest.raises(DamagedFile, match="a larger message takes less time"):
        Cluster.of(data, "x.json")


def test_distances_are_those_of_the_groups() -> None:
    distance = cluster_distances(typical("slingshot"), 600)
    assert distance[0].tolist()[:17] == [0] + [1] * 15 + [2]
    assert distance[3, 255] == 2 and distance[3, 256] == 4 and distance[599, 598] == 1
    assert (distance == distance.T).all() and not distance.diagonal().any()


def test_links_above_groups_carry_what_their_nodes_may_send() -> None:
    found = tree([2, 4], [10.0, 5.0], 7, 10.0)
    assert found is not None
    assert found.switch_of == (0, 0, 1, 1, 2, 2, 3)
    assert found.up == (4, 4, 5, 5, -1, -1)
    assert found.rate == (math.inf,) * 4 + (20.0, 15.0)
    assert tree([2, 4], [10.0, 10.0], 7, 10.0) is None
    assert tree([8], [1.0], 7, 10.0) is None, "all below one switch"


def test_a_message_costs_what_is_published(tmp_path: Path) -> None:
    """By hand: computes 3,000 ns, sends 4 KiB; ten times. Nobody waits for the receiver."""
    study = study_of(tmp_path / "s", one_message(4096), machine=False)
    assert available(traces_of(study), 2)[TYPICAL] == ""
    cluster = typical(DEFAULT)
    at = cluster.inside.nbytes.index(4096.0)
    for setting, messages in (
        (Setting(), cluster.inside),
        (Setting(ranks_per_node=1), cluster.between),
    ):
        one_way = messages.one_way["typical"][at]
        call = float(np.interp(4096, messages.call["bytes"], messages.call["typical"]))
        found = estimate(TYPICAL, traces_of(study), 2, setting=setting)
        assert found.comm[:, 0] * 1e9 == pytest.approx([10 * call, 10 * 3000 + 9 * call + one_way])
        assert found.why_not == ""
        ends = [messages.one_way[end][at] for end in ("low", "high")]
        assert found.low[1, 0] < found.comm[1, 0] < found.high[1, 0]
        assert (found.high - found.low)[1, 0] * 1e9 == pytest.approx(ends[1] - ends[0], abs=9000)
    assert any(
        "typical InfiniBand HDR fat tree (infiniband-hdr), 120 cores per node" in note
        for note in found.notes
    )


@pytest.mark.parametrize("name", names())
def test_parts_add_up_and_ends_enclose_on_every_cluster(tmp_path: Path, name: str) -> None:
    for kind in ("halo", "ring"):
        trace = PATTERNS[kind](12)
        study = study_of(tmp_path / kind, trace, machine=False)
        found = estimate(
            TYPICAL, traces_of(study), 12, setting=Setting(network=name, ranks_per_node=2)
        )
        assert np.allclose(found.seconds[WAITING : SOFTWARE + 1].sum(axis=0), found.comm)
        assert (found.low <= found.comm + 1e-15).all()
        assert (found.comm <= found.high + 1e-15).all()
        assert found.comm.max() > 0


def test_links_that_leave_a_group_hold_up_many_messages(tmp_path: Path) -> None:
    """By hand: three messages of each of four nodes share a link as fast as that of one node."""
    trace, size = Trace(8, weight=1), 1 << 20
    for rank in [*range(8)] * 3:
        (
            trace.add(rank, "MPI_Send", rank + 4, size)
            if rank < 4
            else trace.add(rank, "MPI_Recv", rank - 4, size)
        )
    data = _set(dict(typical(DEFAULT).data), ("levels", 0, "nodes"), 4)
    study = study_of(tmp_path / "s", trace, machine=False)
    times = []
    for share in (1.0, 0.25):
        share_of = dict.fromkeys(ENDS, share)
        write_json(tmp_path / "c.json", _set(data, ("levels", 0, "uplink_share"), share_of))
        setting = Setting(network=str(tmp_path / "c.json"), ranks_per_node=1)
        times.append(estimate(TYPICAL, traces_of(study), 8, setting=setting).comm.max())
    link, one = typical(DEFAULT).link["typical"] * size, 52_580 + 300
    assert times[0] * 1e9 == pytest.approx(3 * one, rel=0.01)
    assert times[1] * 1e9 == pytest.approx(12 * link + one - link, rel=0.01)


def test_variation_measured_on_shared_cores_is_not_in_the_low_end(tmp_path: Path) -> None:
    trace = Trace(8)
    for rank in range(8):
        trace.add(rank, "MPI_Allreduce", nbytes=8, work=1e6)
    study = study_of(tmp_path / "s", trace, machine=False)
    put_spread(study)
    quiet = estimate(TYPICAL, traces_of(study), 8)
    put_run_json(study.runs_dir(4), 4, status="partial", oversubscribed=True)
    shared = estimate(TYPICAL, traces_of(study), 8)
    even = estimate(TYPICAL, traces_of(study), 8, setting=Setting(vary=False))
    assert shared.comm == pytest.approx(quiet.comm)
    assert shared.low.max() <= even.comm.max() < quiet.low.max()
    assert any("shared cores" in note for note in shared.notes)


def test_several_counts_at_once_are_the_same(tmp_path: Path) -> None:
    study = study_of(tmp_path / "s", PATTERNS["halo"](300), PATTERNS["halo"](280), machine=False)
    setting = Setting(network="ethernet-10g")
    done: list[int] = []
    both = estimate_many(
        TYPICAL, traces_of(study), [300, 280], jobs=2, setting=setting, done=done.append
    )
    assert sorted(done) == [280, 300]
    for n in (300, 280):
        assert np.array_equal(
            both[n].comm, estimate(TYPICAL, traces_of(study), n, setting=setting).comm
        )


def test_they_are_listed_and_shown(tmp_path: Path) -> None:
    lines = cli("machine list").out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(list(names()))]] == list(names())
    assert [line.split()[0] for line in lines if " * " in line[:20]] == [DEFAULT]
    listed = cli("machine list --json").data
    assert listed["default"] == DEFAULT
    assert [each["name"] for each in listed["clusters"]] == list(names())
    for name in names():
        text = cli("machine show", name).out
        for source in typical(name).data["sources"]:
            assert not source["url"] or source["url"] in text
    shown = cli("machine show", DEFAULT, "--json").data
    assert shown == typical(DEFAULT).data
    write_json(tmp_path / "own.json", shown)
    cli(f"machine show {tmp_path / 'own.json'}", out="InfiniBand HDR")
