"""Formats of other tools: what each registers, and what they share. See docs/export.md."""

from __future__ import annotations

from p3s.base.extensions import Command, Estimator, Extension, Writer

EXTENSION = Extension(
    "formats",
    commands=(
        Command(
            "export",
            "p3s.formats.command:export",
            "Write traces for SimGrid, OTF2, Extra-P and others.",
        ),
    ),
    readers=("p3s.formats.otf2.capture:READER",),
    writers=(
        Writer(
            "simgrid",
            "p3s.formats.simgrid.format:to_simgrid",
            "time-independent trace and platform for SimGrid's smpirun -replay",
            ".ti",
            "scaled",
        ),
        Writer(
            "goal",
            "p3s.formats.goal:to_goal",
            "schedule for LogGOPSim (GOAL, text)",
            ".goal",
            "scaled",
            splits=True,
        ),
        Writer(
            "perfetto",
            "p3s.formats.perfetto:to_perfetto",
            "timeline of the simulated run for ui.perfetto.dev (JSON)",
            ".perfetto.json",
            "simulated",
            of_ranks=True,
        ),
        Writer(
            "otf2",
            "p3s.formats.otf2.archive:to_otf2",
            "a traced or simulated run for Vampir, Score-P's tools and others (OTF2)",
            ".otf2",
            "run",
        ),
        Writer(
            "paraver",
            "p3s.formats.paraver:to_paraver",
            "a traced or simulated run for Paraver (.prv, .pcf, .row)",
            ".paraver",
            "run",
        ),
        Writer(
            "cube",
            "p3s.formats.cube:to_cube",
            "profile of a traced or simulated run for Cube (.cubex)",
            ".cubex",
            "run",
        ),
        Writer(
            "speedscope",
            "p3s.formats.speedscope:to_speedscope",
            "profile of a traced or simulated run as flame graphs for speedscope (JSON)",
            ".speedscope.json",
            "run",
            of_ranks=True,
        ),
        Writer(
            "extra-p",
            "p3s.formats.extrap:to_extrap",
            "measured and predicted points for Extra-P (JSON Lines)",
            ".extra-p",
            "points",
        ),
    ),
    estimators=(
        Estimator(
            "simgrid",
            "SimGrid's replay of the exported trace, on costs measured between two ranks",
            "SimGrid replays the scaled trace at every count",
            "p3s.formats.simgrid.smpirun:communication",
            "p3s.formats.simgrid.smpirun:why_not",
        ),
    ),
)
