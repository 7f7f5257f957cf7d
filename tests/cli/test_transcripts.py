"""Commands as transcripts: what is typed, the exit code, and what is said and written.

A transcript (transcripts/*.txt) is made of blocks; lines that begin with # are remarks:

    ~ ranks n0\\nn1\\n                          a file that is there
    $ p3s replay HALO -n 16 --rank-file ranks    what is typed; words in capitals are studies
    1 ranks | no host for rank 2 to 15           the exit code, and what stands on stderr

What is refused (exit codes 1 and 2) is refused in one line on stderr, prints nothing else, and
changes neither the study nor the directory; nor does --dry-run. Behind other exit codes there may
be:

    > passed | 10.0 s (8.00 s to 12.5 s)         texts on stdout, whatever blanks are between words
    = counts.*.ratio [2.0, 8.0]                  values of its JSON; * is each, # how many there are
    = counts.0.time_s ~ 1.25                     ... within 5 %; also < and >
    ? both.svg <?xml                             a file that is there then, and what it begins with
    & p3s report HALO                            what is typed next, in the same directory
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from commands import Shown, cli
from named_studies import STUDIES

FOLDER = Path(__file__).parent / "transcripts"
#: What ends a line of a script whose command goes on in the next one.
_GOES_ON = "\\\n"


@dataclass
class Step:
    """A command: the files it needs, its words, its exit code, and what is to come of it."""

    where: str
    files: dict[str, bytes]
    words: tuple[str, ...]
    code: int = -1
    says: dict[str, list[str]] = field(default_factory=dict)


def raw(text: str) -> bytes:
    """Return what text with escapes stands for."""
    return text.encode("latin-1").decode("unicode_escape").encode("latin-1")


def scenes_of(path: Path) -> Iterator[list[Step]]:
    """Yield the commands of a transcript that share a directory. Files are there before them."""
    files: dict[str, bytes] = {}
    scene: list[Step] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        mark, _, rest = line.partition(" ")
        where = f"{path.stem}:{number}"
        if mark == "~":
            name, _, text = rest.partition(" ")
            files[name] = raw(text)
        elif mark in ("$", "&"):
            assert rest.startswith("p3s "), where
            if mark == "$" and scene:
                yield scene
                scene = []
            scene.append(Step(where, files, tuple(shlex.split(rest)[1:])))
            files = {}
        elif mark.isdigit():
            scene[-1].code = int(mark)
            scene[-1].says["!"] = rest.split(" | ")
        elif line and mark != "#":
            assert mark in (">", "=", "?") and scene[-1].code not in (1, 2), where
            says = rest.split(" | ") if mark == ">" else [rest]
            scene[-1].says.setdefault(mark, []).extend(says)
    yield scene


SCENES = [scene for path in sorted(FOLDER.glob("*.txt")) for scene in scenes_of(path)]


def state_of(place: Path) -> dict[Path, int]:
    """Return the files of a place, each with when it was changed."""
    return {path: path.lstat().st_mtime_ns for path in place.rglob("*") if not path.is_dir()}


def _is_kept(path: Path) -> bool:
    """Tell whether a file of a study cannot be made again: runs, what the user said, machines."""
    return "runs" in path.parts or path.name in ("study.json", "machine.json")


def value_at(data: Any, keys: list[str]) -> Any:
    """Return what stands at a place in JSON."""
    for at, key in enumerate(keys):
        if key == "*":
            return [value_at(each, keys[at + 1 :]) for each in data]
        data = len(data) if key == "#" else data[int(key) if isinstance(data, list) else key]
    return data


def check_value(data: Any, text: str) -> None:
    """Compare what stands at a place in JSON with what is expected there."""
    place, _, expected = text.partition(" ")
    sign, _, number = expected.partition(" ")
    found = value_at(data, place.split("."))
    if sign == "~":
        assert found == pytest.approx(json.loads(number), rel=0.05), text
    elif sign in ("<", ">"):
        assert (found < float(number)) == (sign == "<") and found != float(number), (text, found)
    else:
        assert found == json.loads(expected), text


def check_refusal(words: list[str], shown: Shown) -> None:
    """Compare what a refused command says with one line, or one object of JSON beside it."""
    if "--json" in (words[: words.index("--")] if "--" in words else words):
        error: dict[str, Any] = json.loads(shown.out)
        assert (error["schema"], error["exit_code"]) == ("p3s.error", shown.code)
        assert error["error"] in shown.err
    else:
        assert shown.out == ""
    (line,) = shown.said
    assert line == shown.last, shown.err


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene[0].where)
def test_commands_do_and_say_what_is_written(
    scene: list[Step], named: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places: dict[str, Path] = {}

    def placed(text: str) -> str:
        def place(found: re.Match[str]) -> str:
            return str(places.setdefault(found[0], named(found[0])))

        return re.sub(rf"\b({'|'.join(STUDIES)})\b", place, text)

    for step in scene:
        for name, content in step.files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_bytes(content)
        words = [placed(each) for each in step.words]
        before = [state_of(place) for place in (tmp_path, *places.values())]
        shown = cli("", *words, code=step.code)
        after = [state_of(place) for place in (tmp_path, *places.values())]
        if (refused := step.code in (1, 2)) or "--dry-run" in words:
            assert after[0] == before[0]
        if refused:
            check_refusal(words, shown)
        # what a command needs first may be made in the study; what cannot be made again stays
        for was, now in zip(before[1:], after[1:], strict=True):
            assert not [path for path in was if _is_kept(path) and now.get(path) != was[path]]
        for mark, text in ((mark, text) for mark, each in step.says.items() for text in each):
            told = placed(text.strip())
            if mark == "=":
                check_value(shown.data, told)
            elif mark == "?":
                name, _, begin = told.partition(" ")
                assert Path(name).read_bytes().startswith(raw(begin)), step.where
            else:
                said = shown.last if refused else shown.err if mark == "!" else shown.out
                both = f"{said}\n{' '.join(said.replace(_GOES_ON, ' ').split())}"
                assert told in both or text.strip() in both, (step.where, told, shown)
