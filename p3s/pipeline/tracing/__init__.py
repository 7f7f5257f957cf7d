"""Tracing a program at several process counts into a study."""
