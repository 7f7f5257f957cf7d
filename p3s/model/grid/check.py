"""Whether what is known of the process grid can be what the traces show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from p3s.characterize.tables import PointTable
from p3s.errors import P3SError
from p3s.model.grid.choose import GridChoice, choose_grid
from p3s.model.grid.nodes import Node, collect_nodes, tag_splits
from p3s.model.grid.stated import Contradiction, Statement
from p3s.model.partners.relations import FAMILIES
from signature_runner.command import shape

#: A grid on which partners cost so much more than on the traces' own grid is not the program's:
#: so many times, and so many relations.
_TIMES, _MORE = 1.25, 1.0
#: What a relation along all ranks costs more on a grid of several dimensions.
_ALL_RANKS = 0.5


def settled(tables: Sequence[PointTable], known: Statement | None
            ) -> tuple[Statement | None, str]:
    """Return what is known of the grid if the traces allow it, and why it was dropped if not.

    Raises Contradiction and P3SError where the user says what the traces do not allow; what
    arguments alone say is dropped.
    """
    if not known:
        return None, ""
    try:
        nodes = collect_nodes(tables, {k: bool(v) for k, v in tag_splits(tables).items()})
        choice = choose_grid(nodes, tables, known)
        why = contradiction(nodes, choice, choose_grid(nodes, tables))
        if why:
            raise Contradiction(why)
    except P3SError as err:
        if known.by_user:
            raise
        return None, str(err)
    return known, ""


def contradiction(nodes: Sequence[Node], choice: GridChoice, free: GridChoice) -> str:
    """Return why a grid cannot be the program's, "" where it can: what the free choice explains,
    and with how many relations, must be explained on it too."""
    worse = {i: _price(choice, i) - _price(free, i) for i in choice.explained}
    without = [i for i in worse if choice.explained[i].unexplained
               and not free.explained[i].unexplained]
    total = sum(_price(free, i) for i in worse)
    if not without and sum(worse.values()) <= (_TIMES - 1) * total + _MORE:
        return ""
    i = max(without or worse, key=lambda k: worse[k])
    n = max(nodes[i].rows)
    here, there = shape(choice.grids[n].dims), shape(free.grids[n].dims)
    on = f"at {n} processes, {nodes[i].op}"
    if without:
        return f"{on} has partners that follow no rule on a grid of {here}; on {there} they do"
    many, few = len(choice.explained[i].relations), len(free.explained[i].relations)
    if many <= few:
        return f"{on} needs conditions on single ranks on a grid of {here}, none on {there}"
    return f"{on} needs {many} rules for its partners on a grid of {here}, {few} on {there}"


def _price(choice: GridChoice, i: int) -> float:
    """Return what the partners of a call cost on a grid, relations along all ranks as on a line."""
    found = choice.explained[i]
    several = choice.family.ndims > 1
    return found.cost - _ALL_RANKS * several * sum(
        r["kind"] in FAMILIES and r.get("axis", 0) is None for r in found.relations)


def misled(model: Mapping[str, Any], report: Mapping[str, Any],
           free: Callable[[], Mapping[str, Any]]) -> str:
    """Return why a grid cannot be the program's by the count that was held out, "" where it can.

    report: the hold-out on that grid; free: makes the one without. Only where the smaller counts
    show every dimension does it say something of the grid that messages are missed.
    """
    last = max(model["counts"])
    smaller = [dims for n, dims in model["grid"]["dims"].items() if int(n) < last]
    wrong = _missed(report)
    if not wrong or any(max(extents) < 2 for extents in zip(*smaller, strict=True)) \
            or len(smaller[0]) == 1 or _missed(free()) != 0:
        return ""
    here = shape(model["grid"]["dims"][str(last)])
    return (f"rules of the smaller counts miss {wrong:,} of {report['p2p_triples']['true']:,} "
            f"messages at {last} processes on a grid of {here}, and none without it")


def _missed(report: Mapping[str, Any]) -> int | None:
    """Return how many messages of a held-out count were not predicted, None if it said nothing."""
    if not report.get("possible"):
        return None
    messages = report["p2p_triples"]
    return max(int(messages["true"]), int(messages["predicted"])) - int(messages["equal"])
