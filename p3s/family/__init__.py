"""Workload parameters: models of several settings, the laws between them, models of others."""

from p3s.family.stage import build, family_path, instantiate, load, refresh, sources

__all__ = ["build", "family_path", "instantiate", "load", "refresh", "sources"]
