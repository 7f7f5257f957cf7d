"""Networks of nodes and switches: distances, routes over directed links, link speeds."""
