"""Commands of placements: ``p3s place``, ``p3s machine learn``."""
