"""Regressions that were compared with, and are no part of the product."""
