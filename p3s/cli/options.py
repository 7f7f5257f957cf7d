"""Options of the table of commands that commands of extensions have, too."""

from __future__ import annotations

from p3s.cli.table import shared

STUDY = shared("study_dir")
JSON_OPTION = shared("json_", bool)
DIMS = shared("dims")
VALUE = shared("param", list[str])
THREADS = shared("threads")
COLLECTIVES = shared("collectives")
NETWORK = shared("network")
TOPOLOGY = shared("topology")
