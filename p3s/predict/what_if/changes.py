"""What a change is, and reading it from a text such as ``latency/2, allreduce=ring``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from p3s.base.errors import P3SError, UsageError
from p3s.base.text import figures, plural
from p3s.costs.types import Teams
from p3s.predict.times import END, REST, START
from p3s.program.collectives.choose import Rule, check_rule
from p3s.program.collectives.registry import COLLECTIVES
from p3s.program.mapping import BLOCK, CYCLIC

#: What of the costs of messages can be multiplied.
COSTS = ("latency", "bandwidth", "software")
#: The same of computation: that of all phases, and of one.
COMPUTE, PHASE = "compute", "phase"
BALANCED = "balanced"
NETWORK, PLACEMENT, IDEAL = "network", "placement", "ideal"
THREADS = "threads"
#: What is told with a factor, and what is to be something.
_SCALED = (*COSTS, COMPUTE, PHASE)
_SET = (NETWORK, PLACEMENT, THREADS)
#: Factors beyond these say nothing.
_MOST = 1e6
_SCALE = re.compile(r"(?P<what>.*?)\s*(?P<sign>[*/])\s*(?P<number>[^*/]*)", re.S)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.I)
_PHASE = re.compile(r"phase\s*(-?\d{1,9}|start|end)", re.I)
#: Phases that have a name beside their number.
_NAMED_PHASES = {"start": START, "end": END}
_NAMES = (*_SCALED, BALANCED, *_SET)
_MOST_THREADS = 1 << 16


@dataclass(frozen=True)
class Change:
    """One thing that is changed.

    what: a quantity (one of COSTS, COMPUTE or PHASE), which is multiplied by ``value``; BALANCED:
    all ranks of a phase compute as much as they do in the mean; a collective, which takes the
    algorithm of a Rule; NETWORK: messages cost what they cost on IDEAL, or a name or file of
    p3s machine list; PLACEMENT: ranks are on nodes in block, cyclic, or as a file says; THREADS: of
    each process, nodes hold fewer or more of them. phase: which, None: all.
    """

    what: str
    value: Any = None
    phase: int | None = None

    @property
    def subject(self) -> str:
        """What is changed, for people; two changes of the same contradict each other."""
        if self.phase is None:
            return self.what
        phase = _phase_text(self.phase)
        return phase if self.what == PHASE else f"{self.what} {phase}"

    @property
    def text(self) -> str:
        """How it reads: what :func:`read_changes` reads as the same."""
        if self.what == BALANCED:
            return self.subject
        if self.what in _SCALED:
            return f"{self.subject} {_times(self.value)}"
        if isinstance(self.value, Rule):
            segment = f":{self.value.segment}" if self.value.segment else ""
            return f"{self.what}={self.value.algorithm}{segment}"
        return f"{self.what}={self.value}"


def algorithm(rule: Rule) -> Change:
    """Return that a collective takes another algorithm."""
    return Change(rule.call, rule)


@dataclass(frozen=True)
class Changes:
    """What is changed at the same time, and how it reads."""

    text: str
    parts: tuple[Change, ...]

    def of(self, *kinds: str) -> list[Change]:
        """Return the parts that change one of these."""
        return [part for part in self.parts if part.what in kinds]

    def value(self, what: str) -> Any:
        """Return what something becomes, None where it stays."""
        return next((part.value for part in self.of(what)), None)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The algorithms that collectives take."""
        return tuple(part.value for part in self.of(*COLLECTIVES))

    @property
    def phases(self) -> set[int]:
        """The phases that are named."""
        return {part.phase for part in self.parts if part.phase is not None}

    @property
    def moves(self) -> bool:
        """Whether ranks are elsewhere."""
        return bool(self.of(PLACEMENT, THREADS))

    @property
    def other_messages(self) -> bool:
        """Whether messages are others, in number or costs, than those of the prediction."""
        return self.moves or bool(self.rules) or self.value(NETWORK) not in (None, IDEAL)


def read_changes(text: str) -> Changes:
    """Return the changes of a text; UsageError, in one line, says what is wrong with it."""
    try:
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise ValueError("a change is missing; write for example latency/2")
        parts = tuple(map(_change, words))
        subjects = [part.subject for part in parts]
        for subject in subjects:
            if subjects.count(subject) > 1:
                raise ValueError(f"{subject} is there twice; say it once")
    except ValueError as err:
        raise UsageError(f"--what-if {text!r}: {err}") from None
    return Changes(", ".join(part.text for part in parts), parts)


def check_phases(every: Iterable[Changes], known: Iterable[int]) -> None:
    """Raise UsageError for a phase that the prediction does not have."""
    there = sorted(known)
    for each in every:
        for phase in sorted(each.phases - set(there)):
            listed = ", ".join(_phase_text(one).removeprefix(PHASE).strip() for one in there)
            wrong = _phase_text(phase)
            raise UsageError(f"--what-if {each.text!r}: no {wrong}; there are {listed}")


def _phase_text(phase: int) -> str:
    name = next((name for name, number in _NAMED_PHASES.items() if number == phase), phase)
    return f"{PHASE} {name}"


def _phase_of(text: str) -> int | None:
    """Return the phase that a text names, None where it names none."""
    found = _PHASE.fullmatch(text)
    return None if found is None else int(_NAMED_PHASES.get(found[1], found[1]))


def _times(factor: float) -> str:
    """Return a factor as people write it: "/ 2" for a half."""
    over = 1.0 / factor if 0.0 < factor < 1.0 else 0.0
    if over and abs(over - round(over)) < 1e-9 * over:
        return f"/ {round(over)}"
    return f"* {factor:.12g}"


def _change(word: str) -> Change:
    """Return the change of a word; ValueError says what is wrong with it."""
    if "=" in word:
        return _parse_value(word)
    scaled = _SCALE.fullmatch(word)
    if scaled is not None:
        return _parse_factor(
            scaled["what"].strip().lower(), scaled["sign"], scaled["number"].strip()
        )
    low = word.lower()
    phase = _phase_of(low.removeprefix(BALANCED).strip())
    if low == BALANCED or (low.startswith(BALANCED) and phase is not None):
        return Change(BALANCED, phase=phase)
    name = low.split()[0]
    if name in _SCALED:
        raise ValueError(f"{word} by how much? write for example {low}/2")
    if name in (*_SET, *COLLECTIVES):
        raise ValueError(f"{name} is to be what? write for example {_like(name)}")
    raise _unknown(name)


def _parse_factor(what: str, sign: str, number: str) -> Change:
    """Return a quantity times or over a number."""
    if _NUMBER.fullmatch(number) is None:
        wrong = f"{number or 'nothing'} behind {sign} is no number"
        raise ValueError(f"{wrong}; write for example latency/2 or phase 3 * 0.7")
    value = float(number)
    if sign == "/" and not value > 0:
        raise ValueError("nothing can be divided by 0")
    factor = value if sign == "*" else 1.0 / value
    if not (math.isfinite(factor) and factor <= _MOST):
        raise ValueError(f"a factor is from 0 to {figures(_MOST)}")
    phase = _phase_of(what)
    if phase is not None:
        return Change(PHASE, factor, phase)
    if what == THREADS:
        raise ValueError("how many threads? write for example threads=4")
    if what == PHASE:
        raise ValueError(f"which phase? write phase 3{sign}{number}")
    if what not in _SCALED:
        raise _unknown(what)
    if what == "bandwidth" and not factor > 0:
        raise ValueError("without bandwidth no message arrives; give a factor")
    return Change(what, factor)


def _parse_value(word: str) -> Change:
    """Return what is told by name=value; names of files keep their letters."""
    name, _, value = (part.strip() for part in word.partition("="))
    low, usual = name.lower().removeprefix("mpi_"), value.lower()
    if not value:
        raise ValueError(f"nothing behind {name}=; write {_like(low)}")
    if low in (NETWORK, PLACEMENT):
        known_words = (IDEAL,) if low == NETWORK else (BLOCK, CYCLIC)
        return Change(low, usual if usual in known_words else value)
    if low == THREADS:
        if not (value.isascii() and value.isdigit() and 0 < int(value[:9]) <= _MOST_THREADS):
            raise ValueError(f"{value} is no number of threads")
        return Change(THREADS, int(value[:9]))
    if low not in COLLECTIVES:
        raise _unknown(low, "=")
    wanted, _, segment = usual.partition(":")
    if segment and not (segment.isdigit() and len(segment) < 10):
        raise ValueError(f"a segment of {segment} is no number of bytes")
    known = list(COLLECTIVES[low].algorithms)
    try:
        return algorithm(check_rule(Rule(low, wanted.strip(), int(segment or 0))))
    except P3SError:
        what = f"{low} has no algorithm {wanted!r}{_meant(wanted, known)}"
        raise ValueError(f"{what}; there are {', '.join(known)}") from None


def _unknown(name: str, sign: str = "") -> ValueError:
    """Return the error for a name that is none, with the one that it is like."""
    there = "network, placement, threads and collectives" if sign else ", ".join(_NAMES)
    like = _meant(name, [*_NAMES, *COLLECTIVES])
    return ValueError(f"there is no {name!r}{like}; there are {there}")


def _meant(name: str, known: list[str]) -> str:
    like = get_close_matches(name, known, 1, 0.6)
    return f", did you mean {like[0]}?" if like else ""


def _like(name: str) -> str:
    """Return an example of a name with a value."""
    if name in COLLECTIVES and COLLECTIVES[name].algorithms:
        return f"{name}={next(iter(COLLECTIVES[name].algorithms))}"
    return {PLACEMENT: "placement=cyclic", THREADS: "threads=4"}.get(name, "network=ideal")


#: Laws say something of so many times the threads of any run, and no more.
_REACH = 2
#: Which of the three that a factor has: the typical value, the ends of its 90 % interval.
VALUE, LOW, HIGH = 0, 1, 2
#: Of a prediction whose study nobody has looked at for threads.
NOT_ASKED = "the study's runs were not looked at for threads"


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
        was, now = ((each, self.per_node(each)) for each in (self.threads, count))
        return self.law(was, now)

    def as_scaled(self, count: int, phases: Sequence[int], n: int, end: int) -> Iterator[Change]:
        """Yield what threads make of the computation of each phase at a count.

        end: VALUE, or LOW or HIGH for the end of the interval at which all laws are.
        """
        teams = self.factors(count)
        for phase in phases:
            # The start and the end of the program are parts of what is outside of loops.
            yield Change(PHASE, teams.of(max(phase, REST), n)[end], phase)
