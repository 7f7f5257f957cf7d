"""Estimators of the communication of N processes; p3s.predict.estimated names them."""

from p3s.predict.estimated import Communication
from p3s.predict.estimators.one import available, estimate, estimate_many, lacking
from p3s.predict.estimators.settings import Setting

__all__ = ["Communication", "Setting", "available", "estimate", "estimate_many", "lacking"]
