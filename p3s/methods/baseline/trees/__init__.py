"""Trees of regressions over tables of run times: grown by tests of parameter instability."""
