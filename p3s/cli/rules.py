"""Which options exclude or need each other, for every command: rules of the table, one check.

``--help``, the pages that are made from it and the check read the same rules.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from p3s.base.errors import UsageError
from p3s.cli.table import entries

#: Stands in rules for the words of a launcher command.
LAUNCHER = "a launcher command"


@dataclass(frozen=True)
class Rule:
    """What an option of a command does not go with, or goes only with.

    excludes: options that must not be given too. needs: options of which one must be given too.
    cure: what to do instead, "" where leaving one out is all.
    """

    option: str
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    cure: str = ""

    def broken(self, options: Collection[str]) -> str:
        """Return what is wrong with the options that are given, "" where nothing is."""
        if self.option not in options:
            return ""
        cure = f"; {self.cure}" if self.cure else ""
        if others := [name for name in self.excludes if name in options]:
            return f"{self.option}: not with {', '.join(others)}{cure}"
        if self.needs and not any(name in options for name in self.needs):
            return f"{self.option}: only with {' or '.join(self.needs)}{cure}"
        return ""


def rules_of(command: str) -> list[Rule]:
    """Return the rules of a command."""
    return [
        Rule(
            option, tuple(row.get("excludes", ())), tuple(row.get("needs", ())), row.get("cure", "")
        )
        for row in entries(command).get("rules", ())
        for option in row["options"]
    ]


def check(command: str, options: Collection[str]) -> None:
    """Raise UsageError for the first rule that the options of a command break.

    options: all names of those that are on the command line, and LAUNCHER.
    """
    for rule in rules_of(command):
        if wrong := rule.broken(options):
            raise UsageError(wrong)


def remarks(command: str, names: Collection[str]) -> str:
    """Return what rules say of an option, for its help: "not with --weak; only with --far"."""
    rules = rules_of(command)
    own_rules = [rule for rule in rules if rule.option in names]
    excluded = [name for rule in own_rules for name in rule.excludes]
    excluded += [rule.option for rule in rules if any(name in names for name in rule.excludes)]
    needed = [" or ".join(rule.needs) for rule in own_rules if rule.needs]
    parts = [f"not with {', '.join(dict.fromkeys(excluded))}"] if excluded else []
    return "; ".join([*parts, *(f"only with {each}" for each in needed)])
