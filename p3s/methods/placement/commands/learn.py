"""``p3s machine learn``: the communication model of a machine."""

from __future__ import annotations

import shlex
from pathlib import Path

from p3s.base.errors import UsageError
from p3s.cli.common import check_output, emit_json, out, quote_word, say, say_reasons
from p3s.cli.declared import option
from p3s.cli.options import JSON_OPTION
from p3s.cli.progress import progress

EPILOG = """\b
Example:
  p3s machine learn --simgrid platform.xml -o cluster.json
  p3s machine learn --hosts n[0-15] --ppn 8 --topology fat-tree.json
Next:
  p3s machine show cluster.json
  p3s place study -n 64 --nodes 16 --ppn 4 --topology fat-tree.json --model cluster.json"""
#: Time of random pairs on hosts.
_BUDGET = "4m"


def learn(
    simgrid: Path | None = option(None, "--simgrid FILE", "Platform that SimGrid simulates."),
    hosts: str = option(
        "", "--hosts LIST", "Hosts to measure on, like n[0-15] [of a platform: all]."
    ),
    topology: str = option(
        "",
        "--topology FILE",
        "How its nodes and switches are joined [default: as the platform says, or one switch]",
    ),
    ppn: int = option(4, "--ppn K", "Ranks that a host has room for.", min=1),
    ranks: int = option(128, "--ranks N", "Ranks of the largest allocation.", min=2),
    phases: int = option(1500, "--phases N", "Phases to measure.", min=40),
    budget: str = option(_BUDGET, "--budget TIME", "Time to measure on hosts: 30s, 10m, 1h."),
    seed: int = option(0, "--seed N", "Of the random pairs. [default: 0]"),
    way: str = option(
        "",
        "--way NAME",
        "A, B, C, corrected, SV, MV or H1 to H6 [default: of C and corrected the better one].",
    ),
    patterns: str = option(
        "", "--patterns NAMES", "Measured beside random pairs: halo2d, halo3d, rows."
    ),
    name: str = option(
        "",
        "--name NAME",
        "Name of its machine file; the model then is refused for others [default: none].",
    ),
    launcher: str = option(
        "",
        "--launcher COMMAND",
        "Launcher of the ranks, up to the program [default: mpiexec as found].",
    ),
    data: Path | None = option(
        None,
        "--data DIR",
        "Where measured phases are kept [default: FILE without its ending, with .phases].",
    ),
    output: Path = option(Path("communication.json"), "-o --output FILE", "Model to write."),
    json_: bool = JSON_OPTION,
) -> int:
    """Measure random pairs of ranks on a machine, and learn how long phases take on it.

    An interrupted run goes on where it ended. Exit code 3 where the model misses phases that it
    has not seen by more than the sources' formulas do.
    """
    from p3s.cli.values import hosts_of, seconds_of, words_of
    from p3s.methods.placement.learned import doubts, save
    from p3s.methods.placement.training.campaign import PATTERNS, Settings
    from p3s.methods.placement.training.card import print_card
    from p3s.methods.placement.training.train import NAMES, learn_machine, prepare_machine

    _check(simgrid, hosts, launcher, output)
    limit = None if simgrid is not None else seconds_of(budget, "--budget")
    kinds = tuple(filter(None, patterns.split(",")))
    if strange := [each for each in kinds if each not in PATTERNS]:
        raise UsageError(f"--patterns {strange[0]}: there are {', '.join(PATTERNS)}")
    if way and way not in NAMES:
        raise UsageError(f"--way {way}: there are {', '.join(NAMES)}")
    settings = Settings(ranks, ppn, phases, seed, limit, kinds)
    words = words_of(launcher, "--launcher")
    ready = prepare_machine(simgrid, hosts_of(hosts), words, topology, name, settings)
    directory = data or output.with_suffix(".phases")
    with progress(1) as bar:
        bar.start("measuring")
        model = learn_machine(ready, directory, way, bar.start)
        bar.done("trained")
    save(output, model)
    content, text = print_card(model)
    if json_:
        emit_json(content)
    else:
        out(text)
    network = ["--topology", model.card.topology] if model.card.topology else []
    say(f"{output}: for p3s place, with {shlex.join([*network, '--model', str(output)])}")
    say(f"next: p3s machine show {quote_word(output)}")
    return say_reasons(doubts(model.card), "model", printed=not json_)


def _check(simgrid: Path | None, hosts: str, launcher: str, output: Path) -> None:
    """Refuse what contradicts itself, and a model that could not be written."""
    from p3s.methods.placement.learned import load

    if simgrid is None and not hosts:
        raise UsageError("give --hosts to measure on, or --simgrid with a platform")
    if simgrid is not None and launcher:
        raise UsageError("--launcher is for hosts; SimGrid has its own")
    check_output(output, "communication.json", "communication model", load)
