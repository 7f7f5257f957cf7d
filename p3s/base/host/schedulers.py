"""Slurm, PBS and LSF: what a batch job asks for in their words, and how a script is handed over."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p3s.base.errors import P3SError, UsageError

#: Minutes, [days-]hours:minutes:seconds and the forms between as Slurm has them; and 90s, 30m, 2h.
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_SHORT_TIME = re.compile(r"(\d+(?:\.\d*)?)(s|m|min|h|d)", re.ASCII)
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@%+=/-]*", re.ASCII)
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Job:
    """What a batch job asks for.

    Either ``nodes`` (whole ones) or ``ranks``, ``per_node`` of them on a node (0: as it comes),
    with ``cores`` for each. ``alone``: nobody else on the nodes. ``tasks``: those of a job array,
    0 for a job. ``log``: where the output goes, without its ending. ``time_s``: the limit in
    seconds, None for that of the queue. ``options``: further ones, as the scheduler writes them.
    """

    name: str
    log: Path
    nodes: int = 0
    ranks: int = 0
    per_node: int = 0
    cores: int = 1
    alone: bool = True
    tasks: int = 0
    time_s: float | None = None
    queue: str = ""
    account: str = ""
    options: tuple[str, ...] = ()

    @property
    def whole_nodes(self) -> int:
        """The nodes that it takes, 0 where that is left to the scheduler."""
        return self.nodes or (math.ceil(self.ranks / self.per_node) if self.per_node else 0)

    @property
    def ranks_per_node(self) -> int:
        """The ranks on a node that is full, 0 where that is left to the scheduler."""
        return min(self.per_node, self.ranks) if self.ranks else self.per_node


class Scheduler(ABC):
    """A batch system: its directives, its command, its variables."""

    name: str
    prefix: str
    command: str
    #: Variable with the number of a task of a job array, and the number of the first one.
    index: str
    first: int = 0
    #: Where the number of the job stands in what ``command`` prints.
    _number: re.Pattern[str]
    #: Words that make the command print the number alone; whether it reads scripts from its input.
    quiet: tuple[str, ...] = ()
    reads_stdin: bool = False
    _example: str

    @abstractmethod
    def directives(self, job: Job) -> list[str]:
        """Return the options of a job, one a line. Errors: P3SError for what is no option."""

    def log_of(self, job: Job, number: str) -> Path:
        """Return where the output of a job goes; of an array, of all tasks."""
        return job.log.with_name(f"{job.log.name}-{number}{'_*' if job.tasks else ''}.out")

    @abstractmethod
    def after(self, numbers: Sequence[str]) -> list[str]:
        """Return the options for a job that waits until others have ended, however they end."""

    def environment(self, job: Job) -> list[str]:
        """Return lines of the shell that a job's own launcher needs."""
        return []

    def by_hand(self, script: str, after: str = "") -> str:
        """Return the words of a shell that hand a script over, both quoted already."""
        return " ".join([self.command, *self.quiet, *([after] if after else []), script])

    def submit(self, script: Path, after: Sequence[str] = ()) -> str:
        """Hand a script over, to run after other jobs, and return the job's number.

        Errors: P3SError with what the scheduler says.
        """
        words = [self.command, *self.quiet, *(self.after(after) if after else [])]
        try:
            with open(script, "rb") as text:
                process = subprocess.run(
                    words if self.reads_stdin else [*words, str(script)],
                    stdin=text if self.reads_stdin else subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                    timeout=_TIMEOUT_S,
                    start_new_session=True,
                )
        except FileNotFoundError as err:
            raise P3SError(
                f"{self.command}: not found on PATH; submit {script} where that command is"
            ) from err
        except (OSError, subprocess.SubprocessError) as err:
            raise P3SError(f"{self.command} {script}: {' '.join(str(err).split())[:160]}") from err
        match = self._number.search(process.stdout)
        if process.returncode or match is None:
            message = (
                " ".join((process.stderr or process.stdout).split())[:200]
                or f"exit {process.returncode}"
            )
            raise P3SError(f"{self.command} {script}: {message}")
        return match[1]

    def _further(self, job: Job) -> list[str]:
        """Return the options that the user has given, each a line of its own."""
        for option in job.options:
            if not re.match(r"--?[A-Za-z]", option) or not option.isprintable():
                raise P3SError(
                    f"--option {option[:60]!r}: write an option of {self.command} with its value,"
                    f" for example {self._example}"
                )
        return list(job.options)


class Slurm(Scheduler):
    """Slurm. Source: sbatch(1) of 22.05."""

    name, prefix, command = "slurm", "#SBATCH", "sbatch"
    quiet = ("--parsable",)
    index = "SLURM_ARRAY_TASK_ID"
    _number = re.compile(r"^(\d+)(?:;.*)?$", re.ASCII | re.MULTILINE)
    _example = "--option=--constraint=rome"

    def directives(self, job: Job) -> list[str]:
        """Return the options of sbatch."""
        options = [f"--job-name={_word('job name', job.name)}"]
        if job.whole_nodes:
            options.append(f"--nodes={job.whole_nodes}")
        if job.ranks:
            options.append(f"--ntasks={job.ranks}")
        if job.ranks_per_node:
            options.append(f"--ntasks-per-node={job.ranks_per_node}")
        if job.cores > 1:
            options.append(f"--cpus-per-task={job.cores}")
        if job.alone:
            options.append("--exclusive")
        if job.tasks:
            options.append(f"--array=0-{job.tasks - 1}")
        if job.time_s is not None:
            options.append(f"--time={hours(job.time_s)}")
        if job.queue:
            options.append(f"--partition={_word('--partition', job.queue)}")
        if job.account:
            options.append(f"--account={_word('--account', job.account)}")
        for option in self._further(job):
            if not option.startswith("--") or not _WORD.fullmatch(option[2:]):
                raise P3SError(
                    f"--option {option[:60]!r}: write one option with its value, for example"
                    f" {self._example}"
                )
            options.append(option)
        # In a file name % begins a number of the job's.
        log = _path(job.log).replace("%", "%%")
        number = "%A_%a" if job.tasks else "%j"
        return [*options, f"--output={_quote_spaces(f'{log}-{number}.out')}"]

    def environment(self, job: Job) -> list[str]:
        """Return what srun does not take from the job, from 22.05 on."""
        return [f"export SRUN_CPUS_PER_TASK={job.cores}"] if job.cores > 1 else []

    def after(self, numbers: Sequence[str]) -> list[str]:
        """Return the option of sbatch."""
        return [f"--dependency=afterany:{':'.join(numbers)}"]


class PBS(Scheduler):
    """PBS Professional and OpenPBS. Sources: qsub(1B), pbs_resources(7B) of OpenPBS."""

    name, prefix, command = "pbs", "#PBS", "qsub"
    index = "PBS_ARRAY_INDEX"
    _number = re.compile(r"^(\d+(?:\[\])?\S*)$", re.ASCII | re.MULTILINE)
    _example = "--option='-l filesystems=home'"

    def directives(self, job: Job) -> list[str]:
        """Return the options of qsub."""
        options = [f"-N {_word('job name', job.name)}", "-S /bin/bash", f"-l {self._select(job)}"]
        if job.alone:
            # Chunks of one rank share a host; those of whole nodes have one each.
            options.append(f"-l place={'scatter' if job.whole_nodes else 'free'}:exclhost")
        if job.tasks:
            options.append(f"-J 0-{job.tasks - 1}")
        if job.time_s is not None:
            options.append(f"-l walltime={hours(job.time_s)}")
        if job.queue:
            options.append(f"-q {_word('--partition', job.queue)}")
        if job.account:
            options.append(f"-A {_word('--account', job.account)}")
        folder = _path(job.log.parent)
        if ":" in folder:
            raise P3SError(f"{folder[:60]!r}: PBS takes what is before a colon for a host's name")
        # Of a directory PBS makes the name of the file, JOB.OU, itself.
        return [*options, *self._further(job), "-j oe", f"-o {_quote_spaces(folder + '/')}"]

    def _select(self, job: Job) -> str:
        """Return the chunks: whole nodes, the last one with what is left, or one for each rank."""
        full = job.ranks_per_node
        if not full:
            return f"select={job.ranks or job.nodes}:ncpus={job.cores}:mpiprocs=1"
        chunks = [(job.whole_nodes, full)]
        if rest := job.ranks % full:
            chunks = [(job.whole_nodes - 1, full), (1, rest)]
        words = [f"{k}:ncpus={size * job.cores}:mpiprocs={size}" for k, size in chunks if k]
        return f"select={'+'.join(words)}"

    def log_of(self, job: Job, number: str) -> Path:
        """Return the file that PBS makes of the number."""
        return job.log.with_name(f"{number.replace('[]', '[*]')}.OU")

    def after(self, numbers: Sequence[str]) -> list[str]:
        """Return the option of qsub."""
        return ["-W", f"depend=afterany:{':'.join(numbers)}"]


class LSF(Scheduler):
    """IBM Spectrum LSF. Source: bsub of its command reference, 10.1."""

    name, prefix, command = "lsf", "#BSUB", "bsub"
    reads_stdin = True
    index, first = "LSB_JOBINDEX", 1
    _number = re.compile(r"Job <(\d+)>", re.ASCII)
    _example = "--option='-R \"select[type==any]\"'"

    def directives(self, job: Job) -> list[str]:
        """Return the options of bsub."""
        name = _word("job name", job.name)
        full = job.ranks_per_node or (1 if job.nodes else 0)
        options = [
            f'-J "{name}[1-{job.tasks}]"' if job.tasks else f"-J {name}",
            f"-n {job.ranks or job.nodes * full}",
        ]
        if full:
            options.append(f'-R "span[ptile={full}]"')
        if job.cores > 1:
            options.append(f'-R "affinity[core({job.cores})]"')
        if job.alone:
            options.append("-x")
        if job.time_s is not None:
            minutes = max(math.ceil(job.time_s / 60.0), 1)
            options.append(f"-W {minutes // 60}:{minutes % 60:02d}")
        if job.queue:
            options.append(f"-q {_word('--partition', job.queue)}")
        if job.account:
            options.append(f"-P {_word('--account', job.account)}")
        number = "%J_%I" if job.tasks else "%J"
        log = _path(job.log)
        if "%" in log:
            raise P3SError(f"{log[:60]!r}: LSF puts numbers of the job in place of % in a path")
        return [*options, *self._further(job), f'-o "{_path(job.log, _QUOTES)}-{number}.out"']

    def after(self, numbers: Sequence[str]) -> list[str]:
        """Return the option of bsub."""
        return ["-w", " && ".join(f"ended({number})" for number in numbers)]

    def by_hand(self, script: str, after: str = "") -> str:
        """Return the words, which print the number alone."""
        words = " ".join(["bsub", *([after] if after else []), f"< {script}"])
        return f"{words} | sed -n 's/^Job <\\([0-9]*\\)>.*/\\1/p'"


#: By the name of --scheduler, the one that is taken first where several are there.
SCHEDULERS: dict[str, Scheduler] = {each.name: each for each in (Slurm(), PBS(), LSF())}


def scheduler(name: str = "") -> Scheduler:
    """Return the scheduler of a name, or the one whose commands are on PATH; Slurm if none is.

    Errors: UsageError for another name, and where qsub is that of Grid Engine.
    """
    if name:
        by_name = SCHEDULERS.get(name.lower())
        if by_name is None:
            raise UsageError(f"--scheduler {name}: there are {', '.join(SCHEDULERS)}")
        return by_name
    available = [each for each in SCHEDULERS.values() if shutil.which(each.command)]
    if available[:1] == [SCHEDULERS["pbs"]] and shutil.which("qconf"):
        raise UsageError(
            "qsub is that of Grid Engine, for which P3S writes no scripts; name one of"
            f" --scheduler {', '.join(SCHEDULERS)}, or put p3s characterize into a script of yours"
        )
    return available[0] if available else SCHEDULERS["slurm"]


def seconds_of_limit(text: str) -> float:
    """Return the seconds of a time limit: 30m, 2h, or as Slurm writes it. Errors: P3SError."""
    if short := _SHORT_TIME.fullmatch(text):
        seconds = float(short[1]) * _UNITS[short[2]]
    elif match := _TIME.fullmatch(text):
        days, numbers = match[1], [int(each) for each in match.groups()[1:] if each is not None]
        # Slurm: 5 is minutes, 5:30 minutes and seconds; behind days the first one is hours.
        if days is None and len(numbers) < 3:
            numbers = [0, *numbers]
        hms = [*numbers, 0, 0][:3]
        seconds = int(days or 0) * 86400.0 + hms[0] * 3600.0 + hms[1] * 60.0 + hms[2]
    else:
        seconds = 0.0
    if not 0.0 < seconds < 1e9:
        raise P3SError(f"--time {text[:40]}: not a time limit; write 30m, 2h or h:mm:ss")
    return seconds


def hours(seconds: float) -> str:
    """Return a number of seconds as hours:minutes:00, rounded up to a minute."""
    minutes = max(math.ceil(seconds / 60.0), 1)
    return f"{minutes // 60}:{minutes % 60:02d}:00"


def _word(purpose: str, word: str) -> str:
    if not _WORD.fullmatch(word):
        raise P3SError(f"{purpose} {word[:60]!r}: not a name that a batch system takes")
    return word


def _path(path: Path, but: str = "") -> str:
    """Return a path without what would end a line of the script, or the characters of ``but``."""
    text = str(path)
    if not text.isprintable() or any(char in text for char in but):
        raise P3SError(
            f"{text[:60]!r}: a path with such characters cannot be written into a batch script"
        )
    return text


def _quote_spaces(text: str) -> str:
    return f'"{text}"' if " " in _path(Path(text), _QUOTES) else text


#: What would end the quotes around a path.
_QUOTES = '"\\'
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+/@-]*", re.ASCII)
#: P3S ends with it where something of the work is missing or not to be trusted.
_PARTLY = 3
_WIDTH = 96


@dataclass(frozen=True)
class Surroundings:
    """What commands of a job need: a directory, modules to load, the bin/activate of a venv."""

    directory: Path
    modules: tuple[str, ...] = ()
    activate: Path | None = None


def script(
    scheduler: Scheduler,
    job: Job,
    commands: Sequence[Sequence[str]],
    around: Surroundings,
    before: Sequence[str] = (),
) -> str:
    """Return a batch script that executes commands, the first failure last.

    ``commands``: their words, as a shell reads them; ``before``: lines ahead of them. Exit code 3
    (done in part) of a command does not keep the next ones from being run; it is the script's if
    nothing worse comes. Errors: P3SError for options that the scheduler does not take.
    """
    # Modules are defined for login shells, at least where the job does not get the environment.
    lines = ["#!/bin/bash -l" if around.modules else "#!/bin/bash"]
    lines += [f"{scheduler.prefix} {each}" for each in scheduler.directives(job)]
    lines += ["", "set -e"]
    lines += [f"module load {_module(name)}" for name in around.modules]
    if around.activate is not None:
        lines.append(f". {quote_path(around.activate)}")
    # Not before: modules and activate may use variables that are not set.
    lines += [
        "set -u",
        f"cd {quote_path(around.directory)}",
        *scheduler.environment(job),
        *before,
        "",
    ]
    if len(commands) == 1:
        return "\n".join([*lines, _fold_command(commands[0]), ""])
    lines += _STEP
    lines += [_fold_command(["step", *words]) for words in commands]
    return "\n".join([*lines, "exit $partly", ""])


#: What runs one command of several.
_STEP = (
    f"# {_PARTLY}: done in part, and what follows can be done",
    "partly=0",
    "step() {",
    f'    "$@" || {{ code=$?; [ $code -eq {_PARTLY} ] || exit $code; partly=$code; }}',
    "}",
    "",
)


def _fold_command(words: Sequence[str]) -> str:
    """Return a command on lines that can be read."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word) < _WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(f"    {word}")
    return " \\\n".join(lines)


def of_array(scheduler: Scheduler, counts: Sequence[int]) -> list[str]:
    """Return the lines that set np to the process count of a task of a job array."""
    first = f" - {scheduler.first}" if scheduler.first else ""
    return [f"counts=({' '.join(map(str, counts))})", f"np=${{counts[{scheduler.index}{first}]}}"]


def by_hand(scheduler: Scheduler, scripts: Sequence[Path], last: Path | None) -> str:
    """Return a shell script that hands batch scripts over; ``last`` runs when all have ended."""
    folder = scripts[0].parent
    lines = ["#!/bin/bash", "set -eu -o pipefail", f"cd {quote_path(folder)}"]
    names = [f"job{k}" for k in range(1, len(scripts) + 1)]
    for name, path in zip(names, scripts, strict=True):
        lines.append(f"{name}=$({scheduler.by_hand(quote_path(Path(path.name)))})")
    lines.append(f'echo "submitted: {" ".join(f"${name}" for name in names)}"')
    if last is not None:
        options = scheduler.after([f"${name}" for name in names])
        after = " ".join([*options[:-1], f'"{options[-1]}"'])
        lines.append(scheduler.by_hand(quote_path(Path(last.name)), after))
    return "\n".join([*lines, ""])


def quote_path(path: Path) -> str:
    """Return a path as a word of a shell. Errors: P3SError where it would not be one line."""
    return shlex.quote(_path(path))


def _module(name: str) -> str:
    if not _MODULE.fullmatch(name):
        raise P3SError(f"--module {name[:60]!r}: not a name of a module")
    return name
