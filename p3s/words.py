"""Launcher commands as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def differing(one: Sequence[str], other: Sequence[str], limit: int = 80) -> tuple[str, str]:
    """Return two commands as text, whole where they differ; long equal ends become dots."""
    shorter = min(len(one), len(other))
    first = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    last = next(
        (i for i in range(shorter - first) if one[-1 - i] != other[-1 - i]), shorter - first
    )

    def text(words: Sequence[str]) -> str:
        whole = shlex.join(words).replace("'{np}'", "{np}")
        if len(whole) <= limit:
            return whole
        middle = words[first : len(words) - last]
        parts = ["..." if first else "", shlex.join(middle), "..." if last else ""]
        return " ".join(filter(None, parts)) or "..."

    return text(one), text(other)
