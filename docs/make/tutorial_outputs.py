"""Runs the commands of the tutorial and writes what they print into its pages.

    python docs/make/tutorial_outputs.py docs/tutorial/index.md docs/tutorial/python.md

A block that is run stands behind a comment, whose lines are TOML:

    <!-- run
    exit = [0, 3]                     # exit codes that are right (default: 0)
    keep = [["^from", "^to"], "line"] # what of the output is shown (default: all)
    same = ["weight w = "]            # what a run of other people prints, too
    -->

Behind it is a block of ``console`` (a command behind ``$``, then its output) or of ``python`` (a
part of a program, its output in the block of ``text`` that follows). Pages are run one after the
other in one directory, which has the examples/ of this repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600.0
WIDTH = 100
_MARK = "=== next block ==="
_BLOCK = re.compile(
    r"<!-- run\n(?P<how>.*?)-->\n```(?P<kind>console|python)\n(?P<body>.*?)```\n"
    r"(?:\n```text\n(?P<text>.*?)```\n)?",
    re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A command or a part of a program, with what it printed and what of that matters."""

    kind: str
    command: str
    output: str
    exits: tuple[int, ...] = (0,)
    keep: tuple[str | tuple[str, str], ...] = ()
    same: tuple[str, ...] = ()
    span: tuple[int, int] = field(default=(0, 0), compare=False)

    def shown(self, printed: str) -> str:
        """Return the lines of an output that the page shows; "..." stands for others."""
        lines = printed.rstrip("\n").split("\n") if printed.strip() else []
        if not self.keep:
            return "".join(f"{line}\n" for line in lines)
        kept = sorted({k for part in self.keep for k in _lines_of(part, lines)})
        out: list[str] = []
        for before, k in zip([-1, *kept], kept, strict=False):
            out += ["..."] if k > before + 1 else []
            out.append(lines[k])
        out += ["..."] if kept and kept[-1] + 1 < len(lines) else []
        return "".join(f"{line}\n" for line in out)

    def missing(self, printed: str) -> list[str]:
        """Return what matters and is not in an output."""
        return [each for each in self.same if not re.search(each, printed, re.MULTILINE)]


def _lines_of(part: str | tuple[str, str], lines: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of lines of a part: those that match, or those from one to another."""
    if isinstance(part, str):
        yield from (k for k, line in enumerate(lines) if re.search(part, line))
        return
    first = next((k for k, line in enumerate(lines) if re.search(part[0], line)), len(lines))
    last = (k for k in range(first, len(lines)) if re.search(part[1], lines[k]))
    yield from range(first, next(last, len(lines) - 1) + 1)


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page that are run, in their order."""
    return [_block(match) for match in _BLOCK.finditer(page)]


def _block(match: re.Match[str]) -> Block:
    how = tomllib.loads(match["how"])
    body = match["body"]
    if match["kind"] == "console":
        command, _, output = body.removeprefix("$ ").partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command += "\n" + more
    else:
        command, output = body, match["text"] or ""
    return Block(
        match["kind"],
        command,
        output,
        tuple(how.get("exit", [0])),
        tuple(
            each if isinstance(each, str) else (each[0], each[1]) for each in how.get("keep", ())
        ),
        tuple(how.get("same", ())),
        match.span("body") if match["kind"] == "console" else match.span("text"),
    )


@dataclass(frozen=True)
class Place:
    """A directory to run in, and words of commands that stand for others (a smaller input)."""

    path: Path
    instead: Mapping[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> tuple[int, str]:
        """Return exit code and output of a command."""
        command = block.command
        for words, other in self.instead.items():
            command = command.replace(words, other)
        return self._started(["bash", "-c", command])

    def run_all(self, parts: Sequence[str]) -> tuple[int, list[str]]:
        """Return the exit code of a program made of these parts, and the output of each."""
        script = self.path / "tutorial.py"
        script.write_text(f"\nprint({_MARK!r}, flush=True)\n".join(parts), encoding="utf-8")
        code, printed = self._started([sys.executable, str(script)])
        return code, [each.lstrip("\n") for each in printed.split(f"{_MARK}\n")]

    def _started(self, words: Sequence[str]) -> tuple[int, str]:
        env = {**os.environ, "COLUMNS": str(WIDTH), "PYTHONWARNINGS": "ignore"}
        done = subprocess.run(
            words,
            cwd=self.path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
        )
        return done.returncode, self._anywhere(done.stdout)

    def _anywhere(self, printed: str) -> str:
        """Return an output without the directories of this machine."""
        for path, other in ((self.path, "~/work"), (ROOT, "~/p3s"), (Path.home(), "~")):
            printed = printed.replace(str(path), other)
        return printed


def printed_by(page: str, place: Place) -> Iterator[tuple[Block, int, str]]:
    """Yield every block of a page with its exit code and what it printed now."""
    found = blocks(page)
    for block in found:
        if block.kind == "console":
            yield block, *place.run(block)
    program = [block for block in found if block.kind == "python"]
    if program:
        code, outputs = place.run_all([block.command for block in program])
        outputs += [""] * (len(program) - len(outputs))
        yield from ((block, code, each) for block, each in zip(program, outputs, strict=True))


def renewed(page: str, place: Place) -> str:
    """Return a page with what its commands print now."""
    for block, code, printed in reversed(list(printed_by(page, place))):
        if code not in block.exits:
            raise SystemExit(f"{block.command!r} ended with {code}:\n{printed}")
        for each in block.missing(printed):
            raise SystemExit(f"{block.command!r} did not print {each!r}:\n{printed}")
        start, end = block.span
        if start >= 0:
            head = f"$ {block.command}\n" if block.kind == "console" else ""
            page = page[:start] + head + block.shown(printed) + page[end:]
    return page


def place_with_examples(path: Path, instead: Mapping[str, str] | None = None) -> Place:
    """Return a directory with examples/ in it."""
    shutil.copytree(ROOT / "examples", path / "examples", ignore=shutil.ignore_patterns("bin"))
    return Place(path, instead or {})


def main(pages: Sequence[str]) -> None:
    """Write the pages anew."""
    with tempfile.TemporaryDirectory() as work:
        place = place_with_examples(Path(work).resolve())
        for each in map(Path, pages):
            each.write_text(renewed(each.read_text(encoding="utf-8"), place), encoding="utf-8")
            print(f"{each}: written")


if __name__ == "__main__":
    main(sys.argv[1:])
