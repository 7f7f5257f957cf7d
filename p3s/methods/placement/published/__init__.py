"""Models and patterns of communication phases as the sources of placement publish them."""
