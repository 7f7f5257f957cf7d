"""What is computed between calls: work of segments and the instruction table."""
