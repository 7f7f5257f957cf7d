"""The view model of a report: what is shown, in which words, independent of how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from p3s.base.errors import P3SError
from p3s.base.study import Study
from p3s.base.text import visible
from p3s.base.version import __version__
from p3s.capture.sites import resolve_sites
from p3s.model.stage import as_of_now, read
from p3s.model.types import Model
from p3s.predict.reasons import Reason, untrusted
from p3s.predict.saved import read_prediction
from p3s.predict.types import Count, Prediction
from p3s.report.call_rows import CallRows, call_rows
from p3s.report.call_tree import CallTree, call_tree_of
from p3s.report.costs import (
    LawRow,
    Limit,
    PhaseCost,
    PhaseCurves,
    Stacks,
    law_rows,
    limits_of,
    phase_costs,
    phase_curves,
    stacks_of,
)
from p3s.report.counts import COUNTS_HEAD, CountTable, count_rows, count_table
from p3s.report.efficiencies import EfficiencyTable, efficiencies_of
from p3s.report.files import FileTable, files_of
from p3s.report.gaps import gaps_of
from p3s.report.matrices import MatrixView, matrices_of
from p3s.report.parts import Curve, Part, parts_of
from p3s.report.places import Places
from p3s.report.points import Point, points_of
from p3s.report.provenance import commands_of, facts_of, shown_command
from p3s.report.sections import (
    Account,
    Equations,
    account_of,
    computation_of,
    equations_of,
    instructions_of,
)
from p3s.report.sure import (
    Estimate,
    IntervalPart,
    Residual,
    Shares,
    estimates_of,
    holdout_of,
    interval_parts,
    residuals_of,
    shares_of,
)
from p3s.report.verdict import Figure, figure_sentences, figures, reasons_of, verdict_of, warning_of
from p3s.report.what_if import WhatIfTable, what_if_of
from p3s.signature.phase_file import load as load_phases

__all__ = [
    "COUNTS_HEAD",
    "Point",
    "View",
    "build_view",
    "count_rows",
    "points_of",
    "verdict_of",
    "view_of",
]


@dataclass(frozen=True)
class View:
    """Everything a report shows, as text and numbers; ``prediction`` is what the curve is of.

    warning: that it is not to be trusted and why in a few words; empty where it is.
    """

    title: str
    command: str
    version: str
    prediction: Prediction
    verdict: str
    sentences: list[str]
    warning: str
    figures: list[Figure]
    against: list[Reason]
    mind: list[Reason]
    baseline_n: int
    largest_n: int
    points: list[Point]
    counts: CountTable
    stacks: Stacks
    phases: list[PhaseCost]
    phases_cut: str
    curves: list[PhaseCurves]
    laws: list[LawRow]
    laws_cut: str
    limits: list[Limit]
    what_if: WhatIfTable | None
    efficiencies: EfficiencyTable | None
    tree: CallTree
    call_rows: CallRows
    estimator: str
    estimator_why: str
    estimates: list[Estimate]
    interval_how: str
    interval_parts: list[IntervalPart]
    interval_whole: tuple[float, float] | None
    residuals: list[Residual]
    shares: Shares
    holdout: list[str]
    matrices: list[MatrixView]
    parts: list[Part]
    account: Account | None
    equations: Equations
    instructions: str
    computation: str
    files: FileTable | None
    gaps: list[str]
    facts: list[tuple[str, str]]
    commands: list[str]

    @property
    def beside(self) -> list[Curve]:
        """What other methods say of the run times."""
        return [part.curve for part in self.parts if part.curve is not None]


def build_view(study: Study) -> View:
    """Read a study that has a prediction and return what its report shows."""
    return view_of(study, read_prediction(study.root))


def view_of(study: Study, prediction: Prediction, *, source: bool = True) -> View:
    """Return what a report of this prediction shows; ``source``: lines of the program's source."""
    model = as_of_now(study, read(study.model_path))
    rows, last = prediction.counts, prediction.last
    replays = _replays(study, [row.n for row in rows])
    places = _places(study, model)
    equations = equations_of(study, model, places, source)
    tree = call_tree_of(study, prediction, places)
    costs, phases_cut = phase_costs(prediction)
    laws, laws_cut = law_rows(prediction)
    reasons = reasons_of(prediction)
    return View(
        title=visible(study.root.resolve().name) or "study",
        command=shown_command(study.command(), 400),
        version=__version__,
        prediction=prediction,
        verdict=verdict_of(prediction),
        sentences=figure_sentences(prediction, equations.places),
        warning=warning_of(prediction),
        figures=figures(prediction),
        against=untrusted(reasons),
        mind=[each for each in reasons if not each.untrustworthy],
        baseline_n=prediction.baseline_n,
        largest_n=last.n,
        points=points_of(prediction),
        counts=count_table(prediction),
        stacks=stacks_of(prediction),
        phases=costs,
        phases_cut=phases_cut,
        curves=phase_curves(prediction),
        laws=laws,
        laws_cut=laws_cut,
        limits=limits_of(prediction),
        what_if=what_if_of(prediction),
        efficiencies=efficiencies_of(prediction),
        tree=tree,
        call_rows=call_rows(tree, prediction),
        estimator=visible(prediction.estimator, 60),
        estimator_why=visible(prediction.estimator_why, 600),
        estimates=estimates_of(prediction),
        interval_how=visible(prediction.interval_how, 600),
        interval_parts=interval_parts(prediction.last),
        interval_whole=_whole(last),
        residuals=residuals_of(prediction),
        shares=shares_of(prediction),
        holdout=holdout_of(model),
        matrices=matrices_of(study, last.n),
        parts=parts_of(study, prediction),
        account=account_of(study),
        equations=equations,
        instructions=instructions_of(study, model),
        computation=computation_of(study, model, [row.n for row in rows]),
        files=files_of(prediction),
        gaps=gaps_of(study, model, prediction, replays),
        facts=facts_of(study, study.manifest(), replays, prediction),
        commands=commands_of(study, prediction),
    )


def _places(study: Study, model: Model) -> Places:
    """Return the places of all frames of the model's calls and of the traced ones."""
    try:
        traced = load_phases(study.phases_path).sites
    except P3SError:
        traced = {}
    found, _ = resolve_sites(study, {**traced, **model.sites})
    return found


def _replays(study: Study, counts: list[int]) -> dict[int, dict[str, Any]]:
    """Return the replays that can be read; a prediction without a replay is one, too."""
    found = {}
    for n in counts:
        if study.replay_path(n).exists():
            try:
                found[n] = study.replay(n)
            except P3SError:
                continue  # the prediction does not rest on it
    return found


def _whole(row: Count) -> tuple[float, float] | None:
    """Return the interval of the model's time at a count, as factors."""
    time, low, high = (row.model_s, row.model_low_s, row.model_high_s)
    if not time or low is None or high is None or low <= 0:
        return None
    return low / time, high / time
