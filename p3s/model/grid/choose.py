"""The process grid of a program: the one on which its partners need the fewest relations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from p3s.base.ops import RECV, SEND, is_on_comm
from p3s.model.grid.at import SAID, GridAt, GridRule
from p3s.model.grid.carts import Cart, cart_of
from p3s.model.grid.directions import settle
from p3s.model.grid.domain_grids import (
    SHAPES,
    OfDomain,
    domains,
    nearest_shape,
    of_shape,
    rules_of_domains,
    rules_of_traces,
    shape_of_messages,
)
from p3s.model.grid.grids import (
    BalancedGrid,
    Greedy,
    candidate_rules,
    rules_in_part,
    rules_of_nodes,
)
from p3s.model.grid.nodes import Node, collect_nodes, find_communicators, unique_pairs
from p3s.model.grid.stated import Statement, rules
from p3s.model.partners.communicator_laws import CommunicatorLaw
from p3s.model.partners.communicators import Communicators, Used
from p3s.model.partners.infer_partners import Explanation, infer_partners, rough_cost
from p3s.model.partners.pairs import Pairs
from p3s.model.partners.relation import Relation
from p3s.model.partners.rivals import rival_relations
from p3s.signature.tables import PointTable


@dataclass
class GridChoice:
    """The process grid of the program, with what each p2p node's partners are on it.

    rivals: rules with the same grids at all counts traced; near: choices with other grids there
    that explain the partners with hardly more relations.
    """

    family: GridRule
    grids: dict[int, GridAt]
    explained: dict[int, Explanation]
    cost: float
    others: list[tuple[str, float]]
    periods: tuple[bool, ...] | None
    communicators: Communicators
    rivals: list[GridRule] = field(default_factory=list)
    near: list[GridChoice] = field(default_factory=list)

    def poor(self) -> bool:
        """Tell whether some partners have no rule on the grid, or one that costs much."""
        return any(e.unexplained or e.cost > _POOR for e in self.explained.values())

    def dear(self) -> bool:
        """Tell whether another grid may explain the partners with fewer relations."""
        return self.poor() or any(e.cost > _DEAR for e in self.explained.values())


#: What the sizes of messages cost on a grid, in relations: any number above what they may cost.
Vote = Callable[[GridChoice, float], float]
#: Rival rules that are kept.
_RIVALS = 24
#: Grids that cost so much more than the best, and this part of its cost, may be the true one.
_NEAR, _NEAR_PART = 1.0, 0.05
#: Of rules that are many so many are priced.
_LIKELIEST = 12
#: Grids beside the best that the sizes of messages are asked about.
_ELECTED = 3
#: Sizes speak for another grid only if it is so much cheaper with them.
_CLEARLY = 0.5
#: Partners that cost more on the best grid of all ranks: maybe the grid is of some ranks only.
_POOR = 3.5
#: One relation with a guard does not cost as much.
_DEAR = 1.5


def choose_grid(
    nodes: Sequence[Node],
    tables: Sequence[PointTable],
    known: Statement | None = None,
    *,
    apart: bool = True,
    typed: Collection[int] = (),
    vote: Vote | None = None,
    memo: Memo | None = None,
) -> GridChoice:
    """Choose one grid for the whole program: fewest relations over all nodes.

    typed: numbers among the program's arguments, which may be extents of its domain. vote: what
    the sizes of messages cost on a grid, in relations, asked where grids cost nearly as much.
    known: what is known of the grid beside the traces; neighbours on a known grid come first. An
    empty statement takes any grid for known, None none. apart: grids without some of the ranks
    count, too. memo: what an earlier search found of the same pairs. Raises Contradiction and
    P3SError as :func:`p3s.model.grid.stated.rules`.
    """
    counts = [t.np for t in tables]
    cart = cart_of(tables)
    if known:
        families = rules(known, counts, cart.dims, cart.members)
    else:
        families = candidate_rules(counts, cart.dims, cart.members)
        if not families:  # (a, b, 1) of a stated 1 is the grid (a, b)
            cart = cart.folded()
            families = candidate_rules(counts, cart.dims, cart.members) or candidate_rules(counts)
    if cart.dims:  # the program asked MPI for extents: prefer MPI's own rule to look-alikes
        families.sort(key=lambda f: type(f) not in (BalancedGrid, Greedy))
    domain = [] if known else rules_of_domains(domains(typed), counts)
    domain = [rule for rule in domain if all(rule.dims(n) == d for n, d in cart.dims.items())]
    search = _Search(nodes, tables, cart, known is not None, {} if memo is None else memo)
    search.try_all([*families, *domain])
    assert search.best is not None  # the 1-D line admits every count
    if not cart.dims and not known:
        _seek_further(search, apart)
    if vote is not None:
        search.elect(vote)
    best = search.best
    shape = shape_of_messages(nodes, best.grids)
    open_shapes = SHAPES if not cart.dims and not known else ()
    of_sizes = rules_of_domains([shape] if shape else open_shapes, counts)
    alike = search.alike([*best.rivals, *domain, *of_sizes])
    best.family = nearest_shape(best.family, alike, shape)
    best.near = search.near()
    best.rivals = search.rivals(of_shape(alike, shape))
    best.explained = _settle_directions(nodes, best)
    search.name_rivals()
    best.others = [(f.text(), cost) for f, cost in search.costs]
    return best


def _settle_directions(nodes: Sequence[Node], choice: GridChoice) -> dict[int, Explanation]:
    """Return the explanations with the directions that are open as siblings show them."""
    found = {i: replace(e, rivals={}) for i, e in choice.explained.items()}
    return settle(nodes, found, choice.grids, choice.periods)


def _seek_further(search: _Search, apart: bool) -> None:
    """Try the rules that are tried only where no common one explains the partners well."""
    assert search.best is not None
    if search.best.poor():  # together: the likeliest of all bounds what the others may cost
        in_part = rules_in_part(search.counts) if apart else []
        search.try_all([*rules_of_domains(SHAPES, search.counts), *in_part])
    if search.best.dear():
        found = [
            (len(members), [(n, rank, peer) for n, (rank, peer, _) in pairs])
            for _, pairs, _, members in search.todo
        ]
        search.try_all(rules_of_traces(found, search.counts))
    if search.best.dear():
        search.try_all(search.likeliest(rules_of_nodes(search.counts)))


class _Search:
    """Prices rules of grids; keeps the cheapest, of equal ones the first, which is simplest."""

    def __init__(
        self,
        nodes: Sequence[Node],
        tables: Sequence[PointTable],
        cart: Cart,
        known: bool,
        memo: Memo,
    ) -> None:
        self.known = known
        self.memo = memo
        self.nodes = nodes
        self.counts = [t.np for t in tables]
        self.tables = tables
        self.cart = cart
        varying = {v for t in tables for v in t.moved}
        self.todo = _distinct(nodes, self.counts, varying)
        self.places = [find_communicators(n) for n in nodes if is_on_comm(n.op)]
        self.best: GridChoice | None = None
        self.priced: list[GridChoice] = []
        self.costs: list[tuple[GridRule, float]] = []

    def try_all(self, families: Sequence[GridRule]) -> None:
        """Price the rules; those that look likely first, which saves pricing the others."""
        layouts: dict[tuple[Any, ...], list[int]] = {}
        for k, fam in enumerate(families):  # some tell nothing apart at the counts traced
            layouts.setdefault(tuple(g.key for g in self.grids(fam).values()), []).append(k)
        rough = {
            alike[0]: _rough(self.grids(families[alike[0]]), self.todo)
            for alike in layouts.values()
        }
        chosen = -1
        costs: dict[int, float] = {}
        for alike in sorted(layouts.values(), key=lambda a: (rough[a[0]], a[0])):
            choice = self.price(families[alike[0]])
            if choice is None:
                continue
            costs.update((k, choice.cost) for k in alike if not isinstance(families[k], OfDomain))
            choice.rivals = [families[k] for k in alike[1:]]
            self.priced.append(choice)
            best = self.best
            if (
                best is None
                or choice.cost < best.cost - 1e-9
                or (alike[0] < chosen and choice.cost < best.cost + 1e-9)
            ):
                self.best, chosen = choice, alike[0]
        self.costs += [(families[k], cost) for k, cost in sorted(costs.items())]

    def likeliest(self, families: Sequence[GridRule]) -> list[GridRule]:
        """Return those of many rules that the partners look likeliest on."""
        grids = {f: g for f in families if len(g := self.grids(f)) == len(self.counts)}
        return sorted(grids, key=lambda f: _rough(grids[f], self.todo))[:_LIKELIEST]

    def alike(self, rules: Sequence[GridRule]) -> list[GridRule]:
        """Return the rules that have the best one's grids at all traced counts."""
        assert self.best is not None
        layout = [g.key for g in self.best.grids.values()]
        return [r for r in rules if [g.key for g in self.grids(r).values()] == layout]

    def rivals(self, alike: Sequence[GridRule]) -> list[GridRule]:
        """Return the rules that other counts tell apart from the best one, the first of each.

        alike: rules with the best one's grids at all traced counts.
        """
        assert self.best is not None
        best = self.best
        seen = {_extents_beyond(best.family, self.counts)}
        out = []
        for rule in alike:
            if self.cart.dims and not isinstance(rule, OfDomain):
                continue  # the program asked MPI, whose rule is known
            key = _extents_beyond(rule, self.counts)
            if key not in seen:
                seen.add(key)
                out.append(rule)
        return out[:_RIVALS]

    def elect(self, vote: Vote) -> None:
        """Take the grid of those that cost little more which the sizes of messages speak for."""
        assert self.best is not None
        running = self.near()[:_ELECTED]
        if not running:
            return

        def cost(choice: GridChoice, most: float) -> float:
            settled = replace(choice, explained=_settle_directions(self.nodes, choice))
            return choice.cost + vote(settled, most - choice.cost)

        most = cost(self.best, math.inf) - _CLEARLY
        for choice in running:
            if (found := cost(choice, most)) < most:
                self.best, most = choice, found

    def limit(self) -> float:
        """Return what a grid that is worth knowing costs at most."""
        if self.best is None:
            return math.inf
        return (1 + _NEAR_PART) * self.best.cost + _NEAR

    def near(self) -> list[GridChoice]:
        """Return what explains all partners as well on grids other than the best, or nearly so."""
        best = self.best
        if self.cart.dims or best is None:
            return []
        return [
            choice
            for choice in sorted(self.priced, key=lambda c: c.cost)
            if choice is not best
            and choice.cost <= self.limit()
            and all(
                e.unexplained <= best.explained[i].unexplained for i, e in choice.explained.items()
            )
        ]

    def name_rivals(self) -> None:
        """Name the other relations that lead to the partners of nodes on the best grid."""
        best = self.best
        assert best is not None
        for _, seen, loose, members in self.todo:
            pairs = [Pairs(best.grids[n], *each) for n, each in seen if len(each[0])]
            axes = _axes(best.communicators, members)
            known: dict[tuple[Relation, ...], dict[Relation, float]] = {}
            for i in members if pairs and not loose else ():
                found = best.explained[i]
                key = tuple(found.relations)
                if key not in known:
                    known[key] = rival_relations(found, pairs, axes)
                found.rivals = known[key]

    def grids(self, family: GridRule) -> dict[int, GridAt]:
        """Return the rule's grids at the traced counts that it admits."""
        return {n: g for n in self.counts if (g := family.at(n)) is not None}

    def price(self, fam: GridRule) -> GridChoice | None:
        """Return what everything is on a grid; None as soon as that is far dearer than the best."""
        grids = self.grids(fam)
        same = self.cart.dims and fam.ndims == len(next(iter(self.cart.dims.values())))
        known = self.cart.periods if same else None
        comms = Communicators(self.tables, grids)
        cost = SAID * (fam.ndims - 1 + bool(fam.part)) + fam.cost() + comms.cost(self.places)
        explained: dict[int, Explanation] = {}
        least = sum(_bound_cost(each) for each in self.todo)
        for each in self.in_order():
            key, pairs, loose, members = each
            least -= _bound_cost(each)
            limit = self.limit() - cost - least
            if limit < 0:
                return None
            axes = _axes(comms, members)
            at = (key, tuple(g.key for g in grids.values()), tuple(axes), known, self.known)
            found = self.explain(at, pairs, grids, loose, limit / len(members))
            cost += found.cost * len(members)
            explained.update(dict.fromkeys(members, found))
        return GridChoice(fam, grids, dict(sorted(explained.items())), cost, [], known, comms)

    def in_order(self) -> list[Todo]:
        """Return the nodes that the best grid explains well first: they rule out another soon."""
        best = self.best
        if best is None:
            return self.todo
        return sorted(self.todo, key=lambda each: best.explained[next(iter(each[3]))].cost)

    def explain(
        self,
        at: Problem,
        pairs: Sequence[tuple[int, Seen]],
        grids: Mapping[int, GridAt],
        loose: bool,
        limit: float,
    ) -> Explanation:
        """Return the relations of a node's pairs on a grid; what is dearer than the limit, too."""
        sought, found = self.memo.get(at, (-math.inf, None))
        if found is None or sought < min(limit, found.cost):
            _, _, axes, periods, known = at
            on_grid = [Pairs(grids[n], *seen) for n, seen in pairs]
            found = infer_partners(on_grid, periods, loose, axes, known, limit)
            self.memo[at] = limit, found
        return found


def _extents_beyond(rule: GridRule, counts: Sequence[int]) -> tuple[object, ...]:
    """Return what a rule says at traced counts and multiples of the largest: it tells rules apart.

    Squares and numbers between are among them.
    """
    top = max(counts)
    beyond = [k * top for k in range(2, 17)] + [k * k for k in range(2, 33)] + [3 * top // 2]
    return (rule.layout, *(rule.dims(n) for n in (*counts, *beyond)))


def _rough(grids: Mapping[int, GridAt], todo: Sequence[Todo]) -> float:
    """Return a first guess at the cost of a grid."""
    return sum(
        len(members) * rough_cost([Pairs(grids[n], *seen) for n, seen in pairs])
        for _, pairs, _, members in todo
        if pairs
    )


#: Ranks, partners, and how many messages.
Seen = tuple[np.ndarray, np.ndarray, np.ndarray | None]
#: A key, pairs at each count, whether partners differ from run to run, the nodes that have them.
Todo = tuple[bytes, list[tuple[int, Seen]], bool, dict[int, Used]]
#: Pairs by their key, extents, laws of communicators, periods, and whether the grid is known.
Problem = tuple[
    bytes, tuple[object, ...], tuple[CommunicatorLaw, ...], tuple[bool, ...] | None, bool
]
#: What was found of pairs on a grid, and up to which cost that is the cheapest.
Memo = dict[Problem, tuple[float, Explanation]]


def _bound_cost(todo: Todo) -> float:
    """Return what partners cost at least on any grid: a relation for each node that has some."""
    _, pairs, _, members = todo
    return float(len(members)) if any(len(seen[0]) for _, seen in pairs) else 0.0


def _distinct(nodes: Sequence[Node], counts: Sequence[int], varying: set[str]) -> list[Todo]:
    """Return the distinct sets of pairs, with the nodes that have them."""
    out: dict[bytes, Todo] = {}
    for i, node in enumerate(nodes):
        if node.kind not in (SEND, RECV):
            continue
        pairs = [(n, unique_pairs(node.rows[n])) for n in counts if n in node.rows]
        loose = f"{node.site}:{node.op}" in varying
        places = find_communicators(node)
        key = (
            bytes([loose])
            + repr(sorted(places)).encode()
            + b"|".join(
                np.array([n, *map(len, of)]).tobytes() + b"".join(x.tobytes() for x in of)
                for n, seen in pairs
                for of in [[x for x in seen if x is not None]]
            )
        )
        out.setdefault(key, (key, pairs, loose, {}))[3][i] = places
    return list(out.values())


def _axes(comms: Communicators, members: Mapping[int, Used]) -> list[CommunicatorLaw]:
    """Return the laws of sub-communicators on which a node's messages travel."""
    return [law for law in comms.cover(next(iter(members.values()))).laws if law.leads]


def decide_splits(
    splits: Mapping[tuple[str, str], bool | None], tables: Sequence[PointTable], choice: GridChoice
) -> dict[tuple[str, str], bool]:
    """Decide the open splits on the grid of the program: the cheaper explanation wins.

    At equal cost, and where directions stay open without the tags, the tags are used.
    """
    out = {k: bool(v) for k, v in splits.items()}
    wanted = [k for k, v in splits.items() if v is None]
    known: dict[object, Explanation] = {}
    found: dict[tuple[tuple[str, str], bool], list[Explanation]] = {}
    for split in (False, True):
        for node in collect_nodes(tables, {**out, **dict.fromkeys(wanted, split)}):
            if (key := (node.site, node.op)) in wanted:
                pairs = [Pairs(choice.grids[n], *unique_pairs(r)[:2]) for n, r in node.rows.items()]
                alike = tuple((p.grid.n, p.rank.tobytes(), p.peer.tobytes()) for p in pairs)
                if alike not in known:
                    known[alike] = infer_partners(pairs, choice.periods)
                found.setdefault((key, split), []).append(known[alike])
    for key in wanted:
        whole, by_tag = found[key, False], found[key, True]
        dearer = sum(e.cost for e in by_tag) > sum(e.cost for e in whole)
        out[key] = any(e.ambiguous for e in whole) or not dearer
    return out
