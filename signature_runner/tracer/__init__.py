"""The preloaded recorder: a table of MPI calls, a wrapper generator and a C runtime."""
