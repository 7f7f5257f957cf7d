"""Signatures at several process counts become one scalable model: equations of the count."""

from __future__ import annotations

from p3s.model.stage import build

__all__ = ["build"]
