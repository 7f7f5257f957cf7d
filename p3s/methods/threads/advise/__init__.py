"""Which processes, threads and places in a node are best for a workload, and how sure that is."""
