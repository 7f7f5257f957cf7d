"""Commands that P3S proposes where its study is not known; p3s.pipeline.commands knows one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p3s.base.command_lines import join_counts
from p3s.base.text import command_line


class Proposals:
    """The commands for a study, "" where it is not known, by its name alone."""

    def __init__(self, root: str = "") -> None:
        """Take the directory of the study."""
        self._words = [root] if root else []

    def of(self, name: str, *words: str) -> str:
        """Return the command ``p3s NAME STUDY WORDS``."""
        return command_line(["p3s", *name.split(), *self._words, *words])

    def next(self, target: int = 0) -> str:
        """Return the command that names runs to make, for the prediction of ``target``."""
        return self.of("next", *(["-n", str(target)] if target else []))

    def predict(self, counts: int | Sequence[int], *words: str) -> str:
        """Return the command that predicts counts."""
        return self.of("predict", "-n", join_counts(counts), *words)

    def regress(self) -> str:
        """Return the command that fits the run times alone."""
        return self.of("baseline fit")

    def measure_files(self) -> str:
        """Return the command that measures a file system for this study."""
        into = [word for root in self._words for word in ("-o", f"{root}/machine.json")]
        return command_line(["p3s", "machine", "measure", "--io", "DIRECTORY", *into])

    def trace(self, counts: int | Sequence[int], repeats: int = 1, work: str = "") -> str:
        """Return the command that traces counts as the study's others were.

        ``repeats``: at least so many runs of each; ``work``: in another unit than theirs.
        """
        more = ["-r", str(repeats)] if repeats > 1 else []
        more += ["--work", work] if work else []
        return command_line(["p3s", "characterize", "-n", join_counts(counts), *more])

    def larger(self, n: int) -> int | None:
        """Return a count above ``n``, the largest that ran, that the program is likely to take.

        None where it refused the next ones.
        """
        return 2 * n

    def names_counts(self) -> bool:
        """Tell whether :meth:`next` names a count that has not run, or failed, since."""
        return True

    def traced(self) -> list[int]:
        """Return the counts that the model rests on."""
        return []

    def smaller_input(self, n: int) -> dict[str, Any] | None:
        """Return the smaller workload that :meth:`next` names for ``n``, and ``arguments``.

        None where there is no model to tell.
        """
        return None


#: Where the study is not known: what is to be done without its name and launcher.
NO_STUDY = Proposals()
