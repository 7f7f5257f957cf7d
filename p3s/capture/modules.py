"""Finds the programs and libraries that call sites name, and names as people wrote them."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from p3s.base.host.mpi import ask

_MAGIC = b"\x7fELF"
#: Of a script, so much is read for the directories of the programs it starts.
_SCRIPT_BYTES, _SCRIPT_WORDS = 1 << 16, 2000
#: Words of a script that may be paths; ways of a script to say where it lies itself.
_WORD = re.compile(r"(?:\$\([^()]*\)|\$\{[^{}]*\}|[^\s\"'=;&|<>()`])*/(?:[^\s\"'=;&|<>()`])*")
_HERE = re.compile(r"\$\(\s*dirname\b[^()]*\)|\$\{0%/\*\}")


class Modules:
    """Where modules are looked for, in this order.

    ``more``: directories (or files) the user named. Then the words of ``command`` (programs by
    name on PATH, or relative to ``homes``), their directories, ``homes``, the directories that
    scripts among them name, what found modules say themselves (:meth:`also`), and where the
    dynamic linker looks.
    """

    def __init__(
        self, command: Sequence[str] = (), homes: Sequence[Path] = (), more: Sequence[Path] = ()
    ) -> None:
        self._files: list[Path] = [path for path in more if path.is_file()]
        first = [path for path in more if not path.is_file()]
        for word in command:
            self._files += _programs(word, homes)
        folders_of_files = [path.parent for path in self._files]
        self._folders = _unique([*first, *folders_of_files, *homes])
        for script in [path for path in self._files if not is_elf(path)]:
            self._folders += _named_in(script, [script.parent, *homes])
        self._folders = _unique(self._folders)
        self._last = _linker_folders()
        self._found: dict[str, Path | None] = {}

    def also(self, folders: Sequence[Path]) -> None:
        """Look in these directories too (the search path that a module carries)."""
        added = [folder for folder in _unique(folders) if folder not in self._folders]
        if added:
            self._folders += added
            self._found = {name: path for name, path in self._found.items() if path is not None}

    def programs(self) -> list[Path]:
        """Return the programs among the words of the command and the files the user named."""
        return [path.resolve() for path in self._files if is_elf(path)]

    def find(self, name: str) -> Path | None:
        """Return the file of the module with this file name, or None."""
        if name not in self._found:
            self._found[name] = next(self._candidates(name), None)
        return self._found[name]

    @staticmethod
    def of_system(path: Path) -> bool:
        """Tell whether a file came with the system, so that no user compiles it."""
        real = path.resolve()
        return any(
            map(real.is_relative_to, ("/usr", "/lib", "/lib64", "/bin", "/sbin"))
        ) and not real.is_relative_to("/usr/local")

    def _candidates(self, name: str) -> Iterator[Path]:
        if not name or "/" in name or name in (".", ".."):
            return
        for path in self._files:
            # The name in a capture is that of the file itself, not of a link to it.
            if name in (path.name, path.resolve().name) and is_elf(path):
                yield path
        for folder in (*self._folders, *self._last):
            if is_elf(folder / name):
                yield folder / name
        started = shutil.which(name)  # by a script that the command names
        if started is not None and is_elf(Path(started)):
            yield Path(started)


def _programs(word: str, homes: Sequence[Path]) -> list[Path]:
    """Return the files that a word of a launcher command can mean."""
    if not word or word.startswith("-") or "\0" in word:
        return []
    if "/" in word:
        path = Path(word).expanduser()
        places = [path] if path.is_absolute() else [Path(path), *(home / path for home in homes)]
    else:
        program = shutil.which(word)
        places = [Path(program)] if program else [home / word for home in homes]
    return [place for place in places if os.path.isfile(place)]


def _named_in(script: Path, homes: Sequence[Path]) -> list[Path]:
    """Return the directories that a script names: of the programs it starts, or goes to."""
    try:
        with script.open("rb") as file:
            text = file.read(_SCRIPT_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    if not text.startswith("#!"):
        return []
    text = text.translate({ord(quote): None for quote in "\"'"})
    out = []
    for word in dict.fromkeys(_WORD.findall(text)[:_SCRIPT_WORDS]):
        path = Path(_HERE.sub(lambda _: str(script.parent), word)).expanduser()
        for place in [path] if path.is_absolute() else [home / path for home in homes]:
            out += [folder for folder in (place, place.parent) if os.path.isdir(folder)]
    return out


def is_elf(path: Path) -> bool:
    """Tell whether a path is that of a program or library."""
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            return False
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except (OSError, ValueError):
        return False


def _unique(paths: Sequence[Path]) -> list[Path]:
    return list(dict.fromkeys(paths))


def _linker_folders() -> list[Path]:
    """Return LD_LIBRARY_PATH, the directories of what the dynamic linker knows and usual ones."""
    folders = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    cache = ask(["/sbin/ldconfig", "-p"]) or ""
    files = (line.partition(" => ")[2] for line in cache.splitlines())
    folders += [Path(file).parent for file in files if file]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    for folder in ("/lib64", "/usr/lib64", "/lib", "/usr/lib"):
        if multiarch:
            folders.append(Path(folder, str(multiarch)))
        folders.append(Path(folder))
    return _unique(folders)


#: What GCC adds to the name of a copy of a function: name.constprop.0, name.part.1.cold
_CLONE = re.compile(
    r"(\.(constprop|isra|part|cold|localalias|lto_priv|llvm|_omp_fn)(\.\d+)*|\.\d+)+$"
)
#: Module procedures: __mod_MOD_name (gfortran), mod_mp_name_ (Intel), _QMmodPname (Flang).
_MODULES = (
    re.compile(r"^__(?P<module>\w+?)_MOD_(?P<name>\w+)$"),
    re.compile(r"^(?P<module>[a-z]\w*?)_mp_(?P<name>\w+?)_?$"),
    re.compile(r"^_QM(?P<module>[a-z0-9_]+?)(?:F[a-z0-9_]+)?P(?P<name>[a-z0-9_]+)$"),
)
#: Bodies of parallel regions, which compilers make functions of their own: main._omp_fn.0 (GCC),
#: .omp_outlined. and main.omp_outlined (LLVM).
_REGION = re.compile(r"(?P<name>.*?)\._omp_fn\.\d+|(?P<other>.*?)\.omp_outlined\b")
REGION = "parallel region"
_MAINS = {"MAIN__", "MAIN_", "_QQmain"}


@functools.cache
def _demangler() -> Callable[[bytes], str | None] | None:
    """Return the C++ runtime's own demangler, or None where there is no C++ runtime."""
    import ctypes

    for library in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            runtime = ctypes.CDLL(library)
            function = runtime.__cxa_demangle
            break
        except (OSError, AttributeError):
            continue
    else:
        return None
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    function.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 3]
    function.restype = ctypes.c_void_p

    def demangle(name: bytes) -> str | None:
        status = ctypes.c_int(-1)
        demangled = function(name, None, None, ctypes.byref(status))
        if not demangled:
            return None
        text = ctypes.string_at(demangled).decode("utf-8", "replace")
        free(demangled)
        return text if status.value == 0 else None

    return demangle


def readable(symbol: str) -> str:
    """Return the name of a function from its symbol, without parameters and template arguments.

    ``_ZN4Comm4sendEi`` becomes ``Comm::send``, ``__grid_MOD_halo`` ``grid::halo``, ``halo_``
    ``halo``; ``main._omp_fn.0`` is ``main (parallel region)``. Names that nothing is known of stay
    as they are.
    """
    symbol = symbol.partition("@")[0] or symbol  # the version of a symbol: name@@LIB_1.2
    if region := _REGION.match(symbol):
        around = region["name"] or region["other"]
        return f"{readable(around)} ({REGION})" if around else REGION
    name = _CLONE.sub("", symbol) or symbol
    if name.startswith("_Z"):
        demangle = _demangler()
        full = demangle(name.encode("utf-8", "surrogateescape")) if demangle is not None else None
        return without_parameters(full) if full else name
    if name in _MAINS:
        return "main program"
    for pattern in _MODULES:
        if match := pattern.match(name):
            return f"{match['module']}::{match['name']}"
    if name.startswith("_QP"):
        return name[3:] or name
    return name.rstrip("_") or name if name.endswith("_") else name


def without_parameters(name: str) -> str:
    """Return a C++ name without return type, parameters, template arguments and ABI tags."""
    name = name.replace("(anonymous namespace)", "{anonymous}")
    if "operator" in name or "{lambda" in name:  # their own names have brackets
        return name
    out, depth = [], 0
    for char in name:
        if char == "(" and depth == 0:
            break
        if char in "<[":
            depth += 1
        elif char in ">]" and depth:
            depth -= 1
        elif depth == 0:
            out.append(char)
    words = "".join(out).split()
    return words[-1] if words else name
