"""Options of the table of commands that commands of extensions have, too."""

from __future__ import annotations

from p3s.cli.table import make_shared

STUDY = make_shared("study_dir")
JSON_OPTION = make_shared("json_", bool)
DIMS = make_shared("dims")
VALUE = make_shared("param", list[str])
THREADS = make_shared("threads")
COLLECTIVES = make_shared("collectives")
NETWORK = make_shared("network")
TOPOLOGY = make_shared("topology")
