"""The version of P3S."""

__version__ = "0.1.0"
