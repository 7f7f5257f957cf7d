"""Numbers and structures of the capture format, version 2.4 (docs/capture-format.md)."""

from __future__ import annotations

import struct

MAGIC = b"P3STRACE"
MAJOR, MINOR = 2, 4
#: File name of a rank's capture.
NAME = "rank-{:06d}.p3t"
#: Chunks begin at multiples of this.
PAGE_BYTES = 4096
#: P3S traces small runs; more ranks than this are damage.
MAX_RANKS = 1 << 16

#: Header: all fields up to header_crc, which covers those before it.
HEADER = struct.Struct("<8sHHIiiqqqqII16s64s144sQ64s64sQI72sI")
#: Names of its fields, of the totals behind it; of those in Header the same.
HEADER_NAMES = (
    *("magic", "major", "minor", "header_bytes", "rank", "size", "init_realtime_ns"),
    *("init_monotonic_ns", "clock_cost_ns", "pid", "work_source", "counters", "family", "host"),
    *("counter_names", "limit_bytes", "mpi_version", "work_origin", "run", "launched", "more"),
    "crc",
)
HEADER_CRC_BYTES = 508
#: Live totals, kept up to date while the program runs; not under the checksum.
TOTALS = struct.Struct("<QqIIiIQq")
TOTALS_NAMES = (
    *("failed_polls", "failed_poll_ns", "in_call", "flags", "abort_code", "paused"),
    *("paused_calls", "tracer_ns"),
)
TOTALS_OFFSET = 512
#: Where the chunk of phases begins, for who watches the run; 0 if there is none.
PHASES_AT_OFFSET = 560
#: Memory in use at the end of MPI_Init and at most, preemptions; of files from 2.2 on.
MEMORY = struct.Struct("<QQQ")
MEMORY_OFFSET, MEMORY_MINOR = 568, 2
#: Calls in signal handlers, which are not recorded; 0 in older files.
HANDLERS_OFFSET = 592
#: A word that holds the id of the thread that called MPI_Init; the kernel sets this bit of it
#: when the thread begins to end.
ALIVE_OFFSET = 1024
OWNER_DIED = 0x40000000
HEADER_MIN_BYTES = TOTALS_OFFSET + TOTALS.size
HEADER_READ_BYTES = HANDLERS_OFFSET + 8
#: What a signature's digest of its captures covers of each header.
HEADER_DIGEST_BYTES = MEMORY_OFFSET + MEMORY.size

CHUNK = struct.Struct("<IHHiIIIQqIIQII")
CHUNK_BYTES = 64
CHUNK_CRC_BYTES = 44
CHUNK_MAGIC = 0x4B433350
#: Versions of a chunk that are read; version 2 of EVENTS has a column more, the gap.
CHUNK_VERSION, GAP_VERSION = 1, 2

DEFS, EVENTS, DONE, RESOLVED, COUNTS, END, PHASES, THREADS = range(1, 9)
ACCESSES = 12
KIND_NAMES = {
    DEFS: "definitions",
    EVENTS: "events",
    DONE: "completions",
    RESOLVED: "resolved receives",
    COUNTS: "counts",
    END: "end",
    PHASES: "phases",
    THREADS: "threads",
    ACCESSES: "accesses",
}

#: Kinds whose rows change in place: their checksum holds once they are sealed.
IN_PLACE = (COUNTS, PHASES)

OPNAME, SITE, COMM, CALL, WINDOW, RUNTIME, THREAD, NUMBERS, NEIGHBOURS = range(1, 10)
FILE = 12
#: Payload of a FILE record: window, mode, hash of the name, and of it without the rank; then hints.
FILE_RECORD = struct.Struct("<iIQQ")

END_RECORD = struct.Struct("<QQQQQqQQIIIIq")
#: The first captures of version 2.0 have no tracer_ns.
END_MIN_BYTES = 80

#: Payload of a CALL record.
CALL_FIELDS = [
    ("op", "<u4"),
    ("site", "<u4"),
    ("comm", "<i4"),
    ("peer", "<i4"),
    ("tag", "<i4"),
    ("root", "<i4"),
    ("bytes", "<i8"),
    ("count", "<i8"),
    ("elem_bytes", "<u4"),
    ("thread", "<u4"),
    ("depth", "<u4"),
    ("window", "<i4"),
    ("team", "<u4"),
    ("numbers", "<u4"),
    ("block", "<u4"),
    ("memory", "<u4"),
]
#: Fields from the team on are left out where they are 0.
CALL_PAYLOAD_BYTES, WHOLE_CALL_BYTES = 56, 72
#: Payload of a THREAD record: number, kind, calls_as, threads, CPU time; then the cores as text.
THREAD_RECORD = struct.Struct("<IIiIq")
RECORD_HEAD = struct.Struct("<II")

#: Columns of an EVENTS row before the counters.
EVENT_COLUMNS = 4
COUNT_FIELDS = [("events", "<u8"), ("elapsed_ns", "<i8"), ("work", "<i8"), ("reserved", "<u8")]

PHASE_FIELDS = [
    ("phase", "<u4"),
    ("state", "<u4"),
    ("turns", "<u8"),
    ("measured", "<u8"),
    ("batches", "<u8"),
    ("mean", "<f8"),
    ("variance", "<f8"),
    ("elapsed_ns", "<i8"),
    ("work", "<i8"),
    ("left_out", "<u8"),
    ("early", "<u8"),
    ("early_elapsed_ns", "<i8"),
    ("early_work", "<i8"),
    ("detailed", "<u8"),
    ("detailed_mean", "<f8"),
]

WALL, CPU, INSTRUCTIONS = 1, 2, 3
WORK_UNITS = {WALL: "wall_ns", CPU: "cpu_ns", INSTRUCTIONS: "instructions"}

STOPPED_EARLY, ABORTING, LIMITED, SWITCHED_OFF, SAMPLED = 1, 2, 4, 8, 16
MAX_COUNTERS = 6
COUNTER_NAME_BYTES = 24
