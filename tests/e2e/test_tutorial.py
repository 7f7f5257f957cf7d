"""The tutorial: each of its commands runs, on a smaller input, and prints what matters there."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from paths import ROOT
from tracer_helpers import usable_mpi
from tutorial_outputs import place_with_examples, printed_by

#: Words of the tutorial, and what stands for them here: as many messages, less computation; all
#: counts leave the same remainder of both inputs.
SMALLER = {"--bodies 16001": "--bodies 3201", "-r 3": "-r 1"}
PAGES = ("index.md", "python.md")


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The MPI of the tests and p3s as the user has them, by these names."""
    install = usable_mpi()
    names = tmp_path / "names"
    names.mkdir()
    for name, target in (("mpicc", install.mpicc), ("mpiexec", install.mpiexec)):
        (names / name).write_text(f'#!/bin/sh\nexec {Path(target).absolute()} "$@"\n')
        (names / name).chmod(0o755)
    folders = (str(names), str(Path(sys.executable).parent), os.environ["PATH"])
    monkeypatch.setenv("PATH", os.pathsep.join(folders))


def test_every_command_of_the_tutorial(on_path: None, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    place = place_with_examples(work, SMALLER)
    for name in PAGES:
        page = (ROOT / "docs" / "tutorial" / name).read_text(encoding="utf-8")
        for block, code, printed in printed_by(page, place):
            assert code in block.exits, f"{block.command}\n{printed}"
            assert block.missing(printed) == [], f"{block.command}\n{printed}"


@pytest.mark.parametrize("name", PAGES)
def test_no_command_of_the_tutorial_is_left_out(name: str) -> None:
    """What is set as code is run: a block without the mark before it would be forgotten."""
    page = (ROOT / "docs" / "tutorial" / name).read_text(encoding="utf-8")
    opened = re.findall(r"(?m)^```(?!text$)\w+$", page)
    assert opened and page.count("<!-- run") == len(opened)
