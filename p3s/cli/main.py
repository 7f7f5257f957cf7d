"""Entry point of the command line."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    raise SystemExit("p3s: the commands are not wired yet")
