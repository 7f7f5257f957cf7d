"""The model evaluated at N processes: the scaled trace as Parquet, one row per event and rank."""
