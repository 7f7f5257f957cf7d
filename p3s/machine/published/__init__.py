"""Typical clusters (p3s.cluster) and file systems (p3s.filesystem), a file for each."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@cache
def read_published(schema: str) -> dict[str, dict[str, Any]]:
    """Return the contents of the files of a format by their names, which are in order."""
    files = sorted(FOLDER.glob("*.json"))
    content_of = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    return {name: each for name, each in content_of.items() if each["schema"] == schema}
