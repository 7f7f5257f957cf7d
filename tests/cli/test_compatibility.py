"""Studies of earlier versions are read; files of later ones are refused in a line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import cli
from old_studies import AT, names, recorded, said_of, unpack

from p3s.base.artefacts import add_digest
from p3s.cli.failures import BUG


@pytest.mark.parametrize("name", names())
def test_a_study_of_an_earlier_version_says_what_it_said(name: str, tmp_path: Path) -> None:
    said, then = said_of(unpack(name, tmp_path)), recorded(name)
    work, before = said["scaled"].pop("work"), then["scaled"].pop("work")
    assert said == then
    assert work == pytest.approx(before, rel=1e-9)


def test_studies_are_kept() -> None:
    assert names()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study in which everything was made by this version."""
    root = unpack(names()[-1], tmp_path_factory.mktemp("whole"))
    said_of(root)
    return root


#: File of a study, a command that reads it, and whether that refuses (else it makes it anew).
READ = (
    ("study.json", "next {s}", True),
    ("runs/np0004.r0/run.json", "check {s}", False),
    ("signature/np0004.json", "model {s}", False),
    ("model.json", f"scale {{s}} -n {AT}", False),
    (f"scaled/np{AT:06d}/scaled.json", f"predict {{s}} -n {AT} --no-replay", False),
    ("prediction.json", "report {s}", False),
)


@pytest.mark.parametrize(("file", "command", "refuses"), READ, ids=[row[0] for row in READ])
def test_a_file_of_a_later_version_is_refused_in_a_line_or_made_anew(
    file: str, command: str, refuses: bool, whole: Path, tmp_path: Path
) -> None:
    root = tmp_path / "study"
    shutil.copytree(whole, root)
    path = root / file
    content = json.loads(path.read_text())
    content.pop("digest", None)
    content["schema_version"] += 100
    path.write_bytes(add_digest(json.dumps(content, indent=1).encode()))
    shown = cli(command.replace("{s}", str(root)), code=None)
    assert shown.code != BUG and "Traceback" not in shown.err
    if refuses:
        assert shown.code == 1 and len(shown.err.strip().splitlines()) == 1, shown
        assert str(path) in shown.err and f"version {content['schema_version']}" in shown.err, shown
