"""What the site adds to the pages under docs/: pages from outside of it, pictures in both themes.

mkdocs.yml names this file; mkdocs calls the functions whose names begin with ``on_``.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
#: Pages of the repository that lie outside of docs/, and where the site has them.
OUTSIDE = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changes.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
#: The list of all pages is for readers of the repository; the site has its navigation.
_LISTS = ("docs/README.md", "README.md")
_SCHEMAS = "p3s/base/schemas"
#: A link to a file: [words](path#anchor), no address and no anchor alone.
_LINK = re.compile(r"(!?)\[([^\]\n]*(?:\n[^\]\n]+)?)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
#: The theme loads this for searching in pages opened from a disk; the site brings it along.
_SHIM = "https://unpkg.com/iframe-worker/shim"
#: What charts of P3S begin with: they have paper and colours of their own.
_CHART = '<svg class="chart"'
_PICTURE = re.compile(r'<img alt="([^"]*)" src="([^"]+\.svg)" ?/>')


def on_files(files: Files, config: Any) -> Files:
    """Return the files of the site with those from outside of docs/."""
    found = {ROOT / source: target for source, target in OUTSIDE.items()}
    found |= {path: f"schemas/{path.name}" for path in (ROOT / _SCHEMAS).glob("*.json")}
    for path, target in found.items():
        files.append(File.generated(config, target, content=path.read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference/schemas.md", content=schemas()))
    return files


def schemas() -> str:
    """Return the page that lists the published schemas."""
    names = sorted(path.name for path in (ROOT / _SCHEMAS).glob("*.json"))
    rows = "".join(f"- [{name}](../schemas/{name})\n" for name in names)
    return (
        "# Schemas\n\nJSON Schema (2020-12) of the files that users read; the number is the "
        "version of the format. What the keys mean is in [Files of a study](../formats.md).\n\n"
        + rows
    )


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the page with links that hold in the site; what is not in the site is no link."""
    at = page.file.src_uri
    origin = next((source for source, target in OUTSIDE.items() if target == at), f"docs/{at}")

    def moved(match: re.Match[str]) -> str:
        mark, words, path, anchor = match.groups()
        target = _in_site(posixpath.normpath(posixpath.join(posixpath.dirname(origin), path)))
        if target is None:
            return words
        return f"{mark}[{words}]({posixpath.relpath(target, posixpath.dirname(at))}{anchor or ''})"

    return _LINK.sub(moved, markdown)


def _in_site(path: str) -> str | None:
    """Return where the site has a file of the repository, None if nowhere."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path in _LISTS:
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if posixpath.dirname(path) == _SCHEMAS and path.endswith(".json"):
        return f"schemas/{posixpath.basename(path)}"
    return None


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Return the page with its drawings in it, so that they have the colours of the theme."""
    folder = ROOT / "docs" / posixpath.dirname(page.file.src_uri)

    def drawn(match: re.Match[str]) -> str:
        # Addresses in a page are those of the site, where a folder's page may lie one lower.
        for path in (folder / match[2], folder.parent / match[2]):
            if path.is_file() and _CHART not in (drawing := path.read_text(encoding="utf-8")):
                return f'<div class="drawing">{drawing}</div>'
        return match[0]

    return _PICTURE.sub(drawn, html)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Return the page with nothing in it that is loaded from elsewhere."""
    to_top = posixpath.relpath(".", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace(_SHIM, f"{to_top}/assets/iframe-worker.js")


def on_post_template(output_content: str, **_: Any) -> str:
    """Return the page of lost addresses with nothing in it that is loaded from elsewhere."""
    return output_content.replace(_SHIM, "assets/iframe-worker.js")
