"""Starting a replay on nodes, and keeping what it has measured."""
