"""From captured runs to signatures: tables per process count, loops, phases and weights."""
