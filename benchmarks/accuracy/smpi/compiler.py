"""Stands for mpicc, mpicxx and mpif90 while an outside program is built: compiles it for SMPI.

    python compiler.py SETTINGS LANGUAGE ARGUMENT...

Every source is compiled with the hooks that count its statements; what is linked gets their
implementation, and the tracer where SETTINGS (JSON) names its objects. Whatever else is asked of
the compiler (-E, -show) goes to it as it is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = {
    "c": (".c",),
    "c++": (".cc", ".cpp", ".cxx", ".C", ".c++"),
    "fortran": (".f", ".F", ".for", ".f77", ".f90", ".F90", ".f95", ".F95", ".f03", ".f08"),
}
COMPILERS = {"c": "smpicc", "c++": "smpicxx", "fortran": "smpiff"}
#: Nothing is linked with these.
ONLY = {
    "-c",
    "-E",
    "-M",
    "-MM",
    "-S",
    "-show",
    "--version",
    "-v",
    "-dumpversion",
    "-print-search-dirs",
}


def language_of(word: str) -> str | None:
    """Return the language of a source file by its suffix, None if it is none."""
    suffix = Path(word).suffix
    return next((name for name, known in SOURCES.items() if suffix in known), None)


def run(words: list[str]) -> None:
    """Run a compiler; end as it ends where it fails."""
    code = subprocess.run(words, check=False).returncode
    if code:
        sys.exit(code)


def output(words: list[str]) -> int | None:
    """Return where in ``words`` the name after -o stands."""
    return words.index("-o") + 1 if "-o" in words[:-1] else None


def main() -> None:
    """Compile or link as the arguments say."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    own, words = sys.argv[2], sys.argv[3:]
    sources = [word for word in words if not word.startswith("-") and language_of(word)]
    if ONLY & set(words):
        kind = language_of(sources[0]) if sources else None
        flags = settings["flags"] if "-c" in words else []
        run([COMPILERS[kind or own], *flags, *words])
        return
    at = output(words)
    with tempfile.TemporaryDirectory() as work:
        options = [
            word
            for i, word in enumerate(words)
            if word.startswith("-")
            and not word.startswith(("-l", "-L", "-Wl,", "-o"))
            or (i > 0 and words[i - 1] in ("-I", "-D", "-include"))
        ]
        objects: dict[str, str] = {}
        for number, source in enumerate(sources):
            kind = language_of(source) or own
            target = f"{work}/{number}.o"
            run([COMPILERS[kind], *settings["flags"], *options, "-c", source, "-o", target])
            objects[source] = target
        parts = [
            objects.get(word, word)
            for i, word in enumerate(words)
            if at is None or i not in (at - 1, at)
        ]
        target = words[at] if at is not None else "a.out"
        run([COMPILERS[own], "-Wl,-Bsymbolic", *parts, *settings["link"], "-o", target])


if __name__ == "__main__":
    main()
