"""Cut a run into stretches: some iterations of each loop, and what is outside of loops.

A loop whose iteration is short enough gives a window of some of its iterations; a loop with longer
iterations is taken apart: what is in one iteration of it is cut again. What stands for what:

- The iterations of a loop are sorted by what is done in them (by all ranks); turn 0 is a sort of
  its own. A window has turn 0, the first consecutive ones of the most frequent sort, and one turn
  for every call that occurs in none of these. Iterations of sorts without an iteration in the
  window are counted to the most frequent sort.
- A walk over partners is one iteration, however many partners a rank has.
- Loops that ranks turn differently often stay whole, where they are, and short ones with no more
  iterations than a window has; so do loops in which calls have their partners outside of the loop
  only.
- What is in a body of a loop outside of inner loops is one stretch, in program order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p3s.base.arrays import Ints, mix_bits
from p3s.model.law_types import LoopRule, Trips
from p3s.program.order.sequence import Kind

#: Steps of all ranks in one section, at most; a window has fewer iterations, or a loop is taken
#: apart.
MOST_TOTAL = 4_000_000
#: Iterations that a window may have beyond the wanted ones, for calls that occur in no other turn.
_MORE_TURNS = 16
#: Sorts of iterations of which one iteration is cut again, where turns are too long for a window.
_SORTS = 4

#: A loop with as few steps is executed whole where it has no more iterations than a window.
_SHORT = 64

#: So many times most_steps are executed of a loop whose calls meet calls outside of it.
_FAR_MORE = 8

#: Of each kind of ranks (its number) some events (numbers, ascending).
Events = dict[int, Ints]


@dataclass(frozen=True)
class Part:
    """What the ranks of one kind do in a stretch, and what it stands for.

    events: those executed; turn: of each, from 0; sort: of each, a number below Piece.sorts.
    counts: shape (rows, sorts), how many events of the run the stretch stands for.
    """

    kind: int
    events: Ints
    turn: Ints
    sort: Ints
    counts: Ints


@dataclass(frozen=True)
class Piece:
    """A stretch; ``turns``, ``run_turns``, ``entries`` as in p3s.simulate.steps.Section."""

    name: str
    parts: tuple[Part, ...]
    turns: int
    first_turn: int
    run_turns: int
    entries: float
    sorts: int


def cut_stretches(
    kinds: Sequence[Kind],
    loops: Sequence[LoopRule],
    *,
    turns: int,
    most_steps: int,
    most_total: int = MOST_TOTAL,
    whole: frozenset[int] = frozenset(),
    times: Mapping[int, float] | None = None,
) -> list[Piece]:
    """Return the stretches of a run, in program order; loops: those of order.json.

    whole: loops that are executed with all their iterations, unless these are far too many. times:
    how many times as many iterations loops of the program itself have (see shorten).
    """
    cutter = _Cutter(kinds, loops, max(turns, 1), max(most_steps, 1), most_total, whole, times)
    everything = {k: np.arange(len(kind.row)) for k, kind in enumerate(kinds)}
    cutter.body(0, everything, everything, "")
    return cutter.pieces


def by_phase(
    kinds: Sequence[Kind],
    events: Sequence[Mapping[int, Ints]],
    repeat: Ints,
    names: Mapping[int, str],
    weights: Mapping[int, float],
    together: Collection[frozenset[int]] = (),
) -> list[Piece]:
    """Return one stretch per phase, where the order of events is not known.

    events: per kind the events of each phase; repeat: of all rows; weights: iterations of the
    phases; together: phases that are one stretch.
    """
    none = np.zeros(0, dtype=np.int64)
    phases = {phase for them in events for phase in them}
    groups = [frozenset({phase}) for phase in phases]
    for pair in together:
        joined = pair.union(*(group for group in groups if group & pair))
        groups = [*(group for group in groups if not group & pair), joined]
    pieces = []
    for group in sorted(groups, key=min):
        parts = []
        for k, kind in enumerate(kinds):
            mine = np.concatenate([none, *(events[k].get(phase, none) for phase in sorted(group))])
            counts = np.zeros((kind.rows, 1), dtype=np.int64)
            counts[kind.row[mine], 0] = repeat[int(kind.first[0]) + kind.row[mine]]
            zero = np.zeros(len(mine), dtype=np.int64)
            parts.append(Part(k, mine, zero, zero, counts))
        name = "phase " if len(group) == 1 else "phases "
        name += ", ".join(str(phase) for phase in sorted(group))
        if len(group) == 1 and names.get(min(group)):
            name += f" ({names[min(group)]})"
        entries = max(float(weights.get(phase, 1.0)) for phase in group)
        pieces.append(Piece(name, tuple(parts), 1, 0, 1, entries, 1))
    return pieces


@dataclass(frozen=True)
class _Shape:
    """A loop as entered once: sizes of its iterations, over the kinds of ranks.

    ``turn``: per kind the iteration of each event. ``trips``: turns. ``most``: steps of the
    longest iteration of a rank, ``entry``: of all iterations of the busiest rank. ``total``: per
    iteration, of all ranks. ``like``: per iteration a number that is equal where the same is done.
    ``equal``: all ranks iteration equally often."""

    turn: Events
    trips: int
    most: int
    entry: int
    total: Ints
    like: npt.NDArray[np.uint64]
    equal: bool


class _Cutter:
    def __init__(
        self,
        kinds: Sequence[Kind],
        loops: Sequence[LoopRule],
        turns: int,
        most_steps: int,
        most_total: int,
        whole: frozenset[int],
        times: Mapping[int, float] | None,
    ) -> None:
        self.kinds, self.turns, self.whole = kinds, turns, whole
        self.times = times or {}
        self.most_steps, self.most_total = most_steps, most_total
        self.loops = {loop.loop: loop for loop in loops}
        self.pieces: list[Piece] = []

    def body(self, level: int, iteration: Events, scope: Events, where: str) -> None:
        """Cut what is inside of ``level`` loops; iteration: one of them, scope: what it stands for.

        where: names the turn.
        """
        child = {k: self._child(k, events, level) for k, events in iteration.items()}
        others = {k: self._child(k, events, level) for k, events in scope.items()}
        inner_loops = sorted(
            {int(c) for codes in others.values() for c in np.unique(codes) if c >= 0}
        )
        plain = {k: codes < 0 for k, codes in child.items()}
        plain_scope = {k: codes < 0 for k, codes in others.items()}
        cuts: list[tuple[int, Events, Events, _Shape]] = []
        for loop in inner_loops:
            inside = _drop_empty({k: events[others[k] == loop] for k, events in scope.items()})
            once = _drop_empty({k: events[child[k] == loop] for k, events in iteration.items()})
            once = once or self._first_entry(inside, level)
            shape = self._shape(once, level, loop)
            if self._is_whole(loop, shape):
                for k in iteration:
                    plain[k] |= child[k] == loop
                    plain_scope[k] |= others[k] == loop
            else:
                cuts.append((loop, once, inside, shape))
        outside = {k: events[plain[k]] for k, events in iteration.items()}
        stands = {k: events[plain_scope[k]] for k, events in scope.items()}
        if any(len(events) for events in stands.values()):
            name = f"{where}, outside of its loops" if where else "outside of loops"
            picked = {
                k: (events, *np.zeros((2, len(events)), int)) for k, events in outside.items()
            }
            self._add(name if cuts or not where else where, level, stands, picked)
        for loop, once, inside, shape in cuts:
            self._loop(loop, level, once, inside, shape, where)

    def _child(self, k: int, events: Ints, level: int) -> Ints:
        kind = self.kinds[k]
        if level >= kind.path.shape[1]:
            return np.full(len(events), -1, dtype=np.int64)
        result: Ints = kind.path[kind.row[events], level]
        return result

    def _first_entry(self, inside: Events, level: int) -> Events:
        """Return the events of the first entry of a loop."""
        first = None
        for k, events in inside.items():
            mine = tuple(self.kinds[k].turns[events[0], :level].tolist())
            first = mine if first is None or mine < first else first
        return _drop_empty(
            {
                k: events[(self.kinds[k].turns[events, :level] == first).all(axis=1)]
                for k, events in inside.items()
            }
        )

    def _shape(self, once: Events, level: int, loop: int) -> _Shape:
        turn = {k: self.kinds[k].turns[events, level] for k, events in once.items()}
        ends = {k: int(t.max()) + 1 for k, t in turn.items()}
        trips = max(ends.values())
        total, like = np.zeros(trips, dtype=np.int64), np.zeros(trips, dtype=np.uint64)
        most = 0
        for k, t in turn.items():
            sizes = np.bincount(t, minlength=trips)
            most = max(most, int(sizes.max()))
            total += sizes * len(self.kinds[k].ranks)
            row = self.kinds[k].row[once[k]]
            pairs, count = np.unique(t * (int(row.max()) + 1) + row, return_counts=True)
            at, row_numbers = np.divmod(pairs, int(row.max()) + 1)
            np.add.at(like, at, mix_bits(mix_bits(row_numbers + (k << 32)) + mix_bits(count)))
        rules: tuple[Trips, ...] = self.loops[loop].trips if loop in self.loops else ()
        one_rule = len(rules) == 1 and rules[0].law is not None
        return _Shape(
            turn,
            trips,
            most,
            max(len(t) for t in turn.values()),
            total,
            like,
            one_rule or len(set(ends.values())) == 1,
        )

    def _is_whole(self, loop: int, shape: _Shape) -> bool:
        """Tell whether a loop is executed with all its iterations, inside of what is around it."""
        most = self.most_steps * (_FAR_MORE if loop in self.whole else 1)
        if shape.entry > most or int(shape.total.sum()) > self.most_total:
            return False
        if loop in self.whole:
            return True
        short = shape.trips == 1 or (shape.trips <= self.turns and shape.entry <= _SHORT)
        return short or not shape.equal

    def _add(
        self,
        name: str,
        level: int,
        scope: Events,
        picked: Mapping[int, tuple[Ints, Ints, Ints]],
        sort: Events | None = None,
        sorts: int = 1,
        turns: tuple[int, int, int] = (1, 0, 1),
    ) -> None:
        """Add a stretch. picked: events that are executed, their turns and sorts, by kind.

        sort: of all events in its scope; turns: executed ones, the first of them, those of the run.
        """
        none = np.zeros(0, dtype=np.int64)
        parts = []
        for k, events in scope.items():
            kind = self.kinds[k]
            cell = kind.row[events] * sorts + (0 if sort is None else sort[k])
            counts = np.bincount(cell, minlength=kind.rows * sorts).reshape(kind.rows, sorts)
            parts.append(Part(k, *picked.get(k, (none, none, none)), counts))
        entries = self._entries(scope, level)
        self.pieces.append(Piece(name, tuple(parts), *turns, entries, sorts))

    def _entries(self, scope: Events, level: int) -> float:
        """Return how often something is entered: in how many iterations of the loops around."""
        most = 1
        for k, events in scope.items():
            outer = self.kinds[k].turns[events, :level]
            if level and len(outer):
                change = (outer[1:] != outer[:-1]).any(axis=1)
                most = max(most, int(change.sum()) + 1)
        return float(most) * self._times_around(scope, level)

    def _times_around(self, scope: Events, level: int) -> float:
        """Return how many times as many iterations the outermost of the loops around has."""
        if not level:  # there may be no loop at all
            return 1.0
        around = [
            self.kinds[k].path[self.kinds[k].row[e[0]], 0] for k, e in scope.items() if len(e)
        ]
        return self.times.get(int(around[0]), 1.0) if around else 1.0

    def _run_turns(self, loop: int, shape: _Shape) -> int:
        return round(shape.trips * self.times.get(loop, 1.0))

    def _loop(
        self, loop: int, level: int, once: Events, scope: Events, shape: _Shape, where: str
    ) -> None:
        inner = any(
            (self.kinds[k].path[self.kinds[k].row[events], level + 1] >= 0).any()
            for k, events in once.items()
            if level + 1 < self.kinds[k].path.shape[1]
        )
        one = int(np.sort(shape.total)[len(shape.total) // 2])
        if inner and (shape.most > self.most_steps or one > self.most_total):
            self._take_apart(loop, level, once, scope, shape, where)
        elif shape.equal:
            self._window(loop, level, once, scope, shape, where)
        else:
            self._share(loop, level, once, scope, shape, where)

    # ---- windows -----------------------------------------------------------------------
    def _window(
        self, loop: int, level: int, once: Events, scope: Events, shape: _Shape, where: str
    ) -> None:
        like = shape.like.copy()
        like[0] = like[0] ^ np.uint64(1) if (like[1:] == like[0]).any() else like[0]
        sorts, first, of_turn, number = np.unique(
            like, return_index=True, return_inverse=True, return_counts=True
        )
        of_turn = of_turn.reshape(-1)
        later = np.where(sorts == like[0], 0, number)
        common = int(np.argmax(later)) if len(sorts) > 1 else 0
        chosen = self._choose_turns(shape, of_turn, common, once)
        kept_turns = np.unique(of_turn[chosen])
        sort_of = (
            np.searchsorted(kept_turns, common) * np.ones(len(sorts), dtype=np.int64)
            if common in kept_turns
            else np.zeros(len(sorts), dtype=np.int64)
        )
        sort_of[kept_turns] = np.arange(len(kept_turns))
        of_turn = sort_of[of_turn]
        usual = int(sort_of[common])
        place = np.full(shape.trips, -1, dtype=np.int64)
        place[chosen] = np.arange(len(chosen))
        picked, sort = {}, {}
        for k, events in scope.items():
            turn = self.kinds[k].turns[events, level]
            known_sort = of_turn[np.minimum(turn, shape.trips - 1)]
            sort[k] = np.where(turn < shape.trips, known_sort, usual)
        for k, events in once.items():
            turn = self.kinds[k].turns[events, level]
            pick = place[turn] >= 0
            picked[k] = (events[pick], place[turn[pick]], of_turn[turn[pick]])
        turns = (len(chosen), int(chosen[0]), self._run_turns(loop, shape))
        name = self._window_name(where, loop, turns)
        self._add(name, level, scope, picked, sort, len(kept_turns), turns)

    def _window_name(self, where: str, loop: int, turns: tuple[int, int, int]) -> str:
        name = f"loop {loop}, {turns[0]} of {turns[2]} iterations"
        return f"{where}, {name}" if where else name

    def _choose_turns(self, shape: _Shape, of_turn: Ints, common: int, once: Events) -> Ints:
        """Return the iterations of a window, ascending."""
        budget = self.most_total
        if shape.trips <= self.turns and int(shape.total.sum()) <= budget:
            return np.arange(shape.trips)
        turns_wanted = [0] if self.turns > 1 or shape.trips == 1 else []
        usual = np.flatnonzero(of_turn == common)
        usual = usual[usual > 0] if (usual > 0).any() else np.arange(shape.trips)[1:]
        if self.turns > 1 and len(usual) and shape.total[[0, usual[0]]].sum() > budget:
            turns_wanted = []  # one turn only: one that is like the others
        # The first consecutive ones of the most frequent sort.
        need = max(self.turns - len(turns_wanted), 1)
        for a in range(len(usual) - need + 1):
            if usual[a + need - 1] - usual[a] == need - 1:
                usual = usual[a:]
                break
        turns_wanted += usual[:need].tolist()
        chosen: list[int] = []
        for turn in turns_wanted:
            if not chosen or int(shape.total[[*chosen, turn]].sum()) <= budget:
                chosen.append(turn)
        # Calls that are in none of them.
        covered = {
            k: np.isin(
                self.kinds[k].row[events], self.kinds[k].row[events[np.isin(shape.turn[k], chosen)]]
            )
            for k, events in once.items()
        }
        for _ in range(_MORE_TURNS):
            missing = [
                int(shape.turn[k][np.argmin(ok)]) for k, ok in covered.items() if not ok.all()
            ]
            if not missing or int(shape.total[[*chosen, min(missing)]].sum()) > budget:
                break
            chosen.append(min(missing))
            for k, events in once.items():
                row = self.kinds[k].row[events]
                covered[k] |= np.isin(row, row[shape.turn[k] == chosen[-1]])
        return np.asarray(sorted(chosen), dtype=np.int64)

    def _share(
        self, loop: int, level: int, once: Events, scope: Events, shape: _Shape, where: str
    ) -> None:
        """Take the same share of everybody's iterations, where ranks turn differently often."""
        share = min(self.most_steps / shape.entry, self.most_total / int(shape.total.sum()), 1.0)
        picked = {}
        most = 1
        for k, events in once.items():
            turn = self.kinds[k].turns[events, level]
            pick = turn < np.ceil(share * (int(turn.max(initial=0)) + 1))
            most = max(most, int(turn[pick].max(initial=0)) + 1)
            picked[k] = (events[pick], turn[pick], np.zeros(int(pick.sum()), dtype=np.int64))
        turns = (most, 0, self._run_turns(loop, shape))
        self._add(self._window_name(where, loop, turns), level, scope, picked, turns=turns)

    # ---- loops with long iterations ---------------------------------------------------------
    def _take_apart(
        self, loop: int, level: int, once: Events, scope: Events, shape: _Shape, where: str
    ) -> None:
        """Cut one iteration of each sort again; the others count to the most frequent sort."""
        sorts, of_turn, number = np.unique(shape.like, return_inverse=True, return_counts=True)
        of_turn = of_turn.reshape(-1)
        chosen = np.argsort(-number, kind="stable")[:_SORTS].tolist()
        for sort in chosen:
            turns = np.flatnonzero(of_turn == sort)
            turn = int(turns[min(1, len(turns) - 1)])
            stands = of_turn == sort
            if sort == chosen[0]:
                stands |= ~np.isin(of_turn, chosen)
            iteration = {k: events[shape.turn[k] == turn] for k, events in once.items()}
            mine = {}
            for k, events in scope.items():
                t = self.kinds[k].turns[events, level]
                mine[k] = events[
                    np.where(
                        t < shape.trips, stands[np.minimum(t, shape.trips - 1)], sort == chosen[0]
                    )
                ]
                iteration.setdefault(k, np.zeros(0, dtype=np.int64))
            name = f"loop {loop}, iteration {turn} of {self._run_turns(loop, shape)}"
            self.body(level + 1, iteration, mine, f"{where}, {name}" if where else name)


def _drop_empty(events: Events) -> Events:
    return {k: them for k, them in events.items() if len(them)}
