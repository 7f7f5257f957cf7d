"""Progress of longer jobs on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from p3s.base import progress as progress_
from p3s.base.text import one_line
from p3s.cli.common import say

#: A job without a bar says what it is doing once it has taken so long.
_SLOW_S = 2.0


class Progress(progress_.Progress):
    """Steps of a longer job: a bar when stderr is a terminal, one plain line per step if not."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task

    def expect(self, steps: int) -> None:
        """Say how many steps there are, where that was not known before."""
        if self._bar is not None:
            self._bar.reset(self._task, total=steps)

    def start(self, text: str) -> None:
        """Say which step is being done."""
        if self._bar is not None:
            self._bar.update(self._task, description=one_line(text))

    @contextmanager
    def slow(self, text: str) -> Iterator[None]:
        """Say what is being done where it takes more than two seconds and no bar says so."""
        timer = Timer(_SLOW_S, lambda: say(f"{text} ..."))
        timer.daemon = True
        if self._bar is None:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def step(self) -> None:
        """Count a step that has ended, one of many."""
        if self._bar is not None:
            self._bar.advance(self._task)

    def done(self, text: str) -> None:
        """Say that a step has ended."""
        self.step()
        if self._bar is not None:
            self._bar.console.print(one_line(text), markup=False, highlight=False)
        else:
            say(text)

    def say(self, text: str) -> None:
        """Say something that the user should know, in one line."""
        say(text)


@contextmanager
def progress(steps: int) -> Iterator[Progress]:
    """Show a job of ``steps`` steps on stderr."""
    if not sys.stderr.isatty():
        yield Progress()
        return
    from rich import progress as bars
    from rich.console import Console
    from rich.table import Column

    name = Column(ratio=3, no_wrap=True, overflow="ellipsis")
    columns = (
        bars.TextColumn("{task.description}", markup=False, table_column=name),
        bars.BarColumn(None, table_column=Column(ratio=1, min_width=4)),
        bars.MofNCompleteColumn(table_column=Column(no_wrap=True)),
        bars.TimeElapsedColumn(table_column=Column(no_wrap=True)),
        bars.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
    )
    console = Console(stderr=True)
    with bars.Progress(*columns, console=console, transient=True, expand=True) as bar:
        yield Progress(bar, bar.add_task("", total=steps))
