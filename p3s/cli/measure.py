"""``p3s machine measure``: what computation, messages and files cost here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import UsageError
from p3s.cli.common import check_output, emit_json, out, quote_word, say
from p3s.cli.progress import progress
from p3s.cli.values import parse_counts, words_of

if TYPE_CHECKING:
    from p3s.machine.filesystem import FileSystem


def measure(
    output: Path,
    quick: bool,
    launcher: str,
    network: bool,
    openmp: bool,
    oversubscribe: bool,
    io: Path | None,
    io_ranks: str,
    io_mib: int,
    json_: bool,
) -> int:
    """Measure kernels on one core and on all, and messages between two ranks.

    With --openmp: what parallel regions, loops, barriers, tasks cost by threads, the bandwidth of
    teams, latencies of memory.

    With --io: opening, writing, syncing and reading files, one of each process and one of all, with
    the C library and MPI, alone and together. The files of one process take what --io-mib says.

    Exit code 3 when the network was asked for and could not be measured.
    """
    from p3s.machine.machinefile import MACHINE, Machine
    from p3s.machine.measure import PARTS
    from p3s.machine.measure import measure as run
    from p3s.machine.show import render

    words = words_of(launcher, "--launcher")
    if words and not any("{np}" in word for word in words):
        raise UsageError(
            f'--launcher "{launcher}" has no {{np}} for the number of ranks; write for example '
            '--launcher "mpiexec -n {np}"'
        )
    check_output(output, "machine.json", "machine file", Machine.load)
    writers = _writers(io, io_ranks)
    with progress(len(PARTS) - (not openmp)) as bar:
        machine = run(
            quick=quick,
            launcher=list(words) or None,
            network=network,
            openmp=openmp,
            oversubscribe=oversubscribe,
            on_step=bar.start,
            on_done=bar.done,
        )
    if io is not None:
        machine = replace(machine, files=_files(io, list(words), writers, io_mib << 20, quick))
    machine.save(output)
    if json_:
        emit_json(MACHINE.data(machine))
        for text in machine.disturbed:
            say(f"disturbed: {text}")
    else:
        out(render(machine))
    say(f"next: p3s machine show {quote_word(output)}")
    if network and machine.network is None:
        say(f"p3s: computation was measured, the network was not: {machine.network_missing}")
        return 3
    return 0


def _writers(io: Path | None, text: str) -> list[int]:
    from p3s.base.host.cores import cores

    if io is None:
        return []
    if not io.is_dir() or not os.access(io, os.W_OK):
        raise UsageError(f"--io {io}: no directory that can be written; name one")
    if text:
        return parse_counts(text)
    return sorted({1, 2, *(1 << k for k in range(1, 8) if 1 << k <= cores())})


def _files(io: Path, words: list[str], writers: list[int], nbytes: int, quick: bool) -> FileSystem:
    from p3s.machine.filesystem import measure_files

    say(f"measuring files in {io} with {', '.join(map(str, writers))} processes")
    return measure_files(io, words or None, writers, nbytes, 3 if quick else 9)
