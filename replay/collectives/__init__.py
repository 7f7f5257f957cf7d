"""Collectives as the messages that an MPI library sends for them."""
