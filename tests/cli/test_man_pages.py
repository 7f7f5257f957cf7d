"""Manual pages and the site of the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import commands_page
import man_pages
import pytest
from command_help import Command, commands, program
from commands import cli
from paths import ROOT
from tutorial_outputs import Block, blocks

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


DOCS = ROOT / "docs"


def test_the_page_of_commands_is_what_the_code_says() -> None:
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    assert text == commands_page.page(), "run: make docs-pages"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does."""
    pytest.importorskip(
        "material", reason="mkdocs-material is not installed: pip install -e .[docs]"
    )
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class _Loads(HTMLParser):
    """What a page loads: scripts, style sheets, pictures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        at = dict(attrs)
        if tag in ("script", "img", "iframe"):
            self.addresses.append(at.get("src") or "")
        if tag == "link" and at.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.addresses.append(at.get("href") or "")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        for address in _Loads(page.read_text(encoding="utf-8")).addresses:
            assert "//" not in address, (page, address)
            if address and page.name != "404.html":
                assert (page.parent / address.partition("?")[0]).is_file(), (page, address)


def test_pages_can_be_searched_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert "p3s characterize" in index and "hold-out" in index


def test_drawings_have_the_colours_of_the_theme(site: Path) -> None:
    for page in (site / "concepts").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert '<div class="drawing"><svg' in text and ".svg" not in text.split("<article")[1]


PAGE = """# A page

<!-- run
exit = [0, 3]
keep = [["^b", "^d"], "^f"]
same = ["d [0-9]+"]
-->
```console
$ p3s one -- \\
  two
old
```

<!-- run
-->
```python
print(1)
```

```text
1
```
"""


def test_blocks_that_are_run() -> None:
    first, second = blocks(PAGE)
    assert first.command == "p3s one -- \\\n  two" and first.output == "old\n"
    assert first.exits == (0, 3) and second.exits == (0,)
    assert (second.kind, second.command, second.output) == ("python", "print(1)\n", "1\n")
    printed = "a\nb\nc\nd 7\ne\nf\ng\n"
    assert first.shown(printed) == "...\nb\nc\nd 7\n...\nf\n...\n"
    assert second.shown("1\n") == "1\n" and second.shown("") == ""
    assert first.missing(printed) == [] and first.missing("a\n") == ["d [0-9]+"]


def test_pages_of_the_tutorial_show_what_matters() -> None:
    for path in sorted((DOCS / "tutorial").glob("*.md")):
        found = blocks(path.read_text(encoding="utf-8"))
        assert len(found) >= 4
        for block in found:
            _shows(block)


def _shows(block: Block) -> None:
    assert block.output or not block.same, block.command
    assert block.missing(block.output) == [], block.command
    assert not re.search(r"/tmp/|/root/", block.output)
