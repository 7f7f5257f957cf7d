"""What the ranks of N processes do, in program order."""
