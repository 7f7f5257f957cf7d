"""The table of commands: the core's own and those of extensions."""

from __future__ import annotations

from collections.abc import Iterator

from p3s.base.extensions import Command, extensions

#: Commands that ``p3s --help`` shows; ``p3s help --all`` shows the others too.
USUAL = frozenset(
    "help doctor characterize predict report next phases model validate compare machine place "
    "advise".split()
)
#: Another name of p3s characterize.
ALIAS = "trace"

#: The core's own commands in their groups, in the order of the help: name, module and function of
#: p3s.cli, its line.
_ROWS = {
    "Start": [
        ("doctor", "doctor:doctor", "Check what this machine has for tracing, and what it lacks."),
        (
            "characterize",
            "characterize:characterize",
            "Trace your program at a few small process counts.",
        ),
        (ALIAS, "characterize:characterize", "The same as characterize."),
        ("predict", "predict:predict", "Predict run time and speedup at larger process counts."),
        ("report", "report:report", "Write report.html and a picture of the speedup curve."),
        ("help", "help:help_", "Show the usual commands, all of them, or the help of one."),
        ("view", "view:view", "Open that page in a browser, here or through ssh."),
        ("next", "next:next_", "Name the process count whose trace would tell most."),
    ],
    "Inspect": [
        ("phases", "phases:phases", "Show loops, calls and where the time goes."),
        ("model", "model:model", "Show the equations of every call, and how well they hold."),
        ("explain", "explain:explain", "Show the values behind the equations of a phase."),
        ("matrix", "matrix:matrix", "Show who sends how much to whom."),
        ("check", "check:check", "Tell whether captured runs are whole."),
        ("dump", "dump:dump", "Print a captured run, or write it as Parquet."),
    ],
    "Compare and gate": [
        ("compare", "compare:compare", "Show two predictions side by side."),
        ("gate", "gate:gate", "Fail when a prediction misses the limit you set."),
        ("validate", "validate:validate", "Run the program at a count and compare every message."),
    ],
    "Machines and placement": [
        ("machine", "machine:app", "Measure this machine; list and compare machines.")
    ],
    "Expert": [
        ("exec", "exec:exec_", "Trace the program inside a launcher that you start."),
        ("add", "add:add", "Put runs captured elsewhere into a study."),
        ("scale", "scale:scale", "Write the predicted trace of a larger process count."),
        ("replay", "replay:replay", "Measure the communication of that trace on your nodes."),
        ("submit", "submit:submit", "Write batch scripts that trace or measure on a cluster."),
        ("recover", "recover:recover", "Save what is intact of a damaged capture."),
    ],
}
_OWN = tuple(
    Command(
        name,
        f"p3s.cli.{function}",
        summary,
        group,
        takes_launcher=name in ("doctor", "predict", "validate", "add", "submit"),
        program_options=name in (ALIAS, "characterize", "exec"),
    )
    for group, rows in _ROWS.items()
    for name, function, summary in rows
) + (Command("measure", "p3s.cli.measure:measure", "Measure this machine.", parent="machine"),)


def commands() -> Iterator[Command]:
    """Yield the core's commands, then those of extensions, which are imported only then."""
    yield from _OWN
    for each in extensions():
        yield from each.commands


#: Options that --help-all alone shows, of commands that have more than MOST_SHOWN.
MOST_SHOWN = 20
RARE = {
    "characterize": frozenset(
        "--counters --limit --no-posix-io --affinity --oversubscribe --stop --width --confidence "
        "--turns --up-to".split()
    ),
    "predict": frozenset(
        "--dims --knee --budget --launcher --collectives --node --base --every-rank --placement "
        "--topology --allow --only".split()
    ),
    "baseline fit": frozenset("--split --thesis --minsplit --prune".split()),
    "submit": frozenset("--cores-per-rank --module --venv --option".split()),
}
