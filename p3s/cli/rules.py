"""Which options exclude or need each other, for every command: one table, one check.

``--help``, the pages that are made from it and the check read the same rules.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from p3s.base.errors import UsageError
from p3s.cli.table import ALIAS, RARE

#: Stands in rules for the words of a launcher command.
LAUNCHER = "a launcher command"


@dataclass(frozen=True)
class Rule:
    """What an option of a command does not go with, or goes only with.

    excludes: options that must not be given too. needs: options of which one must be given too.
    cure: what to do instead, "" where leaving one out is all.
    """

    command: str
    option: str
    excludes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    cure: str = ""

    def broken(self, given: Collection[str]) -> str:
        """Return what is wrong with the options that are given, "" where nothing is."""
        if self.option not in given:
            return ""
        cure = f"; {self.cure}" if self.cure else ""
        if others := [name for name in self.excludes if name in given]:
            return f"{self.option}: not with {', '.join(others)}{cure}"
        if self.needs and not any(name in given for name in self.needs):
            return f"{self.option}: only with {' or '.join(self.needs)}{cure}"
        return ""


def _rules(command: str, options: str, **more: Any) -> list[Rule]:
    """Return the same rule for several options of a command."""
    return [Rule(command, option, **more) for option in options.split()]


_TRACE_FIRST = "trace first, with p3s characterize"

RULES = (
    Rule("predict", "--from", needs=(LAUNCHER,), cure="give it after --"),
    Rule("predict", "--base", needs=("--machine",)),
    Rule("predict", "--param", (LAUNCHER,), cure=f"{_TRACE_FIRST} --param"),
    Rule("predict", "--weak", (LAUNCHER,), cure=f"{_TRACE_FIRST} --param"),
    Rule("predict", "--weak", ("--placement", "--allow", "--machine", "--what-if")),
    Rule(
        "predict",
        "--threads",
        ("--weak", "--machine", "--placement", LAUNCHER),
        cure=f"{_TRACE_FIRST} --threads",
    ),
    Rule("predict", "--what-if", ("--threads",), cure="name one number, as in --param threads=2"),
    Rule("predict", "--node", needs=("--threads",), cure="as in --threads 1,2,4"),
    Rule("predict", "--io", ("--weak", "--threads", "--machine"), cure="measure it into the file"),
    Rule("characterize", "--part", ("--far", "--up-to", "--param", "--threads", "--signature")),
    Rule(
        "characterize",
        "--far",
        ("--signature", "--force", "--no-times", "--threads", "--param"),
        cure="a smaller workload is recorded whole, with its times, and kept apart",
    ),
    Rule("characterize", "--up-to", needs=("--far",), cure="give the counts with -n"),
    Rule("characterize", "--up-to", ("-n",), cure="it ends the walk that is made without -n"),
    Rule("characterize", "--signature", ("--param", "--threads"), cure="name STUDY/at/NAME=VALUE"),
    *_rules("characterize", "--stop --width --confidence --turns", needs=("--signature",)),
    *_rules(
        "characterize",
        "--affinity --oversubscribe",
        needs=("--threads",),
        cure="as in --threads 1,2,4",
    ),
    Rule("characterize", "--far", needs=("-o",), cure="it is a smaller workload of that study"),
    Rule("model", "--latex", ("--python", "--scic", "--compute", "--json")),
    Rule("model", "--python", ("--scic", "--compute", "--json")),
    Rule("model", "--scic", ("--compute", "--json")),
    Rule("model", "--csv", ("--json",), needs=("--scic", "--compute")),
    Rule("model", "-n", needs=("--scic", "--compute")),
    *(Rule(command, "--csv", ("--json",)) for command in ("compare", "place")),
    Rule("report", "--phases", needs=("--csv",), cure="the page shows the phases"),
    *_rules("report", "--plot --size", needs=("--picture",), cure="as in --picture speedup.pdf"),
    Rule("report", "--csv", ("--json", "--picture", "-o"), cure="it prints a table alone"),
    Rule("submit", "--dry-run", ("--submit",)),
    *_rules(
        "submit",
        "--jobs --cores-per-rank --repeats --trace --predict",
        needs=(LAUNCHER,),
        cure="put it after --, as -- mpiexec -n {np} ./program",
    ),
    *_rules("submit", "--nodes --budget", excludes=(LAUNCHER,), cure="give --ppn"),
    Rule("dump", "--summary", ("--rank", "--parquet"), cure="it is of all ranks"),
    Rule(
        "doctor",
        "--mpicc",
        needs=("--tracer-archive",),
        cure="without it every MPI on PATH is looked for",
    ),
    Rule("doctor", "--report", ("--tracer-archive", "--json"), cure="it is a text of its own"),
    Rule("machine measure", "--oversubscribe", needs=("--openmp",)),
    *_rules("machine measure", "--io-ranks --io-mib", needs=("--io",)),
)

#: Commands by the other name that they have.
_ALIASES = {ALIAS: "characterize"}


def rare(command: str) -> frozenset[str]:
    """Return the options of a command that --help leaves to --help-all."""
    return RARE.get(_ALIASES.get(command, command), frozenset())


def check(command: str, given: Collection[str]) -> None:
    """Raise UsageError for the first rule that the options of a command break.

    given: all names of those that are on the command line, and LAUNCHER.
    """
    for rule in _of(command):
        if wrong := rule.broken(given):
            raise UsageError(wrong)


def remarks(command: str, names: Collection[str]) -> str:
    """Return what rules say of an option, for its help: "not with --weak; only with --far"."""
    rules = _of(command)
    own = [rule for rule in rules if rule.option in names]
    excluded = [name for rule in own for name in rule.excludes]
    excluded += [rule.option for rule in rules if any(name in names for name in rule.excludes)]
    needed = [" or ".join(rule.needs) for rule in own if rule.needs]
    parts = [f"not with {', '.join(dict.fromkeys(excluded))}"] if excluded else []
    return "; ".join([*parts, *(f"only with {each}" for each in needed)])


def _of(command: str) -> list[Rule]:
    name = _ALIASES.get(command, command)
    return [rule for rule in RULES if rule.command == name]
