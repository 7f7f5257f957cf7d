"""Traced runs: the records of all ranks, merged (format: docs/capture-format.md)."""

from p3s.trace.reader import RunFiles, read_file, read_run, run_files
from p3s.trace.summary import ThreadTotals, summary, thread_totals, threads_of
from p3s.trace.threads import Runtime, ThreadInfo, Threads
from p3s.trace.types import Call, Comm, RankTrace, RunTrace, Site, Window

__all__ = [
    "Call",
    "Comm",
    "RankTrace",
    "RunFiles",
    "RunTrace",
    "Runtime",
    "Site",
    "ThreadInfo",
    "ThreadTotals",
    "Threads",
    "Window",
    "read_file",
    "read_run",
    "run_files",
    "summary",
    "thread_totals",
    "threads_of",
]
