"""What a program's files take: how it uses them, and the time of that on a file system."""
