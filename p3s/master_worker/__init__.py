"""Programs of a master and workers: an analytical model of iterations, and whether it applies."""
