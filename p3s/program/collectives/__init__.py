"""Collectives as the messages that an MPI library sends for them.

``expand(steps, library)`` is the way in; ``library_of(family, version, overrides)`` names the
library. ``tuned`` and ``choose`` hold the tables, ``rooted``, ``reductions``, ``exchanges`` and
``halving`` the algorithms.
"""
