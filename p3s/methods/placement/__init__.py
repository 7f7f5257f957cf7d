"""Which rank on which node: traffic, placements, and the features that tell how good they are."""
