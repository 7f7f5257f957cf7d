"""Commands of the regressions of run times: ``p3s baseline``."""
