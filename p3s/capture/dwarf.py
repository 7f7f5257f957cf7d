"""Functions and lines from DWARF, decoded only for the compilation units that are asked for."""

from __future__ import annotations

import bisect
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from p3s.capture.modules import readable


@dataclass(frozen=True)
class Line:
    """What debug information says of an address: empty or 0 where it says nothing.

    ``around``: the functions this one was inlined into, innermost first, each at its call.
    """

    function: str = ""
    file: str = ""
    line: int = 0
    around: tuple[Line, ...] = ()


def lines_of(dwarf: Any, wanted: list[int]) -> dict[int, Line]:
    """Return what debug information (of pyelftools) says of ascending addresses."""
    found: dict[int, Line] = {}
    for unit, addresses in _units(dwarf, wanted):
        chains = _functions(unit, addresses)
        program = dwarf.line_program_for_CU(unit)
        places = _places(program, addresses)
        for address in addresses:
            number, line = places.get(address, (-1, 0))
            frames: list[Line] = []
            for name, call_file, call_line in reversed(chains.get(address, [("", -1, 0)])):
                file = _file_name(unit, program, number) if line else ""
                frames.append(Line(name, file, line))
                number, line = call_file, call_line
            if frames[0].function or frames[0].line:
                found[address] = replace(frames[0], around=tuple(frames[1:]))
    return found


def units_of(dwarf: Any, wanted: Sequence[int]) -> int:
    """Return in how many compilation units addresses lie, as far as there is a table of them."""
    table = dwarf.get_aranges()
    if table is None or not table.entries:
        return 0
    return len({table.cu_offset_at_addr(address) for address in wanted})


def _units(dwarf: Any, wanted: Sequence[int]) -> Iterator[tuple[Any, list[int]]]:
    """Yield the compilation units that hold addresses, with these."""
    table = dwarf.get_aranges()
    offsets: dict[int, list[int]] = {}
    left = []
    for address in wanted:
        offset = table.cu_offset_at_addr(address) if table is not None and table.entries else None
        if offset is None:
            left.append(address)
        else:
            offsets.setdefault(offset, []).append(address)
    for offset, addresses in offsets.items():
        yield dwarf.get_CU_at(offset), addresses
    if not left:
        return
    for unit in dwarf.iter_CUs():  # not every compiler writes a table of addresses
        if unit.cu_offset in offsets:
            continue
        inside = _inside(unit.get_top_DIE(), unit, left)
        if inside:
            yield unit, inside
            left = [address for address in left if address not in inside]
        if not left:
            return


def _inside(die: Any, unit: Any, addresses: Sequence[int]) -> list[int]:
    """Return the addresses that belong to a function, block or unit."""
    found: list[int] = []
    for low, high in _ranges(die, unit):
        found += addresses[bisect.bisect_left(addresses, low) : bisect.bisect_left(addresses, high)]
    return found


def _ranges(die: Any, unit: Any) -> list[tuple[int, int]]:
    attributes = die.attributes
    if "DW_AT_ranges" in attributes:
        top = unit.get_top_DIE().attributes
        base = top["DW_AT_low_pc"].value if "DW_AT_low_pc" in top else 0
        found = []
        lists = unit.dwarfinfo.range_lists()
        if lists is None:
            return []
        for entry in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit):
            if hasattr(entry, "base_address"):
                base = entry.base_address
                continue
            shift = 0 if getattr(entry, "is_absolute", False) else base
            found.append((entry.begin_offset + shift, entry.end_offset + shift))
        return found
    if "DW_AT_low_pc" not in attributes or "DW_AT_high_pc" not in attributes:
        return []
    low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
    return [(low, high.value if high.form == "DW_FORM_addr" else low + high.value)]


#: Scopes that hold functions without having addresses of their own.
_SCOPES = {
    "DW_TAG_namespace",
    "DW_TAG_module",
    "DW_TAG_class_type",
    "DW_TAG_structure_type",
    "DW_TAG_lexical_block",
}


def _functions(unit: Any, addresses: Sequence[int]) -> dict[int, list[tuple[str, int, int]]]:
    """Return the function around each address and those inlined into it, outermost first.

    Each with number of the file and line it was called at if it was inlined, else -1 and 0.
    """
    found: dict[int, list[tuple[str, int, int]]] = {}
    todo: list[tuple[Any, Sequence[int]]] = [(unit.get_top_DIE(), addresses)]
    while todo:
        parent, wanted = todo.pop()
        for die in unit.iter_DIE_children(parent):
            tag = die.tag
            if tag in ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine"):
                inside = sorted(_inside(die, unit, wanted))
                if not inside:
                    continue
                row = (
                    _name_of(die),
                    _number(die, "DW_AT_call_file"),
                    max(_number(die, "DW_AT_call_line"), 0),
                )
                for address in inside:
                    found.setdefault(address, []).append(row)
                todo.append((die, inside))
            elif tag in _SCOPES and die.has_children:
                has_range = "DW_AT_ranges" in die.attributes or "DW_AT_low_pc" in die.attributes
                inside = sorted(_inside(die, unit, wanted)) if has_range else list(wanted)
                if inside:
                    todo.append((die, inside))
    return found


def _name_of(die: Any) -> str:
    """Return the name of a function, which may stand at its declaration or its origin."""
    plain = ""
    for _ in range(8):
        attributes = die.attributes
        for key in ("DW_AT_linkage_name", "DW_AT_MIPS_linkage_name"):
            if key in attributes:
                linkage = attributes[key].value.decode("utf-8", "replace")
                name = readable(linkage)
                return name if name != linkage else plain or _own_name(die) or name
        plain = plain or _own_name(die)
        for key in ("DW_AT_abstract_origin", "DW_AT_specification"):
            if key in attributes:
                die = die.get_DIE_from_attribute(key)
                break
        else:
            break
    return plain


def _number(die: Any, key: str) -> int:
    found = die.attributes.get(key)
    return int(found.value) if found is not None else -1


def _own_name(die: Any) -> str:
    found = die.attributes.get("DW_AT_name")
    return found.value.decode("utf-8", "replace") if found is not None else ""


def _places(program: Any, addresses: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return number of the file and line of addresses from the line program of their unit."""
    if program is None:
        return {}
    found: dict[int, tuple[int, int]] = {}
    before: Any = None
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if before is not None and before.address < state.address:
            low = bisect.bisect_left(addresses, before.address)
            for address in addresses[low : bisect.bisect_left(addresses, state.address)]:
                found[address] = (before.file, before.line)
        before = None if state.end_sequence else state
    return found


def _file_name(unit: Any, program: Any, number: int) -> str:
    if program is None:
        return ""
    header = program.header
    first = 0 if header["version"] >= 5 else 1
    files = header["file_entry"]
    if not first <= number < len(files) + first:
        return ""
    entry = files[number - first]
    name = _text(entry.name)
    folders = header["include_directory"]
    home = unit.get_top_DIE().attributes.get("DW_AT_comp_dir")
    base = _text(home.value) if home is not None else ""
    at = entry.dir_index
    folder = ""
    if first == 0 and 0 <= at < len(folders):
        folder = _text(folders[at])
    elif first == 1 and 0 < at <= len(folders):
        folder = _text(folders[at - 1])
    return os.path.normpath(os.path.join(base, folder, name))


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_TIMEOUT_S = 120.0
_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+|\?)(?: \(discriminator \d+\))?$")


def ask(path: str, wanted: Sequence[int]) -> dict[int, Line] | None:
    """Return what addr2line says of addresses in a file; None where it is not there or fails."""
    tool = shutil.which("addr2line")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "-a", "-f", "-i", "-e", path],
            input="".join(f"{a:#x}\n" for a in wanted),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    frames: dict[int, list[Line]] = {}
    here: list[Line] = []
    rows = iter(done.stdout.splitlines())
    for row in rows:
        if row.startswith("0x"):
            here = frames.setdefault(int(row, 16), [])
            continue
        place = _PLACE.match(next(rows, ""))
        if place is None:
            return None
        number = 0 if place["line"] == "?" else int(place["line"])
        here.append(Line("" if row == "??" else readable(row), place["file"], number))
    return {
        address: replace(lines[0], around=tuple(lines[1:]))
        for address, lines in frames.items()
        if lines and lines[0].line
    }
