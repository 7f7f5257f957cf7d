"""Wrong uses of commands, as transcripts: what is typed, the exit code, and what is said of it.

A transcript (transcripts/*.txt) is made of blocks; lines that begin with # are remarks:

    ~ ranks n0\\nn1\\n                          a file that is there
    $ p3s replay HALO -n 16 --rank-file ranks    what is typed; words in capitals are studies
    1 ranks | no host for rank 2 to 15           the exit code, and what the one line says

Each is refused in one line on stderr, prints nothing else, and changes neither the study nor the
directory.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from named_studies import STUDIES

FOLDER = Path(__file__).parent / "transcripts"


@dataclass(frozen=True)
class Step:
    """A command: the files it needs, its words, its exit code, and what is said."""

    where: str
    files: dict[str, bytes]
    words: tuple[str, ...]
    code: int
    says: tuple[str, ...]


def steps_of(path: Path) -> Iterator[Step]:
    """Yield the commands of a transcript. Files are there for the command that follows."""
    files: dict[str, bytes] = {}
    words: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        mark, _, rest = line.partition(" ")
        if mark == "~":
            name, _, text = rest.partition(" ")
            files[name] = text.encode("latin-1").decode("unicode_escape").encode("latin-1")
        elif mark == "$":
            assert rest.startswith("p3s "), line
            words = shlex.split(rest)[1:]
        elif mark.isdigit():
            says = tuple(each.strip() for each in rest.split(" | ") if each.strip())
            yield Step(f"{path.stem}:{number}", files, tuple(words), int(mark), says)
            files, words = {}, []
        else:
            assert not line or mark == "#", f"{path.name}:{number}: {line}"


STEPS = [step for path in sorted(FOLDER.glob("*.txt")) for step in steps_of(path)]


def state_of(place: Path) -> dict[Path, int]:
    """Return the files of a place, each with when it was changed."""
    return {path: path.lstat().st_mtime_ns for path in place.rglob("*") if not path.is_dir()}


def _is_kept(path: Path) -> bool:
    """Tell whether a file of a study cannot be made again: runs, what the user said, machines."""
    return "runs" in path.parts or path.name in ("study.json", "machine.json")


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.where)
def test_what_is_refused_is_one_line(
    step: Step, named: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in step.files.items():
        Path(name).write_bytes(content)
    places: dict[str, Path] = {}

    def place(found: re.Match[str]) -> str:
        return str(places.setdefault(found[0], named(found[0])))

    words = [re.sub(rf"\b({'|'.join(STUDIES)})\b", place, each) for each in step.words]
    before = [state_of(place) for place in (tmp_path, *places.values())]
    shown = cli("", *words, code=step.code)
    after = [state_of(place) for place in (tmp_path, *places.values())]
    assert after[0] == before[0]
    # what a command needs first may be made in the study; what cannot be made again stays
    for was, now in zip(before[1:], after[1:], strict=True):
        assert not [path for path in was if _is_kept(path) and now.get(path) != was[path]]
    if "--json" in (words[: words.index("--")] if "--" in words else words):
        error: dict[str, Any] = json.loads(shown.out)
        assert (error["schema"], error["exit_code"]) == ("p3s.error", step.code)
        assert error["error"] in shown.err
    else:
        assert shown.out == ""
    (line,) = shown.said
    assert line == shown.last, shown.err
    for text in step.says:
        assert text in line, line
