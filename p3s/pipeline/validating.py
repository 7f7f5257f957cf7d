"""Compare a study's model with a captured run at another count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from p3s.base.artefacts import changed_ns, crc_of, write_json
from p3s.base.errors import P3SError
from p3s.base.records import runs_in
from p3s.base.serialise import to_data
from p3s.base.settings import traces_of
from p3s.capture import run_files
from p3s.costs.types import load as load_compute
from p3s.model.compare import compare
from p3s.model.comparison import VALIDATION, Comparison
from p3s.model.order.unfold import left_to_chance
from p3s.model.stage import NAME as MODEL
from p3s.model.types import Model
from p3s.model.verdicts import judged_at
from p3s.pipeline.commands import Commands
from p3s.pipeline.records import load_study, model_of, read_or_none, structure_of
from p3s.pipeline.saved import read_prediction
from p3s.predict.doubts import of_validation
from p3s.predict.estimates import Dealt
from p3s.predict.residual import RunMeasurement, measured_in
from p3s.predict.types import Count, Prediction, Reason
from p3s.signature.signature import read_alike
from p3s.signature.tables import table_of

#: Why a measured run time and a predicted one cannot be compared.
WHY_NOT = {
    "untimed": "instructions were counted, which takes longer than the program",
    "shared-cores": "the ranks shared {cores} cores",
    "off-core": "the ranks computed without a core for part of the run",
    "not-predicted": "nothing was predicted at {at}; first: p3s predict {study} -n {n}",
    "outdated": "the prediction is older than the model; first: p3s predict {study} -n {n}",
    "other-network": "the prediction is for another network than that of this run",
    "not-representative": "the predicted communication is not representative",
    "no-interval": "the interval of the prediction is not known",
}


@dataclass(frozen=True)
class VerdictCount:
    """How many calls of the model have a verdict at the count of a run, and how many differ."""

    verdict: str
    calls: int
    wrong: int


@dataclass(frozen=True)
class Validation:
    """A model beside a run that it was not made from, as in validate/npNNNNNN.json.

    counts, model_crc: of the model; verdicts: of its calls at the run's count; run_time: of the
    run and of the prediction; reasons: what speaks against the model; dealt: where it is a queue.
    """

    counts: tuple[int, ...]
    model_crc: int
    compared: Comparison
    verdicts: tuple[VerdictCount, ...]
    run_time: Mapping[str, Any]
    reasons: tuple[Reason, ...]
    dealt: Dealt | None = None

    @property
    def same(self) -> bool:
        """Whether the run is as the model says, but for what depends on timing."""
        return self.compared.all_equal or (self.dealt is not None and self.dealt.same)

    def to_json(self) -> dict[str, Any]:
        """Return it as it is written."""
        return {
            "schema": VALIDATION,
            "schema_version": 1,
            "counts": list(self.counts),
            "model_crc": self.model_crc,
            **to_data(self.compared),
            "verdicts": to_data(self.verdicts),
            "run_time": dict(self.run_time),
            "reasons": to_data(self.reasons),
            **({} if self.dealt is None else {"dealt": to_data(self.dealt)}),
        }


def validate(study_dir: Path, run_dir: Path, n: int) -> Validation:
    """Compare the model with the run in ``run_dir`` and write validate/npNNNNNN.json.

    Every event of the run counts in every number.
    """
    study = load_study(Path(study_dir))
    model, traces = model_of(study), traces_of(study)
    run = run_files(Path(run_dir))
    if run.np != n:
        raise P3SError(
            f"validate: {run_dir} holds a run of {run.np} processes, not {n}; check "
            "that the launcher uses {np}"
        )
    problem = run.problems[min(run.problems)] if run.problems else ""
    if not problem:
        part = read_alike(traces, model.sites, list(run.files.values()))
        problem = part.problem
    if problem:
        raise P3SError(
            f"validate: the capture in {run_dir} cannot be compared ({problem}); "
            f"run `p3s validate -n {n}` again"
        )
    table = table_of([part], [run.wall_ns], str(run_dir))
    compared = compare(model, table, _read_factors(study.root, n))
    if compared.order is not None:  # which ranks' partners may come in any order
        compared = replace(compared, order=left_to_chance(compared.order, Path(run_dir)))
    structure, reasons = structure_of(study), tuple(of_validation(compared, Commands(study)))
    dealt = structure.dealt(Path(run_dir), compared)
    if dealt is not None and dealt.same:
        reasons = structure.minded(reasons, {"validate-missed": [compared]})
    result = Validation(
        model.counts,
        crc_of(study.model_path),
        compared,
        _verdicts(model, compared),
        run_time(study.root, Path(run_dir), n),
        reasons,
        dealt,
    )
    write_json(study.validate_path(n), result.to_json())
    return result


def _read_factors(root: Path, n: int) -> dict[int, float]:
    """Return the factors of the phases' work where it was moved to another number of threads."""
    compute = load_compute(root)
    if compute is None or compute.teams is None:
        return {}
    teams = compute.teams
    return {factor.phase: teams.of(factor.phase, n)[0] for factor in teams.factors}


def _verdicts(model: Model, compared: Comparison) -> tuple[VerdictCount, ...]:
    """Return for each verdict how many calls have it at the count, and how many are not so."""
    verdicts = [item.verdict for item in judged_at(model, compared.n).items]
    wrong = [verdicts[i] for i in compared.items_wrong]
    return tuple(
        VerdictCount(v, verdicts.count(v), wrong.count(v)) for v in dict.fromkeys(sorted(verdicts))
    )


def run_time(root: Path, run_dir: Path, n: int) -> dict[str, Any]:
    """Compare the run's time with the study's prediction at ``n`` (docs/formats.md, validate).

    ``inside`` is None where they cannot be compared; ``why_not``, one of WHY_NOT, says why.
    """
    records = [run for run in runs_in(run_dir.parent, n) if run.path == run_dir]
    run = measured_in(records, n)
    prediction = read_or_none(lambda: read_prediction(root))  # none, or of another version
    rows = prediction.counts if prediction else ()
    row = next((row for row in rows if row.n == n), None)
    low, high = (row.model_low_s, row.model_high_s) if row else (None, None)
    why_not = _why_no_run(run) or _why_no_prediction(root, prediction, row)
    return {
        "predicted_s": row.model_s if row else None,
        "low_s": low,
        "high_s": high,
        "measured_s": run.wall_s if run else None,
        "inside": None
        if why_not or run is None or low is None or high is None
        else low <= run.wall_s <= high,
        "why_not": why_not,
        "cores": records[0].info.get("cores") if records else None,
        "work_s": row.work_s if row else None,
        "measured_work_s": run.work_s if run and math.isfinite(run.work_s) else None,
    }


def _why_no_run(run: RunMeasurement | None) -> str:
    """Return why a run's time does not tell how fast the program is, "" where it does."""
    if run is None:
        return "untimed"
    if run.shared_cores:
        return "shared-cores"
    return "" if run.representative else "off-core"


def _why_no_prediction(root: Path, prediction: Prediction | None, row: Count | None) -> str:
    """Return why no predicted time can be compared with a run's, "" where one can."""
    if prediction is None or row is None:
        return "not-predicted"
    if changed_ns(root / MODEL) > changed_ns(root / "prediction.json"):
        return "outdated"
    if row.n > 1 and prediction.network is not None and prediction.network.published:
        return "other-network"
    if not row.model_representative:
        return "not-representative"
    return "no-interval" if row.model_low_s is None or row.model_high_s is None else ""
