"""How a replay is made: nodes, ranks on them, time to measure in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

#: Kinds of pages that buffers can have; see docs/replay.md.
PAGES = ("small", "huge")
MAPPINGS = ("block", "cyclic")
NOISES = ("auto", "on", "off")
BUDGET_S = 30.0
#: Seconds without a step of any process after which the job is ended.
STALL_S = 60.0
#: A replay has ended after so many times its budget and so many seconds, whatever happens.
OVERTIME, START_S = 3.0, 30.0
#: Seconds of these in which the last processes are ended.
END_S = 6.0


@dataclass(frozen=True)
class ReplaySettings:
    """What `p3s replay` is told; the defaults are those of the command.

    ``hosts``: nodes, none: this machine. ``cores_per_node``: ranks of the full run on one node,
    None: the cores of this machine. ``budget_s``: time to measure in, per count. ``launcher``:
    words of the launcher, none: as found. ``mapping``: how the ranks of the full run are dealt to
    its nodes; ``rank_file`` says it rank by rank. ``topology``: file that tells how far nodes are
    apart. ``exhaustive``: load all pairs of ranges. ``timed``: measure whole iterations with
    black holes that act when the absent ranks would, too. ``collectives``: algorithms to take
    instead of the library's. ``pages``: of the buffers. ``noise``: traffic of absent ranks:
    "auto" where the topology has a link between switches that remote traffic shares with the
    loaded ranges (links of nodes are not shared: noise there would only be in the way of the black
    holes); "on" without a topology too, as in the thesis; "off". ``stall_s``: see STALL_S.
    ``timeout_s``: after which it has ended in any case, None: by the budget. ``again``: do not
    take up stored results.
    """

    hosts: tuple[str, ...] = ()
    cores_per_node: int | None = None
    budget_s: float = BUDGET_S
    launcher: tuple[str, ...] = ()
    mapping: str = "block"
    rank_file: Path | None = None
    topology: Path | None = None
    exhaustive: bool = False
    timed: bool = False
    collectives: str = ""
    pages: str = "small"
    noise: str = "auto"
    stall_s: float = STALL_S
    timeout_s: float | None = None
    again: bool = False

    @property
    def limit_s(self) -> float:
        """Seconds after which the launches of a replay have ended, in any case."""
        return self.timeout_s or OVERTIME * self.budget_s + START_S
