"""The dependency simulation on costs that were measured between two ranks; needs no replay.

The scaled trace becomes sections (p3s.program.order), its collectives the messages of the library's
algorithms (p3s.program.collectives), its loops a few iterations (p3s.simulate.folded). Computation
varies as it did in the traced runs: by a lasting factor of each rank and one of each occurrence,
drawn from the distributions in compute.json. What a rank computes longer by that makes others wait,
and a rank that computes less waits itself: together all take what the slowest takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from p3s.base.arrays import Floats
from p3s.base.errors import P3SError
from p3s.base.host.processes import give_back
from p3s.base.records import Traces, scaled_dir
from p3s.base.text import processes
from p3s.costs.types import load, own_cores
from p3s.predict.estimated import COMM, HIGH, LOW, Communication, Draws, silent
from p3s.predict.estimators.drawn import (
    Alteration,
    Variation,
    runner,
    simulate_variation,
    variation_of,
    windows_of,
)
from p3s.predict.estimators.fewer import smaller, taken_to
from p3s.predict.estimators.grids import Grids
from p3s.predict.estimators.messages import (
    Messages,
    measured_messages,
    published_messages,
    with_creation,
    with_packing,
)
from p3s.predict.estimators.settings import (
    Setting,
    SimulationInput,
    on_nodes_of,
    on_wires,
    read_program,
    said_of,
)
from p3s.predict.times import read_head, some_ranks
from p3s.program.own_costs import usual_creation, usual_packing
from p3s.program.types import MOST_RANKS
from p3s.simulate.folded import Loop, SectionTimes, Settling, folded_totals
from p3s.simulate.network import Network
from p3s.simulate.totals import PARTS, Room, SimulationGaps

if TYPE_CHECKING:
    from p3s.program.fewer import Fewer

_NS_PER_S = 1e9
#: What simulated messages may be off by for each doubling beyond the traced counts, as a share of
#: their own time, as far as their bytes have no law but a trend: an allowance, for want of programs
#: to measure it with.
_OF_TREND = 0.25
_MOST_OFF = 0.75

#: Costs and study are simulated as they are.
AS_IS = Alteration()


def communication(
    traces: Traces, n: int, machine: Path | None, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes; see estimators.estimate."""
    return estimate_communication(
        measured_messages(traces, machine, setting), traces, n, setting, say
    )


def of_typical(
    traces: Traces, n: int, machine: Path | None, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes on a typical cluster; see estimators.estimate.

    Ranks are dealt to nodes in blocks of the cluster's cores, nodes to switches in a row; the
    ends of the interval are the faster and the slower end of all published figures together.
    """
    return estimate_communication(published_messages(traces, setting), traces, n, setting, say)


def estimate_communication(
    messages: Messages, traces: Traces, n: int, setting: Setting, say: Callable[[str], None]
) -> Communication:
    """Return the communication of ``n`` processes, messages and ranks on nodes as they are told."""
    few = smaller(traces, n, messages.cores, setting)
    if few is not None:
        from p3s.predict.estimators.check import check_smaller_grids, with_unseen

        grids = grids_of(messages, traces, few, setting, say)
        cores = setting.ranks_per_node or messages.cores
        checked = check_smaller_grids(grids, setting, cores)
        made = grids.simulated(grids.as_predicted, setting)
        found, _ = taken_to(few, grids.ranks, made, checked=checked)
        return with_unseen(found, few, grids.all, checked)
    if some_ranks(read_head(scaled_dir(traces.root, n), n)) is not None:
        raise P3SError(
            f"{processes(n)} are too many to simulate every rank, and smaller process grids do not "
            f"stand for them here; {MOST_RANKS:,} have a trace of all ranks"
        )
    say(f"{processes(n)}: reading the scaled trace")
    ready = on_nodes_of(
        read_program(scaled_dir(traces.root, n), queues=messages.queues),
        messages.library,
        setting,
        messages.cores,
    )
    give_back()  # the columns of the program are as large as those of what is simulated
    return simulate_input(messages, traces, ready, setting, say)


def grids_of(
    messages: Messages, traces: Traces, few: Fewer, setting: Setting, say: Callable[[str], None]
) -> Grids:
    """Return the grids that stand for a large count, simulated with these costs of messages."""

    def place(ready: SimulationInput, how: Setting, ends: bool) -> Communication:
        return simulate_input(messages, traces, ready, how, silent, ends=ends)

    head = read_head(scaled_dir(traces.root, few.large.n), few.large.n)
    return Grids(messages, traces, few, setting, say, place, ranks=some_ranks(head))


def simulate_input(
    messages: Messages,
    traces: Traces,
    ready: SimulationInput,
    setting: Setting,
    say: Callable[[str], None],
    *,
    ends: bool = True,
    altered: Alteration = AS_IS,
) -> Communication:
    """Return the communication of what is prepared; without ``ends`` with typical costs alone.

    ``altered``: what is another way than the costs and the study say.
    """
    nodes = ready.nodes
    if ready.distance is None and nodes > 1:
        ready = replace(ready, distance=messages.distance(nodes, ready.among))
    costs = messages.on(nodes, ready.among)
    said = [
        f"message costs: {costs[0].source}{messages.said}",
        f"collectives as in {messages.library}",
        *messages.of_runs,
    ]
    costs, links = joined_by(costs if ends else (costs[0],) * 3, ready, messages)
    if altered.network is not None:
        usual, least, most = map(altered.network, costs)
        costs = usual, least, most
    said += [*setting.said_of(ready.count), *links, *messages.ends]
    say(f"{processes(ready.count)}: simulating")
    variation = variation_of(traces, ready.phases) if setting.vary else None
    if variation is None:
        said.append("computation does not vary")
    elif altered.variation is not None:
        variation = altered.variation(variation)
    if shared := variation is not None and shared_cores(traces):
        said.append(
            "computation was traced on shared cores, which makes it vary more: the low end "
            "assumes that it does not vary"
        )
    head = read_head(scaled_dir(traces.root, ready.count), ready.count)
    off = min(_of_trend(head), _MOST_OFF) if ends else 0.0
    draws = Draws() if altered.draws is None else altered.draws
    sums, notes, followed = simulate_cells(
        ready, costs, variation, off, even_low=shared, draws=draws
    )
    phases, each = by_phase(ready, head, sums)
    seconds, longer = each[:-1], each[-1]
    seconds[LOW] = np.minimum(seconds[LOW], seconds[COMM])
    seconds[HIGH] = np.maximum(seconds[HIGH], seconds[COMM])
    found = Communication(
        messages.name,
        ready.trace.n,
        phases,
        seconds,
        messages.why_not,
        (*said, *ready.notes, *notes),
        followed=followed,
        draws=draws,
        longer=longer,
    )
    family = messages.library.family
    found = with_creation(found, ready.trace, messages.own or usual_creation(family), ends)
    return with_packing(found, ready.trace, messages.packing or usual_packing(family), ends)


def joined_by(
    costs: tuple[Network, Network, Network], ready: SimulationInput, messages: Messages
) -> tuple[tuple[Network, Network, Network], list[str]]:
    """Return costs of messages with the links between switches, and what is said of these."""
    if ready.wired is not None:
        there = ready.wired
        usual, low, high = (on_wires(network, there, messages.hosts) for network in costs)
        return (usual, low, high), said_of(there, usual)
    several = len(np.unique(ready.node_of)) > 1 and costs[0].path(1).linked
    unknown = (
        "links between switches are taken to be no limit; --topology says how nodes are joined"
    )
    limited = costs[0].trunks is not None or messages.levels
    return costs, [unknown] if several and not limited else []


def by_phase(
    ready: SimulationInput, head: Mapping[str, Any], sums: Floats
) -> tuple[tuple[int, ...], Floats]:
    """Return the phases of a scaled trace, and sums per cell in ns as s, (sums, ranks, phases)."""
    phases = tuple(int(phase["phase"]) for phase in head["phases"])
    order = [ready.phases.index(phase) for phase in phases]
    shape = len(sums), ready.trace.n, len(ready.phases)
    return phases, sums.reshape(shape)[:, :, order] / _NS_PER_S


def _of_trend(head: Mapping[str, Any]) -> float:
    """Return what messages may be off by beyond the traced counts as their sizes have no law."""
    bytes_ = float(((head.get("share") or {}).get("statistical") or {}).get("bytes") or 0.0)
    return _OF_TREND * bytes_ * math.log2(max(float(head.get("extrapolation") or 1.0), 1.0))


def shared_cores(traces: Traces) -> bool:
    """Tell whether ranks shared cores in all runs that tell how their computation varies."""
    runs = traces.timed or traces.runs
    compute = load(traces.root)
    return any(run.info.get("oversubscribed") for run in runs) and not (
        compute is not None and own_cores(compute.runs)
    )


def simulate_cells(
    ready: SimulationInput,
    costs: tuple[Network, Network, Network],
    variation: Variation | None,
    off: float = 0.0,
    *,
    even_low: bool = False,
    draws: Draws | None = None,
) -> tuple[Floats, list[str], SimulationGaps]:
    """Return times per cell in ns, (7, cells): in calls, waiting, transfer, software, both ends of
    the first, and how much longer computation is drawn than it is without variation.

    The ends are those of the simulation in which nothing varies and messages cost the least and
    the most, and that less and more by a part ``off``, from its typical costs, added to what the
    varied one says; with ``even_low`` the low end is that in which nothing varies where that is
    less. The notes say what was changed, and which loops have not settled; last is how
    much rests on those. ``draws``: how often computation is drawn.
    """
    cells = ready.trace.n * len(ready.phases)
    total = np.zeros((PARTS + 3, cells))
    notes: list[str] = []
    cut: list[int] = []
    settling = Settling()
    overlap = math.isfinite(costs[0].rate) and len(np.unique(ready.node_of)) > 1
    room = Room()
    for number, loop in enumerate(ready.loops):
        room.packs = loop.packs
        run = runner(ready, costs[0], notes, room, cut=cut)
        even = folded_totals(loop, run, overlap=overlap)

        def end(
            network: Network, factor: float, loop: Loop = loop, even: SectionTimes = even
        ) -> Floats:
            """Return times in calls where messages cost something else."""
            found = even
            if network != costs[0] or factor != 1.0:
                # What had to be changed so that all ranks end is told once, for the typical costs.
                # Queues may never repeat exactly, and means are enough here.
                other = runner(ready, network, [], room, factor)
                found = folded_totals(loop, other, most=windows_of(even), overlap=overlap)
            return np.asarray(factor * found.sums[0], dtype=np.float64)

        low, high = map(end, costs[1:], (1.0 - off, 1.0 + off))
        typical = even.sums
        if variation is not None and variation.varies:
            drawn = simulate_variation(
                ready, number, costs[0], variation, even, overlap, draws, room
            )
            typical, longer = drawn[:PARTS], drawn[PARTS]
            total[PARTS + 2] += longer
        total[:PARTS] += typical
        least = np.maximum(typical[0] - np.maximum(even.sums[0] - low, 0), 0)
        total[PARTS] += np.minimum(least, low) if even_low else least
        total[PARTS + 1] += typical[0] + np.maximum(high - even.sums[0], 0)
        settling.add(loop, even, notes)
    followed = replace(ready.followed, reordered=ready.followed.reordered + sum(cut))
    return total, list(dict.fromkeys(notes)), settling.into(followed)
