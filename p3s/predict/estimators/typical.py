"""The dependency simulation on the published costs of a typical cluster; needs no measurement."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.predict.estimated import TYPICAL, Communication
from p3s.predict.estimators.machine import estimated, library_for
from p3s.predict.estimators.messages import Messages
from p3s.predict.estimators.settings import Setting
from p3s.simulate.network import cluster_distances, network_from_cluster

if TYPE_CHECKING:
    from p3s.base.study import Study


def communication(
    study: Study, n: int, machine: Path | None, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes; see estimators.estimate.

    Ranks are dealt to nodes in blocks of the cluster's cores, nodes to switches in a row; the
    ends of the interval are the faster and the slower end of all published figures together.
    """
    return estimated(published_messages(study, setting), study, n, setting, say)


def published_messages(study: Study, setting: Setting) -> Messages:
    """Return what messages cost on the typical cluster that a setting names."""
    from p3s.machine.cluster import cluster_of

    cluster = cluster_of(setting.network)
    return Messages(
        TYPICAL,
        cluster.name,
        library_for(study, None, setting),
        cluster.cores_per_node,
        lambda nodes, among=None: (
            network_from_cluster(cluster, nodes, among=among),
            network_from_cluster(cluster, nodes, "low", among),
            network_from_cluster(cluster, nodes, "high", among),
        ),
        said=lambda network: [
            f"message costs: {network.source}, {cluster.cores_per_node} cores per node, from "
            "published figures"
        ],
        of_runs=(
            "computation is that of the traced machine; its run times are not compared, because "
            "its network is another one",
        ),
        distance=lambda nodes, among=None: cluster_distances(cluster, nodes, among),
        levels=True,
        queues=True,
    )
