"""Finds the program inside a launcher command, so that only the program is preloaded."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from p3s.base.errors import P3SError, UsageError
from p3s.base.extents import names_count, with_count, with_extents
from p3s.base.host import mpi

LAUNCHERS = (
    "mpiexec",
    "mpirun",
    "mpiexec.hydra",
    "mpiexec.openmpi",
    "mpirun.openmpi",
    "mpiexec.mpich",
    "mpirun.mpich",
    "mpiexec.gforker",
    "orterun",
    "prterun",
    "srun",
)
#: What MPICH's launcher starts on each node.
PROXY = "hydra_pmi_proxy"

# Options by the number of values that follow them. Sources: `mpiexec --help` of Open MPI 4.1 and
# 5.0 and of MPICH's Hydra 4.0 and 5.0, srun(1) of Slurm 22.05 and later. `--opt=value` needs no
# entry. Names are written without dashes; the tables hold both spellings where they differ.
_OPENMPI_VALUES = {
    0: "allow-run-as-root oversubscribe nooversubscribe use-hwthread-cpus bind-to-core"
    " bind-to-socket bycore bynode byslot display-allocation display-map display-topo"
    " display-devel-map display-devel-allocation report-bindings tag-output timestamp-output"
    " merge-stderr-to-stdout q quiet v verbose V version d debug-devel debug-daemons"
    " debug-daemons-file do-not-launch do-not-resolve enable-recovery disable-recovery"
    " continuous leave-session-attached mpi-preload-files s preload-binary nolocal"
    " use-regexp get-stack-traces report-state-on-timeout index-argv-by-rank forward-signals-off"
    " cpu-set-off noprefix no-ready-msg novm staged stop-on-exec rank-by-slot tv xml"
    " get_stack_traces display_map display_allocation no-local allow-run",
    1: "n np c H host hostfile machinefile default-hostfile N npernode npersocket ppr map-by"
    " rank-by bind-to x wdir wd path prefix timeout output-filename output stdin rf rankfile"
    " report-pid report-uri pernode-off preload-files preload-files-dest-dir tune am app"
    " ompi-server cpu-set cpu-list cpus-per-proc cpus-per-rank max-restarts max-vm-size"
    " personality mca-base"
    " xterm display with-ft tmpdir output-proctable server-wait-time set-cwd-to-session-dir-off"
    " dvm dvm-uri pset runtime-options xml-file slot-list num-app-ctx",
    2: "mca gmca prtemca pmixmca omca gprtemca gpmixmca",
}
_HYDRA_VALUES = {
    0: "genvnone genvall envnone envall enable-x disable-x disable-auto-cleanup"
    " disable-hostname-propagation hybrid-hosts info print-all-exitcodes profile skip-launch-node"
    " verbose v version l prepend-rank order-nodes-off h help no-localhost",
    1: "f hosts host machinefile machine rankmap wdir configfile n np ppn perhost genvlist"
    " envlist launcher launcher-exec rmk topolib bind-to map-by membind demux errfile-pattern"
    " outfile-pattern prepend-pattern gpus-per-proc iface localhost nameserver order-nodes"
    " pmi-port usize memory-alloc-kinds path arch soft file port pmi-args",
    2: "genv env",
}
_SRUN_VALUES = {
    0: "E preserve-env exclusive s oversubscribe O overcommit l label u unbuffered v verbose Q"
    " quiet X disable-status Z no-allocate K kill-on-bad-exit-off k no-kill H hold contiguous"
    " pty overlap exact slurmd-debug-off multi-prog-off spread-job interactive test-only V"
    " version kill-on-bad-exit use-min-nodes no-requeue requeue",
    1: "n ntasks N nodes c cpus-per-task p partition A account t time J job-name w nodelist x"
    " exclude m distribution o output e error i input D chdir mpi mem mem-per-cpu mem-bind"
    " cpu-bind ntasks-per-node ntasks-per-core ntasks-per-socket gres gpus gpus-per-node"
    " gpus-per-task q qos C constraint B extra-node-info T threads d dependency export jobid"
    " reservation W wait hint threads-per-core sockets-per-node cores-per-socket r relative"
    " F nodefile L licenses M clusters comment network S core-spec begin deadline mail-type"
    " mail-user prolog epilog task-prolog task-epilog propagate signal switches tmp G"
    " cpu-freq bcast open-mode profile acctg-freq time-min mincpus",
    2: "",
}


#: Family of a launcher that P3S does not know.
UNKNOWN = "unknown"


def _arity(table: dict[int, str]) -> dict[str, int]:
    return {name: count for count, names in table.items() for name in names.split()}


_ARITY = {
    mpi.OPENMPI: _arity(_OPENMPI_VALUES),
    mpi.MPICH: _arity(_HYDRA_VALUES),
    mpi.SLURM: _arity(_SRUN_VALUES),
    UNKNOWN: {**_arity(_HYDRA_VALUES), **_arity(_OPENMPI_VALUES)},
}


@dataclass(frozen=True)
class Command:
    """A launcher command taken apart: everything up to the program, and the program.

    ``before`` begins with prefix commands, if any, then ``launcher`` (its full path) and options.
    ``others``: further programs of the launch, each with the options between ``:`` and it.
    """

    before: tuple[str, ...]
    launcher: str
    family: str
    program: tuple[str, ...]
    others: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()

    @property
    def programs(self) -> list[tuple[str, ...]]:
        """The words of all programs of the launch."""
        return [self.program, *(program for _, program in self.others)]

    def argv(self, started: Callable[[Sequence[str]], Sequence[str]] = tuple) -> list[str]:
        """Return the whole command; ``started``: the words that start a program."""
        words = [*self.before, *started(self.program)]
        for options, program in self.others:
            words += [":", *options, *started(program)]
        return words


def find_launcher(word: str) -> str:
    """Return the path of a launcher: as given, on PATH, or beside this Python.

    Errors: P3SError when it is nowhere.
    """
    beside = os.path.join(os.path.dirname(sys.executable), word)
    path = shutil.which(word) or (os.sep not in word and shutil.which(beside)) or None
    if not path:
        raise P3SError(
            f"{word}: launcher not found on PATH or beside {os.path.basename(sys.executable)};"
            " install an MPI (for example `pip install mpich`) or give its full path"
        )
    return path


def _split(words: Sequence[str], trusted: bool) -> tuple[int, str, str, int]:
    """Return (index of the launcher, its path, its family, index of -- or of the program)."""
    before = takewhile(lambda word: word != "--", words)
    index = next((i for i, word in enumerate(before) if os.path.basename(word) in LAUNCHERS), None)
    if index is not None:
        launcher = find_launcher(words[index])
        family = _family(words[index], launcher, trusted)
        if family is None:
            raise P3SError(
                f"{launcher}: not a launcher of Open MPI, MPICH or Slurm, or it does not start"
                f" (`{os.path.basename(launcher)} --version`)"
            )
        return index, launcher, family, _skip_options(words, index + 1, family)
    if "--" in words[1:]:
        return 0, find_launcher(words[0]), UNKNOWN, list(words).index("--", 1)
    shown = words[0] if words else "(nothing)"
    raise UsageError(
        f"{shown}: no launcher P3S knows (mpiexec, mpirun, srun); if it is one, put -- right"
        f" before the program: {shown} ... -- PROGRAM ARGS"
    )


def _family(word: str, launcher: str, trusted: bool) -> str | None:
    """Return the MPI of a launcher, None if it is of none.

    One that is not ``trusted`` is not asked, as asking is executing it; then UNKNOWN, unless it
    is on PATH, where the user has put it, or its name says it.
    """
    if trusted or os.sep not in word:
        return mpi.launcher_family(launcher)
    on_path = shutil.which(os.path.basename(word))
    if on_path is not None and os.path.realpath(on_path) == os.path.realpath(launcher):
        return mpi.launcher_family(on_path)
    return mpi.named_family(os.path.basename(word)) or UNKNOWN


def _skip_options(words: Sequence[str], start: int, family: str) -> int:
    arity = _ARITY[family]
    at = start
    while at < len(words):
        word = words[at]
        if word == "--":
            return at  # the user says where the program begins
        if not word.startswith("-") or word == "-":
            return at
        name = word.lstrip("-")
        if "=" in name:
            at += 1
        elif name in arity:
            at += 1 + arity[name]
        elif family == mpi.SLURM and not word.startswith("--") and arity.get(name[:1]) == 1:
            at += 1  # srun -n4
        elif "--" in words[at:]:
            return list(words).index("--", at)
        else:
            raise UsageError(
                f"{word}: P3S does not know this option of {os.path.basename(words[start - 1])},"
                " so it cannot tell where the program begins; put -- right before the program"
            )
    return at


def parse(template: Sequence[str], np: int, *, there: bool = True, trusted: bool = True) -> Command:
    """Take a launcher command apart, ``{np}``, or {np-1} and the like, replaced by a number.

    ``there``: whether the program must be on this machine, as seen from this directory.
    ``trusted``: whether the launcher may be asked which one it is; not so for words that come
    from a file, which are not to be executed.
    Extents of the process grid that are still open become those of MPI_Dims_create.
    A launcher that is not in LAUNCHERS, or an option of one that is not known, needs ``--``
    right before the program; it is not passed on (of two, the first is).
    Errors: UsageError when there is no {np}, launcher or program in it or it cannot be told where
    the program begins; P3SError when launcher or program does not exist.
    """
    if not names_count(template):
        raise UsageError(
            "the launcher command has no {np}; write for example `mpiexec -n {np} PROGRAM`"
        )
    words, *rest = _parts(with_count(with_extents(template, np), np))
    index, launcher, family, at = _split(words, trusted)
    options, program = _taken_apart(words, at)
    before = (*words[:index], launcher, *options[index + 1 :])
    others = [_taken_apart(part, _skip_options(part, 0, family)) for part in rest]
    for options, (name, *_) in ((before, program), *others) if there else ():
        moved = any(w.lstrip("-").split("=")[0] in ("wdir", "wd", "chdir", "D") for w in options)
        program_path(name, moved)
    return Command(before, launcher, family, program, tuple(others))


def _parts(words: Sequence[str]) -> list[list[str]]:
    """Return the parts of a launcher command, one a program: ``:`` stands between them."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _taken_apart(words: Sequence[str], at: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options, and the program that begins at a word or after a ``--`` there."""
    begin = at + 1 if list(words[at : at + 1]) == ["--"] else at
    if begin > at and list(words[begin : begin + 1]) == ["--"]:
        at, begin = at + 1, begin + 1  # a launcher that wants a -- of its own
    if not words[begin:]:
        raise UsageError(f"no program after {' '.join(words)}")
    return tuple(words[:at]), tuple(words[begin:])


def program_path(word: str, elsewhere: bool = False) -> str:
    """Return the path of a program as the shell would find it.

    ``elsewhere``: it is started in another directory; then "" where it is not here. Errors:
    P3SError that says what it is instead.
    """
    if path := shutil.which(word):
        return path
    if os.path.isdir(word):
        raise P3SError(f"{word}: is a directory, not a program")
    if os.path.exists(word):
        if os.sep in word:
            raise P3SError(f"{word}: not executable; `chmod +x {word}` or name its interpreter")
        raise P3SError(f"{word}: not found on PATH; for the file in this directory write ./{word}")
    if not elsewhere or os.path.isabs(word):
        where = "" if os.path.isabs(word) else " on PATH"
        if where and os.sep in word:
            where = ", relative to the directory you are in"
        raise P3SError(f"{word}: program not found{where}; check the path")
    return ""


def origin_of(word: str) -> dict[str, str | None]:
    """Return the entries of run.json that say where a program is and where it was started."""
    path = shutil.which(word)
    return {"program": os.path.abspath(path) if path else None, "directory": os.getcwd()}
