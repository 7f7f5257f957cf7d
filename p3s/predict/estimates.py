"""What every estimator says of every count, and which of them the prediction rests on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.records import Traces, scaled_dir
from p3s.model.comparison import Comparison
from p3s.predict import estimators
from p3s.predict.estimated import ESTIMATORS, FROM_REPLAY, TYPICAL, Say, silent
from p3s.predict.estimators import Communication
from p3s.predict.estimators.settings import USUAL, Setting
from p3s.predict.residual import RunMeasurement
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.predict.types import KNEE_EFFICIENCY, Prediction, Reason

#: Times by an estimator, or why there are none.
Estimate = PhaseTimes | str
#: By count, then by the name of the estimator.
Estimates = Mapping[int, Mapping[str, Estimate]]
#: What estimators have found, by their names and the counts.
Kept = dict[tuple[str, int], Communication]

AUTO = "auto"


def _quietly(_name: str, _n: int) -> None:
    """Say nothing of an estimator that is done."""


@dataclass(frozen=True)
class Estimation:
    """How times are estimated and judged; the same for all counts of a prediction.

    estimator: a name of ESTIMATORS; then only that one and those that a replay has paid for
    already are asked. machine: file of p3s machine measure (default: that in the traces). setting:
    cluster and library of the full run; where it names a network, the costs of that are asked for
    instead of those between two ranks. stale: counts whose replays are older than their scaled
    traces. threshold: efficiency of the knee. allowed: codes of reasons that do not make it
    untrustworthy. requested, within: as of Facts. done is told every estimator that has simulated a
    count; keep gets what was found with every rank.
    """

    estimator: str = AUTO
    machine: Path | None = None
    setting: Setting = USUAL
    stale: Collection[int] = ()
    threshold: float = KNEE_EFFICIENCY
    allowed: Collection[str] = ()
    requested: Collection[int] | None = None
    within: float | None = None
    say: Say = silent
    done: Callable[[str, int], None] = _quietly
    keep: Kept | None = None


#: Nothing is named.
AS_FOUND = Estimation()


def estimates(
    traces: Traces, counts: Sequence[int], how: Estimation = AS_FOUND
) -> dict[int, dict[str, Estimate]]:
    """Return what every estimator says at ``counts``, whose scaled traces are there.

    An estimator that fails says why in its place; the wanted one, and one without which nothing is
    known, raise P3SError.
    """
    times = {n: computation(scaled_dir(traces.root, n)) for n in sorted(set(counts))}
    several = [n for n in times if n > 1]
    # one process communicates with nobody, whoever estimates it
    found: dict[int, dict[str, Estimate]] = {
        n: {name: replace(made, mpi=replace(made.mpi, estimator=name)) for name in ESTIMATORS}
        if n == 1
        else {}
        for n, made in times.items()
    }
    failed: P3SError | None = None
    missing = {n: estimators.available(traces, n, machine=how.machine) for n in several}
    for name in ESTIMATORS:
        replayed = name in FROM_REPLAY
        asked = replayed or (
            how.estimator == name
            if how.estimator != AUTO
            else (name == TYPICAL) == bool(how.setting.network)
        )
        for n, why in missing.items():
            said = why.get(name, "is none of this P3S") if asked else "was not asked for"
            if replayed and n in how.stale and not said:
                said = "the replay is older than the scaled trace"
            found[n][name] = said
        able = [n for n in several if not found[n][name]]
        if not able:
            continue
        try:
            made = estimators.estimate_many(
                name,
                traces,
                able,
                machine=how.machine,
                say=how.say,
                setting=how.setting,
                done=silent if replayed else partial(how.done, name),
            )
        except P3SError as err:
            if how.estimator == name or replayed:  # a damaged replay is not passed over
                raise
            failed = err
            for n in able:
                found[n][name] = str(err)
            continue
        for n in able:
            found[n][name] = with_communication(times[n], made[n])
            if how.keep is not None and made[n].stand_ins is None:
                how.keep[name, n] = made[n]
    if failed and all(isinstance(made, str) for n in several for made in found[n].values()):
        raise failed  # what would have told them all, instead of why each of them is missing
    return found


@dataclass(frozen=True)
class Choice:
    """The estimator that a prediction rests on: ``name``, ``why`` and its times by count."""

    name: str
    why: str
    times: dict[int, PhaseTimes]


def choose(found: Estimates, wanted: str = AUTO) -> Choice:
    """Choose one estimator for all counts, so that the points of the curve can be compared.

    The first in the order of ESTIMATORS that is there at every count and says how fast the program
    is; where none does, the first that is there at every count; else the first at each count.
    Raises P3SError where the wanted one, or any, is not there.
    """
    there = [name for name in ESTIMATORS if not _missing(found, name)]
    good = [name for name in there if not _why_not(found, name)]
    if wanted != AUTO:
        if wanted not in there:
            raise P3SError(f"estimator {wanted}: {_missing(found, wanted)}")
        why = _why_not(found, wanted)
        doubt = f"; it does not tell how fast the program is: {why}" if why else ""
        return _choice(found, [wanted], f"as asked{doubt}")
    if good:
        return _choice(found, good[:1], _reason(found, good[0]))
    if there:
        text = (
            f"no estimator tells how fast the program is ({_why_not(found, there[0])}); it is the "
            "first that is there at every count"
        )
        return _choice(found, there[:1], text)
    text = "no estimator is there at every count, so counts rest on different ones"
    return _choice(found, list(ESTIMATORS), text)


def _choice(found: Estimates, names: Sequence[str], why: str) -> Choice:
    """Return the times of the first of some estimators that has some, at each count."""
    times: dict[int, PhaseTimes] = {}
    for n in sorted(found):
        mine = [found[n].get(name, "is not there") for name in names]
        made = [each for each in mine if isinstance(each, PhaseTimes)]
        if not made:
            said = "; ".join(f"{name}: {each}" for name, each in zip(names, mine, strict=True))
            raise P3SError(f"n={n}: nothing says how long communication takes ({said})")
        times[n] = made[0]
    return Choice(times[max(times)].mpi.estimator, why, times)


def _reason(found: Estimates, name: str) -> str:
    """Say why an estimator was chosen, and why none before it was."""
    passed = []
    for other in takewhile(lambda each: each != name, ESTIMATORS):
        why = _missing(found, other) or _why_not(found, other)
        if name == TYPICAL:  # nothing was measured for it: only what is there needs a reason
            there = any(isinstance(found[n].get(other), PhaseTimes) for n in found if n > 1)
            why = (_why_not(found, other) or why) if there else ""
        if why:
            passed.append(f"{other}: {why}")
    return ESTIMATORS[name].reason + (f"; not taken: {'; '.join(passed)}" if passed else "")


def _missing(found: Estimates, name: str) -> str:
    """Return why an estimator is not there, with the first count where it is not; "" if it is."""
    said = ((n, found[n].get(name, "is not there")) for n in sorted(found))
    return next((f"n={n}: {made}" for n, made in said if isinstance(made, str)), "")


def _why_not(found: Estimates, name: str) -> str:
    """Return why an estimator does not tell how fast the program is, at the first such count."""
    made = ((n, found[n].get(name)) for n in sorted(found))
    why = ((n, one.mpi.why_not) for n, one in made if isinstance(one, PhaseTimes))
    return next((f"n={n}: {text}" for n, text in why if text), "")


# ---- structures whose times the traced schedule does not tell -----------------------------------
@dataclass(frozen=True)
class Dealt:
    """Tasks that a server handed out in a run to whoever asked, and how many the model says.

    least, most: of a worker, which depends on timing; same: whether the totals are equal and all
    else that differs may be how the tasks were dealt.
    """

    tasks: int
    predicted: float
    least: int
    most: int
    same: bool


class Structure:
    """What is known of a program; this one is of no structure, so that nothing changes.

    ``checked`` are comparisons with runs by the code of the reason that they may be.
    """

    #: Why changes (--what-if) cannot be simulated; empty: they can.
    fixed = ""

    def in_place(
        self, made: Estimates, _machine: Path | None, _setting: Setting | None
    ) -> Estimates:
        """Return estimates with its own times in place of the traced schedule's."""
        return made

    def even(self, run: RunMeasurement) -> RunMeasurement:
        """Return a traced run without what depends on timing."""
        return run

    def told(
        self, made: Prediction, _name: str, _checked: Mapping[str, Sequence[Comparison]]
    ) -> Prediction:
        """Return a prediction, by the estimator of a name, that says what of it is special."""
        return made

    def minded(
        self, reasons: Sequence[Reason], _checked: Mapping[str, Sequence[Comparison]]
    ) -> tuple[Reason, ...]:
        """Return reasons, those that timing explains as something to be minded."""
        return tuple(reasons)

    def dealt(self, _run_dir: Path, _compared: Comparison) -> Dealt | None:
        """Return the tasks that were handed out in a run; None where none were."""
        return None
