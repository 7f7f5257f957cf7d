"""What long jobs tell while they run; the command line shows it, a library caller may."""

from __future__ import annotations


class Progress:
    """Steps of a longer job. This one says nothing."""

    def expect(self, steps: int) -> None:
        """Say how many steps there are, where that was not known before."""

    def start(self, text: str) -> None:
        """Say which step is being done."""

    def step(self) -> None:
        """Count a step that has ended, one of many."""

    def done(self, text: str) -> None:
        """Say that a step has ended."""

    def say(self, text: str) -> None:
        """Say something that the user should know, in one line."""
