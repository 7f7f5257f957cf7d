"""One program or library on disk: functions of addresses in it, and its machine code.

Addresses are those of the file (virtual addresses), as in a capture.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import io
import lzma
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

from p3s.capture.modules import readable

T = TypeVar("T")
P = ParamSpec("P")

#: Symbols that a stripped file carries in compressed form have at most so many bytes.
_MOST_EMBEDDED = 1 << 28
_FUNC, _IFUNC = 2, 10
_LOCAL, _WEAK = 0, 2
_X86_64 = "EM_X86_64"


@dataclass(frozen=True)
class Code:
    """Calls in the machine code of a file: (return address, function, name of what is called).

    callees: functions that a function calls or ends in; functions are known by their addresses.
    """

    calls: tuple[tuple[int, int, str], ...]
    callees: Mapping[int, frozenset[int]]
    starts: tuple[int, ...]
    rows: tuple[tuple[int, str], ...]

    def function(self, address: int) -> int | None:
        """Return where the function begins that an address lies in."""
        at = bisect.bisect_right(self.starts, address) - 1
        return self.starts[at] if at >= 0 and address < self.rows[at][0] else None

    def name(self, function: int) -> str:
        """Return the name of the function that begins at an address."""
        return readable(self.rows[bisect.bisect_left(self.starts, function)][1])


#: All that pyelftools raises on files that are damaged.
_UNSOUND: tuple[type[Exception], ...] = (
    *(ELFError, ConstructError, struct.error, ArithmeticError, AssertionError, AttributeError),
    *(LookupError, TypeError, ValueError, RecursionError, MemoryError),
)


def _sound(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function raise ValueError for whatever a damaged file leads to."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except _UNSOUND as error:
            raise ValueError(f"is no program or library that can be read ({error})") from error

    return checked


class Binary:
    """An ELF file that is open; use as a context manager.

    Raises ValueError, also later, when the file is no ELF file or is damaged, and OSError when it
    cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(path.open("rb"))
            self._elf: Any = _sound(ELFFile)(stream)
            self._close = stack.pop_all()

    def __enter__(self) -> Binary:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._close.close()

    @_sound
    def search_path(self) -> list[Path]:
        """Return the directories of DT_RPATH and DT_RUNPATH, $ORIGIN filled in."""
        section = self._elf.get_section_by_name(".dynamic")
        if section is None:
            return []
        origin = str(self.path.resolve().parent)
        folders = []
        for tag in section.iter_tags():
            if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                text = tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
                for part in filter(None, text.split(":")):
                    part = part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
                    folders.append(Path(part))
        return folders

    @_sound
    def follows_call(self, address: int) -> bool:
        """Tell whether the instruction before a return address can be a call.

        True where it cannot be known: another machine than x86-64.
        """
        if self._elf["e_machine"] != _X86_64:
            return True
        code = self._before(address)
        if code[-5:-4] == b"\xe8":
            return True
        # call r/m64: FF /2 with 2 to 7 bytes, a REX prefix not counted
        return any(
            len(code) >= n and code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in range(2, 8)
        )

    def _before(self, address: int) -> bytes:
        """Return the machine code that ends at an address, at most eight bytes of it."""
        for segment in self._elf.iter_segments():
            start = segment["p_vaddr"]
            if (
                segment["p_type"] == "PT_LOAD"
                and segment["p_flags"] & 1
                and (start < address <= start + segment["p_filesz"])
            ):
                first = max(start, address - 8)
                self._elf.stream.seek(segment["p_offset"] + first - start)
                return bytes(self._elf.stream.read(address - first))
        return b""

    @_sound
    def calls(self, address: int) -> str:
        """Return the function of another file that the call before a return address names.

        Empty where it names none: a call inside the file or through a pointer, or another machine
        than x86-64.
        """
        if self._elf["e_machine"] != _X86_64:
            return ""
        slots, stubs = self._imported_names
        code = self._before(address)
        if len(code) < 6:
            return ""
        (offset,) = struct.unpack("<i", code[-4:])
        if code[-6:-4] == b"\xff\x15":  # through the table of addresses itself (-fno-plt)
            return readable(slots.get(address + offset, ""))
        return readable(stubs.get(address + offset, "")) if code[-5] == 0xE8 else ""

    # ---- symbols
    @_sound
    def symbol(self, address: int) -> tuple[str, int] | None:
        """Return the function an address lies in, and the address it begins at."""
        starts, rows = self._symbols
        at = bisect.bisect_right(starts, address) - 1
        if at < 0:
            return None
        end, name = rows[at]
        return (readable(name), starts[at]) if address < end else None

    @functools.cached_property
    def _symbols(self) -> tuple[list[int], list[tuple[int, str]]]:
        best: dict[int, tuple[tuple[int, int, str], int, str]] = {}
        tables = [self._elf]
        if _table_of(self._elf, ".symtab") is None and (embedded := self._embedded_symbols()):
            tables.append(embedded)
        for elf in tables:
            for name in (".symtab", ".dynsym"):
                for value, size, bind, text in _functions_in(elf, name):
                    # Of several names the global one, then the shortest, is what people know.
                    rank = ({_LOCAL: 2, _WEAK: 1}.get(bind, 0), len(text), text)
                    best_known = best.get(value)
                    if text and (best_known is None or rank < best_known[0]):
                        best[value] = (rank, size, text)
        starts = sorted(best)
        rows = []
        for at, start in enumerate(starts):
            _, size, text = best[start]
            following = starts[at + 1] if at + 1 < len(starts) else start + 1
            rows.append((start + size if size else following, text))
        return starts, rows

    def _embedded_symbols(self) -> Any:
        """Return the symbols that a stripped file carries in compressed form, None without."""
        section = self._elf.get_section_by_name(".gnu_debugdata")
        if section is None:
            return None
        with contextlib.suppress(*_UNSOUND, lzma.LZMAError, EOFError):
            reader = lzma.LZMADecompressor(memlimit=_MOST_EMBEDDED)
            return ELFFile(io.BytesIO(reader.decompress(section.data(), _MOST_EMBEDDED)))
        return None

    # ---- machine code
    @_sound
    def code(self) -> Code | None:
        """Return the calls of the machine code; None where it is not that of x86-64."""
        text = self._elf.get_section_by_name(".text")
        if self._elf["e_machine"] != _X86_64 or text is None:
            return None
        starts, rows = self._symbols
        named = {**dict(zip(starts, (name for _, name in rows), strict=True))}
        named.update(self._imported_names[1])
        plain = Code((), {}, tuple(starts), tuple(rows))
        data, base = text.data(), text["sh_addr"]
        calls: list[tuple[int, int, str]] = []
        callees: dict[int, set[int]] = {}
        for at, target, is_call in _branches(data, base):
            function = plain.function(at)
            if function is None or target not in named or plain.function(target) == function:
                continue
            if is_call:
                calls.append((at + 5, function, named[target]))
            callees.setdefault(function, set()).add(target)
        return Code(
            tuple(calls), {k: frozenset(v) for k, v in callees.items()}, plain.starts, plain.rows
        )

    @functools.cached_property
    def _imported_names(self) -> tuple[dict[int, str], dict[int, str]]:
        """The names of what other files have: by the place of the address, and by entry."""
        slots = self._slots()
        return slots, self._stubs(slots)

    def _slots(self) -> dict[int, str]:
        """Return the names of functions whose addresses the dynamic linker fills in, by place."""
        slots: dict[int, str] = {}
        for name in (".rela.plt", ".rela.dyn"):
            section = self._elf.get_section_by_name(name)
            if section is None:
                continue
            symbols = self._elf.get_section(section["sh_link"])
            for each in section.iter_relocations():
                if each["r_info_sym"]:
                    slots[each["r_offset"]] = symbols.get_symbol(each["r_info_sym"]).name
        return slots

    def _stubs(self, slots: Mapping[int, str]) -> dict[int, str]:
        """Return the names of what the entries of the tables for shared libraries call."""
        names: dict[int, str] = {}
        for name in (".plt", ".plt.sec", ".plt.got"):
            section = self._elf.get_section_by_name(name)
            data, base = (section.data(), section["sh_addr"]) if section else (b"", 0)
            at = data.find(b"\xff\x25")
            while at >= 0:
                (offset,) = struct.unpack_from("<i", data, at + 2)
                if symbol := slots.get(base + at + 6 + offset):
                    # What stands before the jump: nothing, a prefix, endbr64, or both.
                    names.update(dict.fromkeys((base + at - skip for skip in (0, 1, 4, 5)), symbol))
                at = data.find(b"\xff\x25", at + 6)
        return names


def _branches(data: bytes, base: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (address, target, whether it is a call) of what looks like a near call or jump."""
    for opcode in (0xE8, 0xE9):
        at = data.find(opcode)
        while 0 <= at < len(data) - 4:
            (offset,) = struct.unpack_from("<i", data, at + 1)
            yield base + at, base + at + 5 + offset, opcode == 0xE8
            at = data.find(opcode, at + 1)


def _table_of(elf: Any, name: str) -> Any:
    """Return a section, None where it is absent or its content was split off."""
    section = elf.get_section_by_name(name)
    return None if section is None or section["sh_type"] == "SHT_NOBITS" else section


def _functions_in(elf: Any, name: str) -> Iterator[tuple[int, int, int, str]]:
    """Yield address, size, binding and name of the functions in a symbol table."""
    import numpy as np

    section = _table_of(elf, name)
    if section is None:
        return
    order = "<" if elf.little_endian else ">"
    wide = "name:u4 info:u1 other:u1 section:u2 value:u8 size:u8"
    narrow = "name:u4 value:u4 size:u4 info:u1 other:u1 section:u2"
    columns = [each.split(":") for each in (wide if elf.elfclass == 64 else narrow).split()]
    row = np.dtype([(key, order + kind) for key, kind in columns])
    data = section.data()
    table = np.frombuffer(data[: len(data) // row.itemsize * row.itemsize], dtype=row)
    kind = table["info"] & 15
    table = table[((kind == _FUNC) | (kind == _IFUNC)) & (table["section"] != 0)]
    strings = elf.get_section(section["sh_link"]).data()
    cells = (table[key].tolist() for key in ("value", "size", "info", "name"))
    for value, size, info, at in zip(*cells, strict=True):
        yield value, size, info >> 4, _string(strings, at)


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset)
    return data[offset : end if end >= 0 else None].decode("utf-8", "replace")
