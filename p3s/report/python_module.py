"""The model as a Python module: its equations in words and as data, and functions of them.

The data are literals of numbers and text; p3s.model.functions evaluates them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pprint import pformat
from textwrap import wrap
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.serialise import to_data
from p3s.base.text import visible
from p3s.base.version import __version__
from p3s.model import text
from p3s.model.functions import VERSION, bare
from p3s.model.notation import TEXT
from p3s.model.types import Item, Model, Phase, Slot
from p3s.model.work_types import WorkPlace
from p3s.report.places import Places, joined_places, phase_place

_WIDTH = 98


def render(model: Model, places: Places) -> tuple[str, dict[int, str]]:
    """Return the source of the module, and why calls (items) are left out of it."""
    left_out = {
        i: visible(item.why[0].sentence if item.why else "no rule")
        for i, item in enumerate(model.items)
        if any(slot.guard is None for slot in item.slots)
    }
    data = to_data(bare(model))
    if not _finite(data):
        raise P3SError("model: a number in it is not finite; run p3s model again")
    words = {
        "phases": [_words_of_phase(model, phase, places) for phase in model.phases],
        "items": [_words_of_call(model, i, places) for i in range(len(model.items))],
    }
    parts = [
        _head(model),
        "# calls with ranks that follow no rule: number and reason",
        f"LEFT_OUT = {_literal(left_out)}",
        "",
        *_comment(f"process grid: {text.grid_text(model)}"),
        "MODEL = {",
        *(line for key, value in data.items() for line in _entry(key, value, words.get(key))),
        "}",
        "",
        f"PHASES = phases({VERSION}, MODEL)",
    ]
    return "\n".join(parts) + "\n", left_out


def _finite(value: Any) -> bool:
    """Tell whether all numbers of plain data are finite."""
    if isinstance(value, Mapping | list | tuple):
        return all(map(_finite, value.values() if isinstance(value, Mapping) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _head(model: Model) -> str:
    counts = model.counts
    title = (
        f"Equations of an MPI program, fitted at {', '.join(map(str, counts))} processes by "
        f"p3s {__version__}."
    )
    return f'''"""{title}

PHASES[k] is phase k of the model: weight(n), destinations(rank, n), sources(rank, n),
bytes(rank, n), rows(rank, n) and work(n), the work of a rank in the whole run in WORK_UNIT. A row
is one of the scaled trace. A count that the program's process grid does not admit raises
ValueError. p3s has to be installed.
"""

from p3s.model.functions import phases

COUNTS = {_literal(counts)}
WORK_UNIT = {_literal(visible(model.work_unit))}'''


# ---- words ---------------------------------------------------------------------------------------
def _words_of_phase(model: Model, phase: Phase, places: Places) -> list[str]:
    place = phase_place(model, phase, places)
    weight = TEXT.in_words_of(model, text.weight_text(phase.weight))
    return [
        f"phase {phase.phase}: {phase.name}" + (f", at {place}" if place else ""),
        f"  weight = {weight}  [{phase.weight_verdict}]",
        f"  work of a rank in the run = {phase.work.law.text(text.unit_of(model))}",
        *(line for each in phase.work.places for line in _words_of_segments(model, each)),
    ]


def _words_of_call(model: Model, i: int, places: Places) -> list[str]:
    item = model.items[i]
    frames = list(model.sites.get(item.site, ())) or ["?"]
    lines = [
        f"call {i}: {item.op}, phase {item.phase}, at "
        f"{visible(joined_places([frames], places), 160)}  [{item.verdict}]"
    ]
    return lines + [words for slot in item.slots for words in _words_of_slot(model, item, slot)]


def _words_of_slot(model: Model, item: Item, slot: Slot) -> list[str]:
    target, who = text.destination(item, slot), text.condition(slot)
    volume = TEXT.volume(item, slot)
    said = [
        f"{text.kind_word(item.kind)} {target}".strip(),
        f"for {who}" if who else "",
        f"{volume} bytes" if volume else "",
        text.repeats(model, model.phases[item.phase], slot),
    ]
    words = "; ".join(filter(None, said))
    return [f"  {TEXT.in_words_of(model, words)}"] if words else []


def _words_of_segments(model: Model, place: WorkPlace) -> list[str]:
    names = [before[1] if before is not None else "the start" for before in place.before]
    laws = [TEXT.in_words_of(model, TEXT.segment(segment.terms)) for segment in place.segments]
    return [
        f"  work before calls {', '.join(map(str, place.items))} ({place.place[1]})",
        *(f"    after {name}: {law}" for name, law in zip(names, laws, strict=True)),
    ]


def _comment(*lines: str) -> list[str]:
    return [
        f"# {piece}"
        for line in lines
        for piece in wrap(visible(line, 2000), _WIDTH - 6, subsequent_indent="    ")
    ]


# ---- data ----------------------------------------------------------------------------------------
def _entry(key: str, value: Any, words: Sequence[list[str]] | None) -> Iterator[str]:
    """Return the lines of an entry; each element of a list with words has them above it."""
    if words is None:
        yield f"    {ascii(key)}: {_literal(value, 4)},"
        return
    yield f"    {ascii(key)}: ["
    for each, lines in zip(value, words, strict=True):
        yield from (f"        {line}" for line in _comment(*lines))
        yield f"        {_literal(each, 8)},"
    yield "    ],"


def _literal(value: Any, indent: int = 0) -> str:
    """Return numbers, texts and what is made of them as a Python literal; long ones take lines."""
    text = pformat(value, width=_WIDTH - indent - 2, compact=True, sort_dicts=False)
    text = text.encode("ascii", "backslashreplace").decode("ascii")
    return text.replace("\n", "\n" + " " * indent)
