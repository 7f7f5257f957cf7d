"""The model as a Python module of its own: functions of the process count and the rank.

Only names made here and literals of numbers and printable text get into the source; equations are
written from the data (p3s.laws.symbolic). What a rule of this version cannot be written for is
listed in LEFT_OUT of the module.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import permutations
from typing import Any

from p3s.errors import P3SError
from p3s.laws.counts import WorkLaw
from p3s.laws.expr import SYMBOLS, symbols_of
from p3s.laws.symbolic import to_python
from p3s.model import text
from p3s.report.places import Places, joined_places, phase_place
from p3s.report.python_guards import NotExpressible, condition
from p3s.text import visible
from p3s.version import __version__

#: Modules whose definitions are copied where they are used.
_SOURCES = ("plain_grids.py", "plain_partners.py")
_IMPORTS = """\
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
"""
#: Words that a relation, a communicator or a grid may be made of.
_WORDS = frozenset(
    {
        "self",
        "root",
        "shift",
        "place",
        "along",
        "far",
        "mirror",
        "opposite",
        "transpose",
        "modulo",
        "fold",
        "xor",
        "stride",
        "level",
        "tree",
        "heap",
        "others",
        "steps",
        "half",
        "power",
        "pairs",
        "low",
        "plus",
        "minus",
        "meet",
        "up",
        "down",
        "world",
        "axes",
        "nodes",
        "parts",
        "spread",
        "without",
        "floor",
        "tail",
        "short",
        "ceil",
        "first",
        "reverse",
        "grid",
        "line",
        "greedy",
        "balanced",
        "nested",
        "greedy_up",
        "balanced_up",
        "nested_up",
        "power2",
        "bits",
        "cube",
        "fixed",
        "row",
        "column",
        "where",
        "last",
        "skew",
        "c0",
        "c1",
        "c2",
        "c3",
        "",
        "listed",
        *("".join(order) for ndims in (3, 4) for order in permutations("0123"[:ndims])),  # of ranks
    }
)


def render(model: Mapping[str, Any], places: Places) -> tuple[str, dict[int, str]]:
    """Return the source of the module, and why calls (items) are left out of it."""
    calls, left_out = [], {}
    for i, item in enumerate(model["items"]):
        try:
            calls.append(_call(model, i, item, places))
        except NotExpressible as error:
            left_out[i] = str(error)
            calls.append(_no_call(i))
    phases = [_phase(model, phase, places) for phase in model["phases"]]
    body = "\n\n".join([_grid(model), *calls, *phases, _table(model, left_out)])
    return "\n".join([_head(model), _IMPORTS, "", _used(body), "", body]) + "\n", left_out


# ---- frame -------------------------------------------------------------------------------------
def _head(model: Mapping[str, Any]) -> str:
    counts = ", ".join(str(int(n)) for n in model["counts"])
    return f'''"""Equations of an MPI program, fitted at {counts} processes by p3s {__version__}.

PHASES[k] is phase k of the model: weight(n), destinations(rank, n), sources(rank, n),
bytes(rank, n), rows(rank, n) and work(n), the work of a rank in the whole run in WORK_UNIT. The
work of a row is the law of its call alone. A count that the program's process grid does not admit
raises ValueError. Only the standard library is needed.
"""
'''


def _grid(model: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            f"COUNTS = {_literal([int(n) for n in model['counts']])}",
            f"WORK_UNIT = {ascii(visible(str(model['work_unit'])))}",
            f"# {visible(text.grid_text(model), 2000)}",
            f"GRID = {_grid_source(model['grid']['family'])}",
        ]
    )


def _grid_source(family: Mapping[str, Any]) -> str:
    known = {"kind", "ndims", "order", "extent", "rest", "layout", "part", "listed"}
    if set(family) - known:
        raise P3SError("model: its process grid has no plain Python form in this version")
    return (
        f"Grid({_literal(family['kind'])}, {int(family['ndims'])}, "
        f"{_literal([int(d) for d in family['order']])}, {int(family['extent'])}, "
        f"{_literal(family.get('rest', 'balanced'))}, {_literal(family.get('layout', 'row'))}, "
        f"{_literal(family.get('part', ''))}, {_literal(family.get('listed', []))})"
    )


def _table(model: Mapping[str, Any], left_out: Mapping[int, str]) -> str:
    rows = ", ".join(f"{p['phase']}: phase_{p['phase']}" for p in model["phases"])
    reasons = "".join(f"    {i}: {ascii(visible(why))},\n" for i, why in sorted(left_out.items()))
    return (
        f"PHASES = {{{rows}}}\n"
        "# calls that follow no rule, or one that has no form here: number and reason\n"
        f"LEFT_OUT = {{\n{reasons}}}"
        if reasons
        else f"PHASES = {{{rows}}}\nLEFT_OUT = {{}}"
    )


def _used(body: str) -> str:
    """Return the definitions that a source needs, in the order in which they were written."""
    defined: dict[str, tuple[str, set[str]]] = {}
    folder = resources.files("p3s.report")
    for name in _SOURCES:
        source = (folder / name).read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            for made in _defines(node):
                defined[made] = (ast.get_source_segment(source, node) or "", _names(node))
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
                    first = node.decorator_list[0].lineno - 1
                    lines = source.split("\n")[first : node.end_lineno]
                    defined[made] = ("\n".join(lines), _names(node))
    wanted, todo = set(), _names(ast.parse(body)) | {"Phase"}
    while todo:
        name = todo.pop()
        if name in defined and name not in wanted:
            wanted.add(name)
            todo |= defined[name][1]
    parts = [piece for name, (piece, _) in defined.items() if name in wanted]
    return "\n\n\n".join(parts) + "\n\n"


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign):
        return [t.id for t in node.targets if isinstance(t, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


# ---- phases ------------------------------------------------------------------------------------
def _phase(model: Mapping[str, Any], phase: Mapping[str, Any], places: Places) -> str:
    k, law = int(phase["phase"]), phase["weight"]
    if "expr" in law and law["expr"][0] == "num" and law["expr"][2] == 1:
        weight, args, called = "", [], str(max(int(law["expr"][1]), 0))
    elif "expr" in law:
        weight = _function(law["expr"], f"_weight_{k}")
        args = _arguments(law["expr"])
        called = f"_weight_{k}({', '.join(args)})"
    else:
        weight, args = "", []
        called = f"max(round({_work_source(law['stat'])}), 0)"
    grid = _unpacked(model, args)
    calls = [f"call_{i}" for i in phase["items"]]
    order = {
        int(i): (
            model["items"][i]["loop_start"]
            if model["items"][i]["loop_start"] is not None
            else model["items"][i]["order"],
            model["items"][i]["loop_start"] is not None,
            model["items"][i]["order"],
        )
        for i in phase["items"]
    }
    parent = "None" if phase["parent"] is None else str(int(phase["parent"]))
    place = phase_place(model, phase, places)
    return "\n".join(
        [
            f"# phase {k}: {visible(str(phase['name']))}" + (f", at {place}" if place else ""),
            *([weight, ""] if weight else []),
            f"def weight_{k}(n):",
            *grid,
            f"    return {called}",
            "",
            "",
            f"def work_{k}(n):",
            f"    return {_work_source(phase['work']['law'])}",
            "",
            "",
            f"phase_{k} = Phase(",
            f"    {k}, {ascii(visible(str(phase['name'])))}, {parent},",
            f"    {ascii(visible(str(phase.get('weight_verdict', ''))))}, weight_{k}, work_{k},",
            f"    ({''.join(name + ', ' for name in calls).rstrip()}),",
            f"    {order!r},",
            ")",
        ]
    )


def _unpacked(model: Mapping[str, Any], args: Iterable[str], rank: bool = False) -> list[str]:
    """Return lines that give the extents and coordinates among ``args`` their values."""
    ndims, used = int(model["grid"]["family"]["ndims"]), set(args)
    lines = []
    for letter, value in (("p", "GRID.dims(n)"), ("c", "GRID.coordinates(rank, n)")):
        names = [f"{letter}{d}" for d in range(ndims)]
        if used.intersection(names) and (letter == "p" or rank):
            lines.append(f"    {', '.join(names)}{',' * (ndims == 1)} = {value}")
    return lines


# ---- calls -------------------------------------------------------------------------------------
def _no_call(i: int) -> str:
    return f"def call_{i}(rank, n):\n    return []\n"


def _call(model: Mapping[str, Any], i: int, item: Mapping[str, Any], places: Places) -> str:
    """Return the functions of one call; raises NotExpressible."""
    frames = model["sites"].get(item["site"]) or ["?"]
    target = text.destination(item, item["slots"][0]) if item["slots"] else ""
    lines = [
        f"# {visible(str(item['op']))} {text.kind_word(item['kind'])} {visible(target)}, "
        f"{visible(joined_places([frames], places), 160)} [{item['verdict']}]"
    ]
    helpers: list[str] = []
    body = [f"def call_{i}(rank, n):", "    found = []"]
    used: set[str] = set()
    inner: list[str] = []
    for k, slot in enumerate(item["slots"]):
        if slot["guard"] is None:
            raise NotExpressible(str((item["why"] or ["no rule"])[0]))
        made = _Slot(model, i, k, item, slot)
        helpers += made.helpers
        used |= made.used
        inner += made.lines
    body[1:1] = _unpacked(model, used, rank=True)
    above = [f"{helper}\n" for helper in dict.fromkeys(helpers)]
    return "\n".join([*lines, *above, *body, *inner, "    return found"]) + "\n"


class _Slot:
    """The lines of one slot: which stages and ranks, how often, how large."""

    def __init__(
        self,
        model: Mapping[str, Any],
        i: int,
        k: int,
        item: Mapping[str, Any],
        slot: Mapping[str, Any],
    ) -> None:
        self.model, self.item, self.slot = model, item, slot
        self.name, self.ndims = f"{i}_{k}", int(model["grid"]["family"]["ndims"])
        self.helpers: list[str] = []
        self.used: set[str] = set()
        self.turn = "0"
        self.row = f"{i}, {k}, {ascii(visible(str(item['op'])))}, {ascii(str(item['kind']))}"
        self.lines = self._follows() if "follows" in slot["count"] else self._direct()

    def _direct(self) -> list[str]:
        slot, related = self.slot, self.slot["relation"] is not None
        guard = self._guard(slot["guard"])
        lines = []
        if related:
            self.helpers.append(self._relation(slot["relation"], f"_PARTNER_{self.name}"))
            lines.append(f"    stages = partners(_PARTNER_{self.name}, rank, n, GRID)")
            lines.append("    for stage, partner in enumerate(stages):")
            if "step" in guard:  # 2**step is the distance, whatever the order
                back = slot["relation"].get("descending")
                lines.append(f"        step = {'len(stages) - 1 - stage' if back else 'stage'}")
            self._coordinates_of_partner(lines)
        else:
            law = self._place()
            lines.append("    for stage, partner in ((0, -1),):")
            if law != "world":
                guard = " and ".join(
                    [f"colour({law}, rank, n, GRID) >= 0", *([guard] if guard else [])]
                )
        pad = "        "
        if guard:
            lines.append(f"{pad}if {guard}:")
            pad += "    "
        times = self._times()
        if slot.get("turns") is not None:
            first, number = (
                self._law(slot["turns"][key], f"_{key}_{self.name}") for key in ("first", "number")
            )
            lines.append(
                f"{pad}for turn, times in turns_of({first}, {number}, "
                f"{int(slot['turns']['step'])}, {times}):"
            )
            lines.append(f"{pad}    if times > 0:")
            self.turn = "turn"
            return [*lines, *self._row(pad + "        ", "times", self._root(), "turn")]
        if not (times.isdigit() and int(times)):
            lines += [f"{pad}times = {times}", f"{pad}if times > 0:"]
            pad, times = pad + "    ", "times"
        return [*lines, *self._row(pad, times, self._root())]

    def _row(self, pad: str, times: str, root: str, turn: str = "0") -> list[str]:
        self.turn = turn
        return [
            f"{pad}found.append(Row(",
            f"{pad}    {self.row}, stage, {turn}, partner,",
            f"{pad}    {self._bytes()}, {times}, {root}, {int(self.item['tag_value'])}, "
            f"{_work_source(self.slot['work'])},",
            f"{pad}))",
        ]

    def _coordinates_of_partner(self, lines: list[str]) -> None:
        law = [e["expr"] for e in (self.slot["count"], self.slot["elements"]) if "expr" in e]
        law += (
            [self.slot["turns"][key] for key in ("first", "number")]
            if self.slot.get("turns") is not None
            else []
        )
        names = [f"q{d}" for d in range(self.ndims)]
        if any(symbols_of(e).intersection(names) for e in law):
            lines.append(
                f"        {', '.join(names)}{',' * (self.ndims == 1)} = "
                "GRID.coordinates(max(partner, 0), n)"
            )

    def _follows(self) -> list[str]:
        law, item = self.slot["count"], self.item
        posts = "".join(f"call_{int(j)}, " for j in law["follows"])
        top, bottom = (int(x) for x in law["factor"])
        family = item.get("stages_of")
        lines = [
            f"    posted = sum(row.times for call in ({posts.rstrip()}) for row in call(rank, n))",
            f"    times = round(posted * {top} / {bottom})"
            if (top, bottom) != (1, 1)
            else "    times = posted",
        ]
        if family is not None:
            relation = self.model["items"][family]["slots"][0]["relation"]
            self.helpers.append(self._relation(relation, f"_STAGES_{self.name}"))
            lines += [
                f"    stages = len(partners(_STAGES_{self.name}, rank, n, GRID))",
                "    if stages < 2 or times % stages:",
                "        stages = 1",
                "    for stage, partner in ((s, -1) for s in range(stages if times else 0)):",
            ]
            return [*lines, *self._row("        ", "times // stages", "-1")]
        lines += ["    stage, partner = 0, -1", "    if times:"]
        return [*lines, *self._row("        ", "times", "-1")]

    # ---- parts of a row ----
    def _law(self, expr: list[Any], name: str) -> str:
        """Write a function of an expression and return the call of it, or a constant."""
        if expr[0] == "num" and expr[2] == 1 and expr[1] >= 0:
            return str(int(expr[1]))
        args = _arguments(expr)
        self.helpers.append(_function(expr, name))
        self.used.update(args)
        words = {"r": "rank", "s": "stage", "t": self.turn}
        return f"{name}({', '.join(words.get(a, a) for a in args)})"

    def _amount(self, stat: Mapping[str, Any], name: str) -> str:
        """Write a function of a statistical amount and return the call of it."""
        if "expr" not in stat:
            return _work_source(stat)
        args = _arguments(stat["expr"])
        self.helpers.append(to_python(stat["expr"], name, args).rstrip("\n"))
        self.used.update(args)
        return f"max({name}({', '.join(args)}), 0.0)"

    def _times(self) -> str:
        law = self.slot["count"]
        if "expr" in law:
            return self._law(law["expr"], f"_times_{self.name}")
        if "total" in law:
            total = self._law(law["total"], f"_total_{self.name}")
            return f"part_of({total}, {self._taking_part()}, rank, stage, n)"
        return f"max(round({self._amount(law['stat'], f'_often_{self.name}')}), 0)"

    def _taking_part(self) -> str:
        """Write a function that lists the stages at which a rank takes part; return its name."""
        name, slot = f"_stages_{self.name}", self.slot
        used_before, self.used = self.used, set()
        guard = self._guard(slot["guard"]) or "True"
        if "step" in guard:
            raise NotExpressible("how often it happens has no plain Python form in this version")
        if slot["relation"] is not None:
            cells = f"enumerate(partners(_PARTNER_{self.name}, rank, n, GRID))"
        else:
            cells = "((0, -1),)"
            law = self._place()
            if law != "world":
                guard = f"colour({law}, rank, n, GRID) >= 0 and {guard}"
        lines = [
            f"def {name}(rank, n):",
            *_unpacked(self.model, self.used, rank=True),
            f"    return [stage for stage, partner in {cells} if {guard}]",
        ]
        self.used |= used_before
        self.helpers.append("\n".join(lines))
        return name

    def _bytes(self) -> str:
        law, width = self.slot["elements"], int(self.slot["elem_bytes"])
        if "expr" not in law:
            return f"round({self._amount(law['stat'], f'_mean_{self.name}')} * {width})"
        size = self._law(law["expr"], f"_elements_{self.name}")
        if size.isdigit():
            return str(int(size) * width)
        return size if width == 1 else f"{width} * {size}"

    def _root(self) -> str:
        root = self.slot["root"]
        if root is None:
            return "-1"
        if set(root) - {"index", "half", "expr"}:
            raise NotExpressible("its root has no plain Python form in this version")
        law = self._place()
        group = f"members({law if law != 'world' else _literal({'kind': 'world'})}, rank, n, GRID)"
        if "expr" in root:
            at = self._law(root["expr"], f"_place_{self.name}")
            self.helpers.append(
                f"def _root_{self.name}(rank, n, place):\n    group = {group}\n"
                "    return group[place] if place < len(group) else -1"
            )
            return f"_root_{self.name}(rank, n, {at})"
        at = '"half"' if root.get("half") else str(int(root["index"]))
        self.helpers.append(
            f"def _root_{self.name}(rank, n):\n    group = {group}\n"
            f"    place = index({at}, len(group))\n"
            "    return group[place] if 0 <= place < len(group) else group[0]"
        )
        return f"_root_{self.name}(rank, n)"

    def _place(self) -> str:
        """Return the name of the communicator's law, or ``world``."""
        law = self.slot["place"] or {"kind": "world"}
        if law["kind"] == "world" and "order" not in law:
            return "world"
        if law["kind"] == "odd":
            raise NotExpressible("no rule found for the communicator's members")
        made = f"_ON_{self.name} = {self._communicator(law, f'_holds_{self.name}')}"
        if made not in self.helpers:
            self.helpers.append(made)
        return f"_ON_{self.name}"

    def _communicator(self, law: Mapping[str, Any], name: str) -> str:
        """Return the source of a communicator's law; its guard becomes the function ``name``."""
        source = _literal(
            _plain_law({k: v for k, v in law.items() if k not in ("ordinal", "guard", "grid")})
        )[:-1]
        if "guard" in law:
            used_before, self.used = self.used, set()
            holds = self._guard(law["guard"], alone=True) or "True"
            self.helpers.append(
                "\n".join(
                    [
                        f"def {name}(rank, n):",
                        *_unpacked(self.model, self.used, rank=True),
                        f"    return {holds}",
                    ]
                )
            )
            self.used = used_before
            source += f", 'holds': {name}"
        if "grid" in law:
            source += f", 'on': {_grid_source(law['grid'])}"
        return source + "}"

    def _relation(self, relation: Mapping[str, Any], name: str) -> str:
        """Return the line that gives a relation its name; its axis may be a communicator."""
        axis = relation.get("axis")
        if not isinstance(axis, Mapping):
            return f"{name} = {_literal(_plain_law(relation))}"
        source = _literal(_plain_law({k: v for k, v in relation.items() if k != "axis"}))
        return f"{name} = {source[:-1]}, 'axis': {self._communicator(axis, f'{name}_holds')}}}"

    def _guard(self, guard: Sequence[Any], alone: bool = False) -> str:
        source, used = condition(
            guard,
            self.ndims,
            alone or self.slot["relation"] is None,
            bool(self.model["grid"]["family"].get("part")),
        )
        self.used |= used
        return source


# ---- literals ----------------------------------------------------------------------------------
def _arguments(expr: list[Any]) -> list[str]:
    used = symbols_of(expr) - {"j"}
    return [name for name in SYMBOLS if name in used]


def _function(expr: list[Any], name: str) -> str:
    return to_python(expr, name, _arguments(expr), whole=True).rstrip("\n")


def _work_source(law: Mapping[str, Any]) -> str:
    """Return a work law as an expression of n."""
    if set(law) - {"terms", "rel_half_width", "max_n", "band", "refused"}:
        raise NotExpressible("a statistical law of this kind has no plain Python form yet")
    terms = []
    for coefficient, power, log in WorkLaw.from_json(dict(law)).terms:
        term = repr(float(coefficient))
        if power:
            term += " * n" if power == 1 else f" * n ** ({power.numerator} / {power.denominator})"
        if log:
            term += " * math.log2(n)" + (f" ** {int(log)}" if log != 1 else "")
        terms.append(term)
    return (f"({' + '.join(terms)})" if len(terms) > 1 else terms[0]) if terms else "0.0"


def _plain_law(law: Mapping[str, Any]) -> dict[str, Any]:
    """Return a relation or communicator as a dict of which every word is known."""
    return {str(key): value for key, value in law.items() if value is not None or key == "axis"}


def _literal(value: Any) -> str:
    """Return numbers, known words and what is made of them as Python source."""
    if isinstance(value, bool) or value is None or type(value) is int:
        return repr(value)
    if isinstance(value, str):
        if value not in _WORDS:
            raise NotExpressible(f"{visible(value, 40)} has no plain Python form in this version")
        return repr(value)
    if isinstance(value, list | tuple):
        return "(" + "".join(f"{_literal(each)}, " for each in value).rstrip() + ")"
    if isinstance(value, Mapping) and all(str(key).isidentifier() for key in value):
        return "{" + ", ".join(f"{ascii(str(k))}: {_literal(v)}" for k, v in value.items()) + "}"
    raise NotExpressible("a rule has no plain Python form in this version")
