"""Manual pages say what ``--help`` says, and are such as ``man`` can show."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import man_pages
import pytest
from command_help import Command, commands, program
from commands import cli
from paths import ROOT

FOLDER = ROOT / "docs" / "man"
PAGES = man_pages.pages()
ALL = [program(), *commands()]
_OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")


def test_the_pages_are_what_the_code_says() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*")} == PAGES, "make docs-pages"


def described(lines: list[str]) -> set[str]:
    """Return the options that lines of a help or a page begin with."""
    return {name for line in lines for name in _OPTION.findall(line)}


@pytest.mark.parametrize("command", ALL, ids=lambda each: each.path.replace(" ", "-"))
def test_a_page_has_the_options_of_the_help(command: Command) -> None:
    told = [
        line[:28].partition("  ")[0]
        for line in options_of(cli("help", *command.path.split()[1:], "--all", code=None).out)
    ]
    plain = page(command).replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
    rows = plain.splitlines()
    names = [behind for tag, behind in zip(rows, rows[1:], strict=False) if tag == ".TP"]
    assert described(told) - {"-h", "--help"} == described([n for n in names if n[0] == "-"])


def options_of(text: str) -> list[str]:
    """Return the lines of a help that begin with an option, without what is before it."""
    inside = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    return [line[2:] for line in inside.splitlines() if line.startswith("  -")]


def page(command: Command) -> str:
    """Return the page of a command, or of what it is another name of."""
    name = (command.same_as or command.path).replace(" ", "-")
    return PAGES[f"{name}.1"]


def test_another_name_leads_to_the_page() -> None:
    assert PAGES["p3s-trace.1"] == ".so man1/p3s-characterize.1\n"
    assert all(f"{name}.1" in PAGES for name in re.findall(r"p3s[\w-]+(?=\(1\))", PAGES["p3s.1"]))


def test_text_is_no_markup() -> None:
    assert man_pages._escaped(".a 'b' \\c `d^~ é") == (
        "\\&.a \\(aqb\\(aq \\(rsc \\(gad\\(ha\\(ti \\[u00E9]"
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, where an installation has them."""
    folder = tmp_path_factory.mktemp("share") / "man1"
    shutil.copytree(FOLDER, folder)
    return folder


def said(words: list[str], folder: Path) -> str:
    """Return what a tool complains of, in the folder above that of the pages."""
    done = subprocess.run(words, cwd=folder.parent, capture_output=True, text=True, timeout=120)
    return done.stderr if "groff" in words[0] else done.stdout + done.stderr


def test_mandoc_finds_nothing_wrong(installed: Path) -> None:
    if not (mandoc := shutil.which("mandoc")):
        pytest.skip("mandoc is not installed")
    pages = sorted(f"man1/{path.name}" for path in installed.iterdir())
    lines = said([mandoc, "-T", "lint", "-W", "warning", *pages], installed).splitlines()
    # No date, so that pages are the same whenever they are made; a wheel can hold no links.
    meant = ("missing date", ".so is fragile")
    assert [line for line in lines if not any(words in line for words in meant)] == []


def test_groff_warns_of_nothing(installed: Path) -> None:
    if not (groff := shutil.which("groff")):
        pytest.skip("groff is not installed")
    pages = sorted(f"man1/{path.name}" for path in installed.iterdir())
    assert said([groff, "-ww", "-s", "-man", "-Tascii", "-z", *pages], installed) == ""


@pytest.mark.parametrize("command", ALL, ids=lambda each: each.path.replace(" ", "-"))
def test_values_have_names_and_ranges_words(command: Command) -> None:
    """No words of the library that reads options: <int range>, {STUDY}, 1<=x<=1000."""
    assert not re.search(
        "<\\w[\\w\\[\\] ]*>|<=x|x>=", cli("help", *command.path.split()[1:], "--all", code=None).out
    )
    assert not re.search(r"[<{]", " ".join([command.usage, *(tag for tag, _ in command.options)]))


@pytest.mark.parametrize("command", ALL, ids=lambda each: each.path.replace(" ", "-"))
def test_an_option_has_one_default(command: Command) -> None:
    twice = re.compile(r"\[default[^]]*\]\.? +\[default")
    assert [text for _, text in command.options if twice.search(text)] == []
