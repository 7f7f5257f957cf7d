"""Baselines without a trace: regressions of run times over the process count.

They need nothing but run times and cost milliseconds; a prediction from traces must do better.
"""

from p3s.base.extensions import Command, Extension

EXTENSION = Extension(
    "baseline",
    commands=(
        Command(
            "baseline",
            "p3s.methods.baseline.commands.app:app",
            "Predict by a regression of run times alone.",
            "Compare and gate",
        ),
    ),
    sections=("p3s.methods.baseline.agreement:section",),
    schemas=("p3s.methods.baseline.model:BASELINE", "p3s.methods.baseline.trees.store:TREE"),
)
