"""Which rank on which node: traffic, placements, and the features that tell how good they are."""

from p3s.base.extensions import Command, Extension

EXTENSION = Extension(
    "placement",
    commands=(
        Command(
            "place",
            "p3s.methods.placement.commands.place:place",
            "Choose the node of every rank.",
            "Machines and placement",
        ),
        Command(
            "learn",
            "p3s.methods.placement.commands.learn:learn",
            "Learn how long traffic takes on a machine.",
            parent="machine",
        ),
    ),
    sections=("p3s.methods.placement.section:section",),
    schemas=(
        "p3s.methods.placement.ranked.types:PLACEMENTS",
        "p3s.methods.placement.learned:MODEL",
        "p3s.methods.placement.training.dataset:PHASES",
        "p3s.methods.placement.training.dataset:PROBES",
        "p3s.methods.placement.training.dataset:EXECUTION",
    ),
    studies=("p3s.methods.placement.ranked.stage:place",),
)
