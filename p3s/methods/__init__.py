"""Methods beside the core, each a folder with its laws and what registers it."""
