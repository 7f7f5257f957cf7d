"""Where ranks are: process grids, coordinates, and predicates on them."""
