"""Far points: runs of the program with a smaller workload, and where they belong (thesis 6.2)."""
