"""Methods beside the core: each a folder of its own."""
