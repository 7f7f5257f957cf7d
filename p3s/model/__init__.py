"""Signatures at several process counts become one scalable model: equations of the count."""
