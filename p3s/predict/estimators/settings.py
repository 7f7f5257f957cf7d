"""What an estimator may be told beyond the study, the count and the machine file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Setting:
    """Cluster and MPI library of the full run; the defaults are those of ``p3s predict``.

    ``library``: family and version whose collective algorithms are taken ("openmpi 4.1"), default:
    that of the traced runs. ``collectives``: algorithms instead of the library's, as in
    ``p3s replay --collectives``. ``ranks_per_node``: default the cores of the measured machine.
    ``mapping``, ``rank_file``: how ranks are dealt to nodes; ``topology``: file or short
    description of the network between nodes (p3s.topology). ``vary``: computation varies as in the
    traced runs. ``network``: name of a typical cluster, or a file (p3s.machine.cluster), that the
    estimator ``typical`` takes.
    """

    library: str = ""
    collectives: str = ""
    ranks_per_node: int | None = None
    mapping: str = "block"
    rank_file: Path | None = None
    topology: str = ""
    vary: bool = True
    network: str = ""
