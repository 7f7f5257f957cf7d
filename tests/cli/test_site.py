"""The documentation as a site: it builds, its links hold, and what is made from code is current."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import commands_page
import pytest
from paths import ROOT
from tutorial_outputs import Block, blocks

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
