"""One program or library on disk: functions and lines of addresses in it.

Read with pyelftools, so that nothing but Python is needed; only what lies around the addresses
asked for is decoded. Addresses are those of the file (virtual addresses), as in a capture.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from p3s.trace.dwarf import Line, lines_of, units_of
from p3s.trace.names import readable

T = TypeVar("T")

#: Python needs a fraction of a second for each source file; more are left to addr2line, if any.
_MANY_UNITS = 12
#: Where distributions put debug information that was split off.
_DEBUG_ROOTS = (Path("/usr/lib/debug"),)
_FUNC, _IFUNC = 2, 10
_LOCAL, _WEAK = 0, 2
_X86_64 = "EM_X86_64"


class Binary:
    """An ELF file that is open; use as a context manager.

    Raises ValueError, also later, when the file is no ELF file or is damaged, and OSError when it
    cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        from elftools.elf.elffile import ELFFile

        self.path = path
        with contextlib.ExitStack() as stack:
            stream = stack.enter_context(path.open("rb"))
            self._elf: Any = _sound(lambda: ELFFile(stream))
            self.build_id = _sound(self._build_id)
            self._close = stack.pop_all()
        self._symbols: tuple[list[int], list[tuple[int, str]]] | None = None

    def __enter__(self) -> Binary:
        """Return the file itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._close.close()

    def _build_id(self) -> str:
        section = self._elf.get_section_by_name(".note.gnu.build-id")
        if section is None:
            return ""
        for note in section.iter_notes():
            if note["n_type"] == "NT_GNU_BUILD_ID":
                return str(note["n_desc"])
        return ""

    def search_path(self) -> list[Path]:
        """Return the directories of DT_RPATH and DT_RUNPATH, $ORIGIN filled in."""
        return _sound(self._search_path)

    def _search_path(self) -> list[Path]:
        section = self._elf.get_section_by_name(".dynamic")
        if section is None:
            return []
        origin = str(self.path.resolve().parent)
        found = []
        for tag in section.iter_tags():
            if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
                text = tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath
                for part in filter(None, text.split(":")):
                    part = part.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
                    found.append(Path(part))
        return found

    def follows_call(self, address: int) -> bool:
        """Tell whether the instruction before a return address can be a call.

        True where it cannot be known: another machine than x86-64.
        """
        return _sound(lambda: self._follows_call(address))

    def _follows_call(self, address: int) -> bool:
        if self._elf["e_machine"] != _X86_64:
            return True
        code = b""
        for segment in self._elf.iter_segments():
            start = segment["p_vaddr"]
            if segment["p_type"] == "PT_LOAD" and segment["p_flags"] & 1 and (
                start < address <= start + segment["p_filesz"]
            ):
                first = max(start, address - 8)
                self._elf.stream.seek(segment["p_offset"] + first - start)
                code = self._elf.stream.read(address - first)
        if code[-5:-4] == b"\xe8":
            return True
        # call r/m64: FF /2 with 2 to 7 bytes, a REX prefix not counted
        return any(
            len(code) >= n and code[-n] == 0xFF and code[1 - n] >> 3 & 7 == 2 for n in range(2, 8)
        )

    # ---- symbols
    def symbol(self, address: int) -> tuple[str, int] | None:
        """Return the function an address lies in, and the address it begins at."""
        if self._symbols is None:
            self._symbols = _sound(self._function_symbols)
        starts, rows = self._symbols
        at = bisect.bisect_right(starts, address) - 1
        if at < 0:
            return None
        end, name = rows[at]
        return (readable(name), starts[at]) if address < end else None

    def _function_symbols(self) -> tuple[list[int], list[tuple[int, str]]]:
        import numpy as np

        best: dict[int, tuple[tuple[int, int, str], int, str]] = {}
        for name in (".symtab", ".dynsym"):
            section = self._elf.get_section_by_name(name)
            if section is None or section["sh_type"] == "SHT_NOBITS":
                continue
            order = "<" if self._elf.little_endian else ">"
            wide = self._elf.elfclass == 64
            fields = (
                [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"),
                 ("value", "u8"), ("size", "u8")]
                if wide
                else [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"),
                      ("other", "u1"), ("section", "u2")]
            )  # fmt: skip
            row = np.dtype([(key, order + kind) for key, kind in fields])
            data = section.data()
            table = np.frombuffer(data[: len(data) // row.itemsize * row.itemsize], dtype=row)
            kind = table["info"] & 15
            table = table[((kind == _FUNC) | (kind == _IFUNC)) & (table["section"] != 0)]
            strings = self._elf.get_section(section["sh_link"]).data()
            for entry in table.tolist():
                values = dict(zip(row.names or (), entry, strict=True))
                text = _string(strings, values["name"])
                bind = values["info"] >> 4
                # Of several names the global one, then the shortest, is what people know.
                rank = ({_LOCAL: 2, _WEAK: 1}.get(bind, 0), len(text), text)
                known = best.get(values["value"])
                if text and (known is None or rank < known[0]):
                    best[values["value"]] = (rank, values["size"], text)
        starts = sorted(best)
        rows = []
        for at, start in enumerate(starts):
            _, size, text = best[start]
            following = starts[at + 1] if at + 1 < len(starts) else start + 1
            rows.append((start + size if size else following, text))
        return starts, rows

    # ---- debug information
    def lines(self, addresses: Iterable[int]) -> dict[int, Line]:
        """Return what debug information says of addresses; those it does not know are absent.

        The innermost inlined function is named. Debug information that cannot be decoded counts
        as absent.
        """
        wanted = sorted(set(addresses))
        try:
            with contextlib.ExitStack() as stack:
                elf = self._with_debug_info(stack)
                if elf is None:
                    return {}
                dwarf = elf.get_dwarf_info()
                found = None
                if units_of(dwarf, wanted) > _MANY_UNITS:
                    from p3s.trace.addr2line import ask

                    found = ask(elf.stream.name, wanted)
                return lines_of(dwarf, wanted) if found is None else found
        except _UNSOUND:
            return {}

    def _with_debug_info(self, stack: contextlib.ExitStack) -> Any:
        if self._elf.get_section_by_name(".debug_info") is not None:
            return self._elf
        if self._elf.get_section_by_name(".zdebug_info") is not None:
            return self._elf
        from elftools.elf.elffile import ELFFile

        for path in self._split_off():
            with contextlib.suppress(OSError):
                elf = ELFFile(stack.enter_context(path.open("rb")))
                if elf.get_section_by_name(".debug_info") is not None:
                    return elf
        return None

    def _split_off(self) -> Iterator[Path]:
        """Yield where debug information of a stripped file may be (as gdb looks for it)."""
        build = self.build_id
        if len(build) > 2:
            for root in _DEBUG_ROOTS:
                yield root / ".build-id" / build[:2] / f"{build[2:]}.debug"
        section = self._elf.get_section_by_name(".gnu_debuglink")
        if section is not None:
            name = os.path.basename(_string(section.data(), 0))
            home = self.path.resolve().parent
            for folder in (home, home / ".debug", *(r / str(home)[1:] for r in _DEBUG_ROOTS)):
                if name and (folder / name) != self.path:
                    yield folder / name


def _unsound() -> tuple[type[Exception], ...]:
    """Return all that pyelftools raises on files that are damaged."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.construct import ConstructError

    return (
        ELFError, DWARFError, ConstructError, struct.error, ArithmeticError, AssertionError,
        AttributeError, LookupError, TypeError, ValueError, RecursionError, MemoryError,
    )  # fmt: skip


_UNSOUND: tuple[type[Exception], ...] = _unsound()


def _sound(action: Callable[[], T]) -> T:
    """Return what an action returns; raises ValueError for whatever a damaged file leads to."""
    try:
        return action()
    except _UNSOUND as error:
        raise ValueError(f"is no program or library that can be read ({error})") from error


def _string(data: bytes, offset: int) -> str:
    end = data.find(b"\0", offset)
    return data[offset : end if end >= 0 else None].decode("utf-8", "replace")
