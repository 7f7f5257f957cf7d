"""Workload parameters: models of several settings, the laws between them, models of others."""
