"""P3S: predict how an MPI program scales from a few small runs."""

__version__ = "0.1.0"
