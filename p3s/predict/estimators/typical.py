"""The dependency simulation on the published costs of a typical cluster; needs no measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from p3s.predict.estimated import TYPICAL, Communication
from p3s.predict.estimators.machine import joined_by, library_for, prepare, told
from p3s.predict.estimators.settings import Setting
from p3s.simulate.network import cluster_distances, network_from_cluster
from p3s.text import processes

if TYPE_CHECKING:
    from p3s.study import Study


def communication(
    study: Study, n: int, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes; see estimators.estimate.

    Ranks are dealt to nodes in blocks of the cluster's cores, nodes to switches in a row; the
    ends of the interval are the faster and the slower end of all published figures together.
    """
    from p3s.machine.cluster import cluster_of

    cluster = cluster_of(setting.network)
    library = library_for(study, None, setting)
    say(f"{processes(n)}: reading the scaled trace")
    ready = prepare(study, n, library, setting, cluster.cores_per_node, queues=True)
    nodes = int(ready.node_of.max()) + 1
    if ready.distance is None and nodes > 1:
        ready = replace(ready, distance=cluster_distances(cluster, nodes))
    usual, fast, slow = (
        network_from_cluster(cluster, nodes, end) for end in ("typical", "low", "high")
    )
    (usual, fast, slow), links = joined_by((usual, fast, slow), ready, ())
    said = [
        f"costs of messages: {usual.source}, {cluster.cores_per_node} cores a node, from "
        "published figures",
        f"collectives as in {library}",
        "computation is that of the machine of the runs; their run times, on another network, "
        "are not compared",
        *(links if ready.wired is not None else ()),
    ]
    return told(TYPICAL, study, ready, (usual, fast, slow), setting, said, say)
