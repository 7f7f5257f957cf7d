"""Workload parameters: models of several settings, the laws between them, models of others."""

from p3s.parameters.stage import build, family_path, instantiate, load, refresh

__all__ = ["build", "family_path", "instantiate", "load", "refresh"]
