"""The order of events inside each rank."""
