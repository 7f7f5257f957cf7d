"""Other machines: what computation and messages cost on one, and moving a prediction to it."""
