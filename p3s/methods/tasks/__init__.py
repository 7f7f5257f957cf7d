"""The analytical model of an iteration of a master and its workers; no command reaches it yet."""
