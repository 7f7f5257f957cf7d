"""A scaled trace for SimGrid: time-independent trace, platform and hosts."""

from __future__ import annotations

import shlex
from pathlib import Path

from p3s.base.study import Study
from p3s.formats.exported import Exported, Options, Say, new_export
from p3s.formats.scaled import network_of, nodes_of, programs_of
from p3s.formats.simgrid.format import keep, write_trace
from p3s.formats.simgrid.platform import lacks, write_platform
from p3s.formats.simgrid.smpirun import arguments


def to_simgrid(study: Study, n: int, target: Path, options: Options, say: Say) -> Exported:
    """Write SimGrid's time-independent trace, a platform and its hosts into a new directory."""
    done = Exported("simgrid", n, target)
    network, notes = network_of(study, options.machine)

    def stays(call: str, world: bool) -> bool:
        return keep(call, world) and not options.messages

    with new_export(done) as directory:
        for part, programs in programs_of(study, n, options, stays, done, say):
            (directory / part).mkdir(exist_ok=True)
            write_trace(programs, done, directory / part)
        there, up = (target, "") if options.turns is None else (target / "section-000", "../")
        done.command = f"cd {shlex.quote(str(there))} && smpirun {arguments(n, up)}"
        write_platform(directory, network, nodes_of(n, options.ranks_per_node), done.sizes)
        if not options.messages:
            done.notes.append(
                "collectives of all ranks are calls: SimGrid picks their algorithms "
                "(--cfg=smpi/coll-selector:ompi, mpich, ...)"
            )
        done.notes += [
            *notes,
            *(f"not in the platform: {text}" for text in lacks(network)),
            "one flop is one ns of computation: hosts have 1 Gf",
        ]
    return done
