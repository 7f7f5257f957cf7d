"""Baselines without a trace: regressions of run times over the process count.

They need nothing but run times and cost milliseconds; a prediction from traces must do better.
"""
