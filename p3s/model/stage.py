"""The model stage: signatures in, model.json out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.artefacts import LastRead, read_json, write_json
from p3s.base.errors import OtherVersion, P3SError, UsageError
from p3s.base.extents import extents_in, names_count, shape
from p3s.capture.layout import MAX_RANKS
from p3s.laws.expr import Expr
from p3s.laws.expr import check as check_expr
from p3s.model.grid import domain_grids, grids, uncut
from p3s.model.grid.stated import Contradiction, Extents, Statement, of_arguments
from p3s.model.law_types import LoopRule, OrderedItem
from p3s.model.order.patterns import check as check_patterns
from p3s.model.partners import stencil
from p3s.model.types import Item, Model, Phase, Slot

if TYPE_CHECKING:
    from p3s.signature.tables import PointTable

#: The model's file in a study.
NAME = "model.json"

#: How far weights that were written with their digits may be from 1 together.
_ROUNDING = 1e-6


def check(model: Model) -> None:
    """Raise ValueError, with what is wrong, where a model cannot be used."""
    if not model.counts or min(model.counts) < 1:
        raise ValueError("it was fitted to no process count")
    if max(model.counts) > MAX_RANKS:
        raise ValueError(f"it was fitted to {max(model.counts)} processes, more than are traced")
    if min((*model.admissible.counts, *model.admissible.failed), default=1) < 1:
        raise ValueError("a process count is below 1")
    _check_tree([p.parent for p in model.phases], "phases")
    for k, phase in enumerate(model.phases):
        if phase.phase != k:
            raise ValueError("phases are out of order")
        _in_range(phase.items, len(model.items), "an item of a phase")
    for item in model.items:
        _in_range([item.phase], len(model.phases), "the phase of an item")
        _in_range([] if item.stages_of is None else [item.stages_of], len(model.items), "a family")
        for slot in item.slots:
            _in_range(slot.count.follows or (), len(model.items), "an item that is followed")
    check_loops(model.order.loops if model.order is not None else (), model.items)
    for item in model.items:
        for slot in item.slots:
            count, size = slot.count, slot.elements
            _one_of("a number of calls", count.expr, count.total, count.stat, count.follows)
            _one_of("a size", size.expr, size.stat)
            if slot.root is not None:
                _one_of("a root", slot.root.expr, slot.root.half, slot.root.index)
        check_exprs(expr for slot in item.slots for expr in _of_slot(slot))
    for phase in model.phases:
        _one_of(f"the iterations of phase {phase.phase}", phase.weight.expr, phase.weight.stat)
        for occurs in (o for p in phase.work.places for case in p.cases for o in case.counts):
            known = (occurs.const, occurs.like, occurs.expr, occurs.share, occurs.rest)
            _one_of("how often a segment occurs", *known)
    check_exprs(expr for phase in model.phases for expr in _of_phase(phase))
    level = model.level
    if level is not None:
        weights = level.weights.values()
        if min(weights, default=-1.0) < 0 or abs(sum(weights) - 1.0) > _ROUNDING:
            raise ValueError("the weights of the laws of work do not add up to 1")
        laws = set(level.weights)
        missing = laws != {"segments"} and not laws <= set(level.errors)
        if missing or min(level.errors.values(), default=0.0) < 0:
            raise ValueError("the errors of the laws of work are not known")


def check_loops(loops: Sequence[LoopRule], items: Sequence[Item | OrderedItem]) -> None:
    """Raise ValueError for loops that are around themselves, or not there, or without a form."""
    known = {loop.loop for loop in loops}
    for loop in loops:
        if loop.parent not in known | {0} or loop.parent >= loop.loop:
            raise ValueError("a loop is around itself")
        for trips in loop.trips:
            check_patterns(trips.when or ())
            if trips.law is not None:
                _one_of("the iterations of a loop", trips.law.expr, trips.law.listed)
                check_exprs([trips.law.expr])
    for item in items:
        if loops and not known.issuperset(item.loops or ()):
            raise ValueError("an item is in a loop that is not there")
        for slot in item.slots:
            for rule in slot.when or ():
                check_patterns(rule.when or ())


def check_exprs(exprs: Iterable[Expr | None]) -> None:
    """Raise ValueError for an equation that is none; None stands for no equation."""
    for expr in exprs:
        if expr is not None:
            check_expr(expr)


def _of_slot(slot: Slot) -> Iterator[Expr | None]:
    yield from (slot.count.expr, slot.count.total, slot.count.per_turn, slot.elements.expr)
    yield from (*(slot.count.rivals or ()), *(slot.elements.rivals or ()))
    if slot.turns is not None:
        yield from (slot.turns.first, slot.turns.number)
    if slot.root is not None:
        yield slot.root.expr
    if slot.elements.stat is not None:
        yield slot.elements.stat.expr


def _of_phase(phase: Phase) -> Iterator[Expr | None]:
    yield phase.weight.expr
    for place in phase.work.places:
        for segment in place.segments:
            for terms in (segment.terms, *segment.rivals):
                yield from (expr for _, expr, _ in terms)
        yield from (law.expr for case in place.cases for law in case.counts)


def _one_of(what: str, *laws: object) -> None:
    if sum(law is not None for law in laws) != 1:
        raise ValueError(f"{what}: no law, or several")


def _in_range(numbers: Iterable[int], end: int, what: str) -> None:
    for number in numbers:
        if not 0 <= number < end:
            raise ValueError(f"{what} is number {number}, and there are {end}")


def _check_tree(parents: Sequence[int | None], what: str) -> None:
    """Raise ValueError unless parents come before their children and only the first has none."""
    for k, parent in enumerate(parents):
        if (parent is None) != (k == 0) or (parent is not None and not 0 <= parent < k):
            raise ValueError(f"the nest of {what} is broken at {k}")


#: The kinds of relations and grids that a model may hold are known once they are imported.
RULES = (*stencil.KINDS, domain_grids, grids, domain_grids, uncut)


SCHEMA = "p3s.model"
#: Keys of the file that are none of the model.
_HEAD = ("schema", "schema_version")
#: What is raised for a model that is not as it should be.
_WRONG = (P3SError, ValueError, TypeError, KeyError, IndexError)


@dataclass(frozen=True)
class ProgramFacts:
    """What a study knows of its program beside signatures; by default nothing.

    command: the launcher command. ran: process counts with a complete run; failed: those that the
    program refused; without: those of ran that the user leaves out. trips: iterations of loops,
    stated: the grid, both as the user says. traced_as: extents that runs were given, by count;
    extents: those that the program gets as arguments, where they are listed. modelled: whether
    there is a model.
    """

    command: Sequence[str] = ()
    ran: Sequence[int] = ()
    failed: Sequence[int] = ()
    without: Sequence[int] = ()
    trips: Mapping[str, int] = field(default_factory=dict)
    stated: Statement = Statement()
    traced_as: Mapping[int, Extents] = field(default_factory=dict)
    extents: Mapping[int, Extents] = field(default_factory=dict)
    modelled: bool = False

    @property
    def counts(self) -> list[int]:
        """The process counts that the model rests on."""
        return [n for n in self.ran if n not in self.without]

    @property
    def grid(self) -> Statement:
        """All that is known of the process grid."""
        ndims = len(extents_in(self.command))
        given = of_arguments(ndims, self.extents) if ndims else Statement()
        return self.stated.merged(given) if self.stated and given else self.stated or given


def build(
    tables: Sequence[PointTable],
    known: ProgramFacts,
    captures: Mapping[int, Path],
    source: Path,
    holdout: bool = True,
) -> Model:
    """Return the model of signatures.

    captures: a complete run of each count; source: the file that holds what the user states, as
    errors name it. Raises Contradiction where the stated grid does not fit the traces.
    """
    from p3s.model.holdout import build_model
    from p3s.model.order.unfold import with_chance

    if len(tables) < 3:
        raise P3SError(
            f"model: {source.parent} holds signatures of {len(tables)} process counts, "
            "three are needed (two to fit, one held out); run `p3s characterize` at "
            "more"
        )
    typed = typed_numbers(known.command)
    try:
        model = build_model(tables, holdout, typed, known.failed, known.trips, known.grid, source)
    except Contradiction as err:
        raise Contradiction(
            f"{source.parent}: the grid that is stated ({known.grid.text()}) does not fit the "
            f"traces: {err}; correct it with p3s model --grid, or take it back with --grid none"
        ) from err
    return replace(as_of_now(with_chance(model, captures), known), without=tuple(known.without))


def write(path: Path, model: Model, made_of: Sequence[Path] = ()) -> None:
    """Write a model, made of these files."""
    write_json(path, as_file(model), made_of)
    with suppress(*_WRONG):  # else reading it says so
        check(model)
        _last_read.keep(path, model)


def as_of_now(model: Model, known: ProgramFacts) -> Model:
    """Return a model with what all runs, later ones too, tell of the counts that it takes.

    A count that was refused since is proposed no more.
    """
    from p3s.model.grid.admissible import relearn

    now = relearn(model.admissible, known.ran, known.failed, model.grid.cart)
    if now == model.admissible:
        return model
    from p3s.model.nextcount import next_counts

    model = replace(model, admissible=now)
    return replace(model, next=next_counts(model))


def typed_numbers(command: Sequence[str]) -> set[int]:
    """Return the numbers among a program's arguments (--nx=300, 4x8), hints at its extents.

    The program is the first word after the one with {np} that is no option and no number.
    """
    words = list(command)
    start = next((i + 1 for i, w in enumerate(words) if names_count([w])), 0)
    while start < len(words) and (words[start].startswith("-") or words[start].isdigit()):
        start += 1
    return {
        int(d)
        for w in words[start + 1 :]
        if "/" not in w
        for d in re.findall(r"\d+", w)
        if len(d) <= 12
    }


def grid_changed(model: Model, known: ProgramFacts) -> bool:
    """Tell whether something else is known of the grid now than when the model was fitted."""
    then = model.grid.stated or (model.grid.dropped.said if model.grid.dropped else None)
    return known.grid.to_json() != (then or Statement()).to_json()


def load(root: Path) -> Model:
    """Return the model in a study's directory, its shape and its equations checked.

    Raises P3SError in one line for a model that is damaged or of another version.
    """
    from p3s.model.evaluate import generate

    path = Path(root) / NAME
    model = read(path)
    try:
        generate(model, min(model.counts))  # a rule that cannot be evaluated fails here
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as err:
        why = " ".join(str(err).split())[:80] or type(err).__name__
        raise _damage_error(path, why) from err
    return model


def read(path: Path) -> Model:
    """Return the model in a file, checked: types, references, equations.

    Raises P3SError in one line for one that is damaged or of another version.
    """
    return _last_read(path)


def _parse_model(path: Path) -> Model:
    from p3s.base.serialise import from_data

    try:
        data = read_json(path, SCHEMA)
    except OtherVersion as err:
        why = "another version of p3s wrote it; run `p3s model` again"
        raise OtherVersion(f"{path}: {why}") from err
    try:
        model = from_data(Model, {k: v for k, v in data.items() if k not in _HEAD})
        check(model)
    except _WRONG as err:
        raise _damage_error(path, " ".join(str(err).split())[:120]) from err
    return model


_last_read = LastRead(_parse_model)


def as_file(model: Model) -> dict[str, object]:
    """Return a model as it is written: plain data with the name and version of its schema."""
    from p3s.base.artefacts import VERSIONS
    from p3s.base.serialise import to_data

    return {"schema": SCHEMA, "schema_version": VERSIONS[SCHEMA], **to_data(model)}


def _damage_error(path: Path, why: str) -> P3SError:
    return P3SError(f"{path}: damaged or of another version ({why}); run `p3s model` again")


def check_dims(known: ProgramFacts, given: Mapping[int, Extents], counts: Sequence[int]) -> None:
    """Refuse extents other than those with which a count was traced that is not run again."""
    for n, was in known.traced_as.items():
        wanted = given.get(n, was)
        if wanted != was and n not in counts:
            raise UsageError(
                f"--dims {n}={shape(wanted)}: {n} processes were traced as "
                f"{shape(was)}; add {n} to -n to trace them again"
            )
