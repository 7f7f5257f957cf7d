"""What an estimator may be told beyond the study, the count and the machine file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from p3s.program.mapping import RankMap, mapping_of


@dataclass(frozen=True)
class Setting:
    """Cluster and MPI library of the full run; the defaults are those of ``p3s predict``.

    ``library``: family and version whose collective algorithms are taken ("openmpi 4.1"), default:
    that of the traced runs. ``collectives``: algorithms instead of the library's, as in
    ``p3s replay --collectives``. ``ranks_per_node``: default the cores of the measured machine.
    ``mapping``, ``rank_file``: how ranks are dealt to nodes; ``topology``: file or short
    description of the network between nodes (p3s.machine.topology). ``rank_file_n``: the count that
    the rank file is for, others are dealt by ``mapping`` (0: it is for all). ``hosts``: names of
    the network's nodes, in order, where it has none itself. ``vary``: computation varies as in the
    traced runs. ``network``: name of a typical cluster, or a file (p3s.machine.cluster), that the
    estimator ``typical`` takes. ``every_rank``: all ranks are simulated, however many.
    """

    library: str = ""
    collectives: str = ""
    ranks_per_node: int | None = None
    mapping: str = "block"
    rank_file: Path | None = None
    topology: str = ""
    vary: bool = True
    network: str = ""
    rank_file_n: int = 0
    hosts: tuple[str, ...] = ()
    every_rank: bool = False

    def mapping_at(self, n: int, cores: int) -> RankMap:
        """Return where ``n`` ranks are; ``cores``: of a node, where nobody says it."""
        each = min(self.ranks_per_node or max(cores, 1), n)
        return mapping_of(self.mapping, n, each, self._file_at(n))

    def listed_at(self, n: int) -> bool:
        """Tell whether a file says where each of ``n`` ranks is."""
        return self._file_at(n) is not None

    def said_of(self, n: int) -> list[str]:
        """Return what a prediction of ``n`` processes says of where its ranks are."""
        file = self._file_at(n) if self.rank_file_n else None
        return [] if file is None else [f"ranks are on nodes as {file.name} says"]

    def _file_at(self, n: int) -> Path | None:
        return self.rank_file if self.rank_file_n in (0, n) else None


def silent(_: object) -> None:
    """Say nothing: what estimators get where nobody listens."""
