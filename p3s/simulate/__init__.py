"""Dependency simulation: when every call of every rank begins and ends, on a given network."""
