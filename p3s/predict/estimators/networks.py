"""Which network the times of an estimator are for, as prediction.json names it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.predict.estimated import FROM_REPLAY, TYPICAL
from p3s.predict.estimators.settings import Setting
from p3s.predict.types import Network

if TYPE_CHECKING:
    from p3s.base.study import Study


def network_of(
    study: Study, name: str, counts: Sequence[int], machine: Path | None, setting: Setting | None
) -> Network | None:
    """Return the network behind an estimator.

    Its source: typical (published figures), file (one like it that the user wrote), measured
    (between two hosts, or by a replay), or one machine. None where nothing is known.
    """
    if name == TYPICAL:
        from p3s.machine.cluster import cluster_of

        return Network(**cluster_of((setting or Setting()).network).about())
    if name not in FROM_REPLAY:
        from p3s.machine.machinefile import Machine
        from p3s.predict.estimators.machine import machine_path

        found = Machine.load(machine_path(study, machine))
        hosts = [str(host) for host in (found.network or {}).get("hosts", ())]
        return _of_hosts(found.name, hosts)
    replayed = [n for n in counts if n > 1 and study.replay_path(n).exists()]
    if not replayed:
        return None
    nodes = [str(node) for node in study.replay(max(replayed)).get("nodes", ()) if node]
    return _of_hosts("replay", nodes)


def _of_hosts(name: str, hosts: Sequence[str]) -> Network | None:
    """Return the network between hosts: none where they are one machine."""
    different = list(dict.fromkeys(hosts))
    if not different:
        return None
    source = "measured" if len(different) > 1 else "one machine"
    return Network(name, ", ".join(different), source)
