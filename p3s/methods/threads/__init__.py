"""Computing time over processes, threads and the place of both in a node."""

from p3s.base.extensions import Command, Extension

_COMMANDS = "p3s.methods.threads.commands"
_PREDICTING = "p3s.methods.threads.predicting"

EXTENSION = Extension(
    "threads",
    commands=(
        Command(
            "advise",
            f"{_COMMANDS}:advise",
            "Choose processes, threads and nodes.",
            "Machines and placement",
        ),
    ),
    alternatives=(
        ("report", f"{_COMMANDS}:report"),
        ("view", f"{_COMMANDS}:view"),
        ("next", f"{_COMMANDS}:next_"),
    ),
    studies=(
        "p3s.methods.threads.predicting:over_threads",
        "p3s.methods.threads.advise.stage:advise",
    ),
    teams=("p3s.methods.threads.predicting:OVER",),
)
