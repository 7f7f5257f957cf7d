"""Published patterns and models of communication phases, and no part of the product."""
