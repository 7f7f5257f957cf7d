"""What if something were faster: run times with one thing changed, and what that saves.

A change is told by a short text such as ``latency/2`` (changes.py, docs/what-if.md). It alters the
computation of ranks or the costs of messages; the dependency simulation is asked again with the
same draws (simulated.py), and what is saved is set beside the prediction (answers.py), which knows
the usual changes, too.
"""
