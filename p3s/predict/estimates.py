"""What every estimator says of every count, and which of them the prediction rests on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from p3s.base.errors import P3SError
from p3s.base.extensions import provided
from p3s.base.study import Study
from p3s.model.comparison import Comparison
from p3s.predict import estimators
from p3s.predict.estimated import ESTIMATORS, FROM_REPLAY, TYPICAL
from p3s.predict.estimators import Communication
from p3s.predict.estimators.settings import Setting
from p3s.predict.residual import Measured
from p3s.predict.scaling import KNEE_EFFICIENCY
from p3s.predict.times import PhaseTimes, computation, with_communication
from p3s.predict.types import Prediction, Reason

#: Times by an estimator, or why there are none.
Estimate = PhaseTimes | str
#: By count, then by the name of the estimator.
Estimates = Mapping[int, Mapping[str, Estimate]]
Say = Callable[[str], None]
#: What estimators have found, by their names and the counts.
Kept = dict[tuple[str, int], "Communication"]

AUTO = "auto"


@dataclass(frozen=True)
class Estimation:
    """How times are estimated and judged; the same for all counts of a prediction.

    estimator: a name of ESTIMATORS; then only that one and those that a replay has paid for
    already are asked. machine: file of p3s machine measure (default: that in the study). setting:
    cluster and library of the full run; where it names a network, the costs of that are asked for
    instead of those between two ranks. stale: counts whose replays are older than their scaled
    traces. threshold: efficiency of the knee. allowed: codes of reasons that do not make it
    untrustworthy. requested, within: as of Facts. done is told every estimator that has simulated a
    count; keep gets what was found with every rank.
    """

    estimator: str = AUTO
    machine: Path | None = None
    setting: Setting | None = None
    stale: Collection[int] = ()
    threshold: float = KNEE_EFFICIENCY
    allowed: Collection[str] = ()
    requested: Collection[int] | None = None
    within: float | None = None
    say: Say | None = None
    done: Callable[[str, int], None] | None = None
    keep: Kept | None = None


#: Nothing is named.
AS_FOUND = Estimation()


def estimates(
    study: Study, counts: Sequence[int], how: Estimation = AS_FOUND
) -> dict[int, dict[str, Estimate]]:
    """Return what every estimator says at ``counts``, whose scaled traces are there.

    An estimator that fails says why in its place; the wanted one, and one without which nothing is
    known, raise P3SError.
    """
    times = {n: computation(study, n) for n in sorted(set(counts))}
    alone = {n: made for n, made in times.items() if n == 1}
    found: dict[int, dict[str, Estimate]] = {
        # one process communicates with nobody, whoever estimates it
        n: {name: replace(times[n], estimator=name) for name in ESTIMATORS} if n in alone else {}
        for n in times
    }
    missing = {
        n: estimators.available(study, n, machine=how.machine) for n in times if n not in alone
    }
    failed: P3SError | None = None
    for name in ESTIMATORS:
        asked = name in FROM_REPLAY or (
            how.estimator == name
            if how.estimator != AUTO
            else (name == TYPICAL) == bool(how.setting and how.setting.network)
        )
        for n, why in missing.items():
            if name in FROM_REPLAY and n in how.stale and not why.get(name):
                why = {name: "the replay is older than the scaled trace"}
            found[n][name] = why.get(name, "is none of this P3S") if asked else "was not asked for"
        able = [n for n in missing if not found[n][name]]
        if not able:
            continue
        try:
            made = estimators.estimate_many(
                name,
                study,
                able,
                machine=how.machine,
                say=how.say,
                setting=how.setting,
                done=partial(how.done, name) if how.done and name not in FROM_REPLAY else None,
            )
        except P3SError as err:
            if how.estimator == name or name in FROM_REPLAY:  # a damaged replay is not passed over
                raise
            failed = err
            for n in able:
                found[n][name] = str(err)
            continue
        for n in able:
            found[n][name] = with_communication(times[n], made[n])
            if how.keep is not None and made[n].stand_ins is None:
                how.keep[name, n] = made[n]
    if failed and not any(_times(found, n, name) for n in missing for name in ESTIMATORS):
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
    counts = sorted(found)
    there = [name for name in ESTIMATORS if all(_times(found, n, name) for n in counts)]
    good = [name for name in there if not _why_not(found, name)]

    def choice(name: str, why: str) -> Choice:
        return Choice(name, why, {n: _taken(found, n, name) for n in counts})

    if wanted != AUTO:
        if wanted not in there:
            raise P3SError(f"estimator {wanted}: {_missing(found, wanted)}")
        why = _why_not(found, wanted)
        doubt = f"; it does not tell how fast the program is: {why}" if why else ""
        return choice(wanted, f"as asked{doubt}")
    if good:
        return choice(good[0], _reason(found, good[0]))
    if there:
        why = _why_not(found, there[0])
        return choice(
            there[0],
            f"no estimator tells how fast the program is ({why}); it is the first that is there at "
            "every count",
        )
    mixed: dict[int, PhaseTimes] = {}
    for n in counts:
        names = [name for name in ESTIMATORS if _times(found, n, name)]
        if not names:
            said = "; ".join(f"{name}: {found[n].get(name, 'is not there')}" for name in ESTIMATORS)
            raise P3SError(f"n={n}: nothing says how long communication takes ({said})")
        mixed[n] = _taken(found, n, names[0])
    name = mixed[counts[-1]].estimator
    return Choice(
        name, "no estimator is there at every count, so counts rest on different ones", mixed
    )


def _reason(found: Estimates, name: str) -> str:
    """Say why an estimator was chosen, and why none before it was."""
    before = list(ESTIMATORS)[: list(ESTIMATORS).index(name)]
    passed = []
    for other in before:
        why = _missing(found, other) or _why_not(found, other)
        if name == TYPICAL:  # nothing was measured for it: only what is there needs a reason
            there = any(_times(found, n, other) for n in found if n > 1)
            why = (_why_not(found, other) or why) if there else ""
        if why:
            passed.append(f"{other}: {why}")
    return ESTIMATORS[name].reason + (f"; not taken: {'; '.join(passed)}" if passed else "")


def _times(found: Estimates, n: int, name: str) -> PhaseTimes | None:
    made = found[n].get(name)
    return made if isinstance(made, PhaseTimes) else None


def _taken(found: Estimates, n: int, name: str) -> PhaseTimes:
    made = _times(found, n, name)
    assert made is not None
    return made


def _missing(found: Estimates, name: str) -> str:
    """Return why an estimator is not there, with the first count where it is not; "" if it is."""
    for n in sorted(found):
        made = found[n].get(name, "is not there")
        if isinstance(made, str):
            return f"n={n}: {made}"
    return ""


def _why_not(found: Estimates, name: str) -> str:
    """Return why an estimator does not tell how fast the program is, at the first such count."""
    for n in sorted(found):
        made = _times(found, n, name)
        if made is not None and made.why_not:
            return f"n={n}: {made.why_not}"
    return ""


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

    def even(self, run: Measured) -> Measured:
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


def structure_of(study: Study) -> Structure:
    """Return what the first extension that recognises a study's program knows of it."""
    ways: Iterator[Callable[[Study], Structure | None]] = provided("structures")
    return next((it for way in ways if (it := way(study)) is not None), Structure())
