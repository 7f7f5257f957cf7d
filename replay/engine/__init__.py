"""The processes of a replay: the compiled inner loop and the worker around it."""
