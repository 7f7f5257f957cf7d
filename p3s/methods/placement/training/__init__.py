"""Measuring how long traffic takes on a machine, and learning it."""
