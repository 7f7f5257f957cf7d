"""Computing time over processes, threads and the place of both in a node."""
