"""Times and speedup from phase times and weights."""

from p3s.predict.prediction import KNEE_EFFICIENCY, PREDICTION_SCHEMA, as_file, compose, predict

__all__ = ["KNEE_EFFICIENCY", "PREDICTION_SCHEMA", "as_file", "compose", "predict"]
