"""What a change is, and reading it from a text such as ``latency/2, allreduce=ring``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TypeVar

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import figures, plural
from p3s.costs.types import Teams
from p3s.predict.times import END, REST, START
from p3s.program.collectives.choose import Rule, checked
from p3s.program.collectives.registry import COLLECTIVES

#: What of the costs of messages can be multiplied.
COSTS = ("latency", "bandwidth", "software")
#: The same of computation: that of all phases, and of one.
COMPUTE, PHASE = "compute", "phase"
BALANCED = "balanced"
NETWORK, PLACEMENT, IDEAL = "network", "placement", "ideal"
THREADS = "threads"
#: Factors beyond these say nothing.
_MOST = 1e6
_SCALE = re.compile(r"(?P<what>.*?)\s*(?P<sign>[*/])\s*(?P<number>[^*/]*)", re.S)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.I)
_PHASE = re.compile(r"phase\s*(-?\d{1,9}|start|end)", re.I)
#: Phases that have a name beside their number.
_NAMED_PHASES = {"start": START, "end": END}
_NAMES = (*COSTS, COMPUTE, PHASE, BALANCED, NETWORK, PLACEMENT, THREADS)
_MOST_THREADS = 1 << 16


@dataclass(frozen=True)
class Scaled:
    """A quantity (one of COSTS, COMPUTE or PHASE) times a factor; ``phase``: which, of PHASE."""

    what: str
    factor: float
    phase: int | None = None


@dataclass(frozen=True)
class Balanced:
    """All ranks of a phase compute as much as they do in the mean; ``phase`` None: of each."""

    phase: int | None = None


@dataclass(frozen=True)
class Algorithm:
    """A collective takes another algorithm."""

    rule: Rule


@dataclass(frozen=True)
class OnNetwork:
    """Messages cost what they cost on a network: IDEAL, or a name or file of p3s machine list."""

    name: str


@dataclass(frozen=True)
class Placed:
    """Ranks are on nodes in another way: block, cyclic, or as a file says."""

    how: str


@dataclass(frozen=True)
class Threads:
    """Each process has so many threads, and nodes hold fewer or more of them."""

    count: int


T = TypeVar("T")
Change = Scaled | Balanced | Algorithm | OnNetwork | Placed | Threads


@dataclass(frozen=True)
class Changes:
    """What is changed at the same time, and how it reads."""

    text: str
    parts: tuple[Change, ...]

    def of(self, kind: type[T]) -> list[T]:
        """Return the parts of a kind."""
        return [part for part in self.parts if isinstance(part, kind)]

    @property
    def phases(self) -> set[int]:
        """The phases that are named."""
        found = (getattr(part, "phase", None) for part in self.parts)
        return {phase for phase in found if phase is not None}


def read_changes(text: str) -> Changes:
    """Return the changes of a text; UsageError, in one line, says what is wrong with it."""
    try:
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise ValueError("a change is missing; write for example latency/2")
        parts = tuple(map(_change, words))
        kinds = [_subject(part) for part in parts]
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise ValueError(f"{kind} is there twice; say it once")
    except ValueError as err:
        raise UsageError(f"--what-if {text!r}: {err}") from None
    return Changes(", ".join(map(text_of, parts)), parts)


def check_phases(every: Iterable[Changes], known: Iterable[int]) -> None:
    """Raise UsageError for a phase that the prediction does not have."""
    there = sorted(known)
    for each in every:
        for phase in sorted(each.phases - set(there)):
            listed = ", ".join(_phase_text(one).removeprefix(PHASE).strip() for one in there)
            wrong = _phase_text(phase)
            raise UsageError(f"--what-if {each.text!r}: no {wrong}; there are {listed}")


def text_of(part: Change) -> str:
    """Return how a change reads: what :func:`read_changes` reads as the same."""
    if isinstance(part, Scaled):
        what = _phase_text(part.phase) if part.what == PHASE else part.what
        return f"{what} {_times(part.factor)}"
    if isinstance(part, Balanced):
        return BALANCED if part.phase is None else f"{BALANCED} {_phase_text(part.phase)}"
    if isinstance(part, Algorithm):
        segment = f":{part.rule.segment}" if part.rule.segment else ""
        return f"{part.rule.call}={part.rule.algorithm}{segment}"
    if isinstance(part, OnNetwork):
        return f"{NETWORK}={part.name}"
    if isinstance(part, Threads):
        return f"{THREADS}={part.count}"
    return f"{PLACEMENT}={part.how}"


def _phase_text(phase: int | None) -> str:
    name = next((name for name, number in _NAMED_PHASES.items() if number == phase), phase)
    return f"{PHASE} {name}"


def _phase_number(text: str) -> int:
    return _NAMED_PHASES[text] if text in _NAMED_PHASES else int(text)


def _times(factor: float) -> str:
    """Return a factor as people write it: "/ 2" for a half."""
    over = 1.0 / factor if 0.0 < factor < 1.0 else 0.0
    if over and abs(over - round(over)) < 1e-9 * over:
        return f"/ {round(over)}"
    return f"* {factor:.12g}"


def _subject(part: Change) -> str:
    """Return what a change is of, for people; two of the same contradict each other."""
    text = text_of(part)
    if isinstance(part, Scaled):
        return text.rpartition(" ")[0][:-2]
    return text.partition("=")[0]


def _change(word: str) -> Change:
    """Return the change of a word; ValueError says what is wrong with it."""
    if "=" in word:
        return _named(word)
    scaled = _SCALE.fullmatch(word)
    if scaled is not None:
        return _scaled(scaled["what"].strip().lower(), scaled["sign"], scaled["number"].strip())
    low = word.lower()
    if low == BALANCED:
        return Balanced()
    phase = _PHASE.fullmatch(low.removeprefix(BALANCED).strip())
    if low.startswith(BALANCED) and phase is not None:
        return Balanced(_phase_number(phase[1]))
    name = low.split()[0]
    if name in (*COSTS, COMPUTE, PHASE):
        raise ValueError(f"{word} by how much? write for example {low}/2")
    if name in (NETWORK, PLACEMENT, THREADS, *COLLECTIVES):
        raise ValueError(f"{name} is to be what? write for example {_like(name)}")
    raise _unknown(name)


def _scaled(what: str, sign: str, number: str) -> Scaled:
    """Return a quantity times or over a number."""
    factor = _factor(sign, number)
    phase = _PHASE.fullmatch(what)
    if phase is not None:
        return Scaled(PHASE, factor, _phase_number(phase[1]))
    if what == THREADS:
        raise ValueError("how many threads? write for example threads=4")
    if what == PHASE:
        raise ValueError(f"which phase? write phase 3{sign}{number}")
    if what not in (*COSTS, COMPUTE):
        raise _unknown(what)
    if what == "bandwidth" and not factor > 0:
        raise ValueError("without bandwidth no message arrives; give a factor")
    return Scaled(what, factor)


def _factor(sign: str, number: str) -> float:
    if _NUMBER.fullmatch(number) is None:
        what = f"{number or 'nothing'} behind {sign} is no number"
        raise ValueError(f"{what}; write for example latency/2 or phase 3 * 0.7")
    value = float(number)
    if sign == "/" and not value > 0:
        raise ValueError("nothing can be divided by 0")
    factor = value if sign == "*" else 1.0 / value
    if not (math.isfinite(factor) and factor <= _MOST):
        raise ValueError(f"a factor is from 0 to {figures(_MOST)}")
    return factor


def _named(word: str) -> Change:
    """Return what is told by name=value; names of files keep their letters."""
    name, _, value = (part.strip() for part in word.partition("="))
    low = name.lower().removeprefix("mpi_")
    if not value:
        raise ValueError(f"nothing behind {name}=; write {_like(low)}")
    if low == NETWORK:
        return OnNetwork(IDEAL if value.lower() == IDEAL else value)
    if low == PLACEMENT:
        return Placed(value.lower() if value.lower() in ("block", "cyclic") else value)
    if low == THREADS:
        if not (value.isascii() and value.isdigit() and 0 < int(value[:9]) <= _MOST_THREADS):
            raise ValueError(f"{value} is no number of threads")
        return Threads(int(value[:9]))
    if low not in COLLECTIVES:
        raise _unknown(low, "=")
    algorithm, _, segment = value.lower().partition(":")
    if segment and not (segment.isdigit() and len(segment) < 10):
        raise ValueError(f"a segment of {segment} is no number of bytes")
    known = list(COLLECTIVES[low].algorithms)
    try:
        return Algorithm(checked(Rule(low, algorithm.strip(), int(segment or 0))))
    except P3SError:
        what = f"{low} has no algorithm {algorithm!r}{_meant(algorithm, known)}"
        raise ValueError(f"{what}; there are {', '.join(known)}") from None


def _unknown(name: str, sign: str = "") -> ValueError:
    """Return the error for a name that is none, with the one that it is like."""
    known = [*_NAMES, *COLLECTIVES]
    there = "network, placement, threads and collectives" if sign else ", ".join(_NAMES)
    return ValueError(f"there is no {name!r}{_meant(name, known)}; there are {there}")


def _meant(name: str, known: list[str]) -> str:
    like = get_close_matches(name, known, 1, 0.6)
    return f", did you mean {like[0]}?" if like else ""


def _like(name: str) -> str:
    """Return an example of a name with a value."""
    if name == PLACEMENT:
        return "placement=cyclic"
    if name == THREADS:
        return "threads=4"
    if name in COLLECTIVES and COLLECTIVES[name].algorithms:
        return f"{name}={next(iter(COLLECTIVES[name].algorithms))}"
    return "network=ideal"


#: Laws say something of so many times the threads of any run, and no more.
_REACH = 2
#: Which of the three that a factor has: the typical value, the ends of its 90 % interval.
VALUE, LOW, HIGH = 0, 1, 2


@dataclass(frozen=True)
class NotKnown:
    """Why nothing is known of other numbers of threads."""

    why: str


#: Of a prediction whose study nobody has looked at for threads.
NOT_ASKED = NotKnown("the study's runs were not looked at for threads")


@dataclass(frozen=True, eq=False)
class MoreThreads:
    """What other numbers of threads do to the computation of a study, on nodes that are full.

    threads: of a process now; cores: of a node; traced: most threads of a run. law: of threads and
    processes of a node, now and then.
    """

    threads: int
    cores: int
    traced: int
    law: Callable[[tuple[int, int], tuple[int, int]], Teams]

    @property
    def most(self) -> int:
        """The largest number of threads of which something is known."""
        return min(_REACH * self.traced, self.cores)

    @property
    def twice(self) -> int | None:
        """Twice the threads of now, None where nothing is known of so many."""
        return 2 * self.threads if 2 * self.threads <= self.most else None

    def check(self, count: int) -> None:
        """Raise P3SError, in one line, for a number of threads of which nothing is known."""
        text = f"--what-if threads={count}"
        if count == self.threads:
            raise P3SError(f"{text}: is what the prediction has; give another number")
        if count > self.cores:
            raise P3SError(
                f"{text}: a node has {plural(self.cores, 'core')}, a process cannot have more "
                "threads; say how many yours has with --cores-per-node, or name its --network"
            )
        if count > self.most:
            raise P3SError(
                f"{text}: no run had more than {plural(self.traced, 'thread')}, and "
                f"laws tell what {_REACH} times as many do at most; trace runs with more, with p3s "
                "trace --threads"
            )

    def per_node(self, count: int) -> int:
        """Return how many processes with so many threads fill a node."""
        return max(self.cores // count, 1)

    def factors(self, count: int) -> Teams:
        """Return what computation takes with so many threads, over that with those of now."""
        if count not in self._made:
            was, now = ((each, self.per_node(each)) for each in (self.threads, count))
            self._made[count] = self.law(was, now)
        return self._made[count]

    @cached_property
    def _made(self) -> dict[int, Teams]:
        return {}

    def as_scaled(self, part: Threads, phases: Sequence[int], n: int, end: int) -> list[Scaled]:
        """Return what threads make of the computation of each phase at a count.

        end: VALUE, or LOW or HIGH for the end of the interval at which all laws are.
        """
        teams = self.factors(part.count)
        # The start and the end of the program are parts of what is outside of loops.
        return [Scaled(PHASE, teams.of(max(phase, REST), n)[end], phase) for phase in phases]
