"""What this machine has: MPI installations, cores, hosts, a C compiler and its cache."""
