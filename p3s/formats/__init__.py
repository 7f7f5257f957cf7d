"""Exports: what a study knows in the formats of other tools. See docs/export.md."""

from __future__ import annotations

#: Formats, and what each is for, for people.
FORMATS = {
    "simgrid": "time-independent trace and platform for SimGrid's smpirun -replay",
    "goal": "schedule for LogGOPSim (GOAL, text)",
    "extra-p": "measured and predicted points for Extra-P (JSON Lines)",
    "otf2": "a traced or simulated run for Vampir, Score-P's tools and others (OTF2)",
    "paraver": "a traced or simulated run for Paraver (.prv, .pcf, .row)",
    "cube": "profile of a traced or simulated run for Cube (.cubex)",
    "speedscope": "profile of a traced or simulated run as flame graphs for speedscope (JSON)",
    "perfetto": "timeline of the simulated run for ui.perfetto.dev (JSON)",
}
