"""Times and speedup from phase times and weights."""
