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


class Once(Progress):
    """Steps of several alike jobs, as for each number of threads: what all of them say, once."""

    def __init__(self, of: Progress) -> None:
        super().__init__()
        self._of, self._told = of, set[str]()

    def expect(self, steps: int) -> None:
        """The steps of one job are a part of them all."""

    def start(self, text: str) -> None:
        """Say which step is being done."""
        self._of.start(text)

    def step(self) -> None:
        """Count a step that has ended, one of many."""
        self._of.step()

    def done(self, text: str) -> None:
        """Say that a step has ended, where no other job has said so."""
        if self._new(text):
            self._of.done(text)
        else:
            self._of.step()

    def say(self, text: str) -> None:
        """Say something that no other job has said."""
        if self._new(text):
            self._of.say(text)

    def _new(self, text: str) -> bool:
        if text in self._told:
            return False
        self._told.add(text)
        return True
