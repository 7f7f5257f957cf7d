"""Compute time: from work at N processes to seconds at N (thesis chapter 6)."""
