"""Traced runs: the records of all ranks, merged (format: docs/capture-format.md)."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing costs a third of what the simulation loads of this package
if TYPE_CHECKING:
    from p3s.capture.reader import RunFiles, read_file, read_run, run_files
    from p3s.capture.summary import thread_totals, threads_of
    from p3s.capture.threads import Runtime, ThreadInfo, Threads
    from p3s.capture.types import Call, Comm, RankTrace, RunTrace, Site, Window

__all__ = [
    "Call",
    "Comm",
    "RankTrace",
    "RunFiles",
    "RunTrace",
    "Runtime",
    "Site",
    "ThreadInfo",
    "Threads",
    "Window",
    "read_file",
    "read_run",
    "run_files",
    "thread_totals",
    "threads_of",
]

_WHERE = {
    "reader": ("RunFiles", "read_file", "read_run", "run_files"),
    "summary": ("thread_totals", "threads_of"),
    "threads": ("Runtime", "ThreadInfo", "Threads"),
    "types": ("Call", "Comm", "RankTrace", "RunTrace", "Site", "Window"),
}


def __getattr__(name: str) -> object:
    """Return what is public here when it is asked for: the reader is most of the package."""
    for module, names in _WHERE.items():
        if name in names:
            return getattr(import_module(f"p3s.capture.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
