"""The model as a Python module: its equations in words and as data, and functions of them.

The data are literals of numbers and text; p3s.model.functions evaluates them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

from p3s.errors import P3SError
from p3s.laws.worklaws import WorkLaw
from p3s.model import text
from p3s.model.functions import VERSION, data_of
from p3s.model.notation import TEXT
from p3s.report.places import Places, joined_places, phase_place
from p3s.text import visible
from p3s.version import __version__

_WIDTH = 98


def render(model: Mapping[str, Any], places: Places) -> tuple[str, dict[int, str]]:
    """Return the source of the module, and why calls (items) are left out of it."""
    data = data_of(model)
    left_out = {i: str((item["why"] or ["no rule"])[0]) for i, item in _without_rule(model)}
    phases = [_words_of_phase(model, phase, places) for phase in model["phases"]]
    calls = [_words_of_call(model, i, places) for i in range(len(data.calls))]
    segments = [_words_of_segments(model, place) for place in data.segments]
    parts = [
        _head(model),
        "# calls with ranks that follow no rule: number and reason",
        f"LEFT_OUT = {_literal({i: visible(why) for i, why in left_out.items()})}",
        "",
        *_comment(f"process grid: {text.grid_text(model)}"),
        f"GRID = {_literal(data.grid)}",
        "",
        *_list("LAWS", data.laws, phases),
        *_list("CALLS", data.calls, calls),
        *_list("SEGMENTS", data.segments, segments),
        f"PHASES = phases({VERSION}, COUNTS, GRID, LAWS, CALLS, SEGMENTS)",
    ]
    return "\n".join(parts) + "\n", left_out


def _without_rule(model: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for i, item in enumerate(model["items"]):
        if any(slot["guard"] is None for slot in item["slots"]):
            yield i, item


def _head(model: Mapping[str, Any]) -> str:
    counts = tuple(int(n) for n in model["counts"])
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
WORK_UNIT = {_literal(visible(str(model["work_unit"])))}'''


# ---- words ---------------------------------------------------------------------------------------
def _words_of_phase(
    model: Mapping[str, Any], phase: Mapping[str, Any], places: Places
) -> list[str]:
    place = phase_place(model, phase, places)
    weight = TEXT.in_words_of(model, text.weight_text(phase["weight"]))
    work = WorkLaw.from_json(phase["work"]["law"]).text(text.unit_of(model))
    return [
        f"phase {phase['phase']}: {phase['name']}" + (f", at {place}" if place else ""),
        f"  weight = {weight}  [{phase.get('weight_verdict', '?')}]",
        f"  work of a rank in the run = {work}",
    ]


def _words_of_call(model: Mapping[str, Any], i: int, places: Places) -> list[str]:
    item = model["items"][i]
    frames = model["sites"].get(item["site"]) or ["?"]
    lines = [
        f"call {i}: {item['op']}, phase {item['phase']}, at "
        f"{visible(joined_places([frames], places), 160)}  [{item['verdict']}]"
    ]
    return lines + [words for slot in item["slots"] for words in _words_of_slot(model, item, slot)]


def _words_of_slot(
    model: Mapping[str, Any], item: Mapping[str, Any], slot: Mapping[str, Any]
) -> list[str]:
    target, who = text.destination(item, slot), text.condition(slot)
    often = text.repeats(model, model["phases"][item["phase"]], slot)
    said = [
        f"{text.kind_word(item['kind'])} {target}".strip(),
        f"for {who}" if who else "",
        f"{volume} bytes" if (volume := TEXT.volume(item, slot)) else "",
        often,
    ]
    words = "; ".join(filter(None, said))
    return [f"  {TEXT.in_words_of(model, words)}"] if words else []


def _words_of_segments(model: Mapping[str, Any], place: Mapping[str, Any]) -> list[str]:
    names = [str(before[1]) if before is not None else "the start" for before in place["from"]]
    laws = [
        TEXT.in_words_of(model, TEXT.segment(segment["terms"])) for segment in place["segments"]
    ]
    return [
        f"work before calls {', '.join(map(str, place['items']))} ({place['place'][1]})",
        *(f"  after {name}: {law}" for name, law in zip(names, laws, strict=True)),
    ]


def _comment(*lines: str) -> list[str]:
    return [
        f"# {piece}"
        for line in lines
        for piece in wrap(visible(line, 2000), _WIDTH - 6, subsequent_indent="    ")
    ]


# ---- data ----------------------------------------------------------------------------------------
def _list(name: str, data: Sequence[Any], words: Sequence[list[str]]) -> Iterator[str]:
    """Return the lines of a list; above each entry is a comment that says it in words."""
    yield f"{name} = ["
    for each, lines in zip(data, words, strict=True):
        yield from (f"    {line}" for line in _comment(*lines))
        yield f"    {_literal(each, 4)},"
    yield "]\n"


def _literal(value: Any, indent: int = 0, before: int = 0) -> str:
    """Return numbers, texts and what is made of them as a Python literal; long ones take lines.

    before: characters that stand before it on its first line.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise P3SError("model: a number in it is not finite; run p3s model again")
    inner = indent + 4
    if isinstance(value, Mapping):
        parts = [
            f"{ascii(key)}: {_literal(each, inner, len(str(key)) + 4)}"
            for key, each in value.items()
        ]
        ends = "{}"
    elif isinstance(value, list | tuple):
        parts = [_literal(each, inner) for each in value]
        ends = "[]" if isinstance(value, list) else "()"
    else:
        return ascii(value)
    line = ", ".join(parts) + "," * (ends == "()" and len(parts) == 1)
    if len(line) + indent + before < _WIDTH - 2 and "\n" not in line:
        return ends[0] + line + ends[1]
    if all(part.isdigit() for part in parts):
        parts = wrap(", ".join(parts), _WIDTH - inner)
        parts = [part.rstrip(",") for part in parts]
    pad = "\n" + " " * inner
    return ends[0] + "".join(f"{pad}{part}," for part in parts) + "\n" + " " * indent + ends[1]
