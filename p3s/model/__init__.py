"""See docs/formats.md for the artefacts this package reads and writes."""
