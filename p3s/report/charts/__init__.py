"""Charts of a report as inline SVG: no script, no style of their own, colours by class."""
