"""The view model of a report: what is shown, in which words, independent of how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from p3s.base.text import command_line, visible
from p3s.base.version import __version__
from p3s.pipeline.content import StudyContent
from p3s.predict.reasons import Reason, untrusted
from p3s.predict.types import Count, Prediction
from p3s.report.call_rows import CallRows, call_rows
from p3s.report.call_tree import CallTree, tree_of
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
from p3s.report.counts import CountTable, count_table
from p3s.report.efficiencies import EfficiencyTable, efficiencies_of
from p3s.report.equations import holdout_rows
from p3s.report.files import FileTable, files_of
from p3s.report.gaps import gaps_of
from p3s.report.matrices import MatrixView, matrix_view
from p3s.report.parts import Curve, Part
from p3s.report.points import Point, points_of
from p3s.report.provenance import commands_of, facts_of
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
    interval_parts,
    residuals_of,
    shares_of,
)
from p3s.report.verdict import Figure, figure_sentences, figures, reasons_of, verdict_of, warning_of
from p3s.report.what_if import WhatIfTable, what_if_of


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


def view_of(content: StudyContent, parts: Sequence[Part] = ()) -> View:
    """Return what a report shows of a study; ``parts``: of extensions."""
    prediction, program = content.prediction, content.program
    last = prediction.last
    equations = equations_of(content)
    tree = tree_of(content.phases, content.places, prediction)
    costs, phases_cut = phase_costs(prediction)
    laws, laws_cut = law_rows(prediction)
    reasons = reasons_of(prediction)
    first, rows = holdout_rows(content.model)
    return View(
        title=visible(program.name) or "study",
        command=visible(command_line(program.command), 400),
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
        holdout=[f"{first[0].upper()}{first[1:]}.", *(f"{name}: {row}" for name, row in rows)],
        matrices=[matrix_view(*each) for each in content.matrices],
        parts=list(parts),
        account=account_of(content.phases),
        equations=equations,
        instructions=instructions_of(content),
        computation=computation_of(content),
        files=files_of(prediction),
        gaps=gaps_of(content),
        facts=facts_of(content),
        commands=commands_of(program, prediction),
    )


def _whole(row: Count) -> tuple[float, float] | None:
    """Return the interval of the model's time at a count, as factors."""
    time, low, high = (row.model_s, row.model_low_s, row.model_high_s)
    if not time or low is None or high is None or low <= 0:
        return None
    return low / time, high / time
