"""From samples to costs: classes, links, and what phases take."""
