"""Which rank on which node: placements of a study's processes, ranked by the time they take."""
