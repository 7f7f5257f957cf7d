"""A saved prediction beside its study as it is now: are the runs that it rests on still used?"""

from __future__ import annotations

from p3s.base.serialise import to_data
from p3s.base.study import Study
from p3s.base.text import processes
from p3s.predict.commands import Commands
from p3s.predict.reasons import Reason
from p3s.predict.saved import PredictionFile

#: Counts that a model needs.
_NEEDED = 3


def as_of_now(prediction: PredictionFile) -> PredictionFile:
    """Return a prediction with a reason more where runs that it rests on are gone or left out.

    One that is kept outside of a study is returned as it is.
    """
    if prediction.source is None:
        return prediction
    study = Study(prediction.source.parent)
    if not study.manifest_path.exists() or study.prediction_path.name != prediction.source.name:
        return prediction
    found = _of_runs(study, prediction)
    if found is None:
        return prediction
    reasons = [to_data(found), *prediction.data["reasons"]]
    return PredictionFile({**prediction.data, "reasons": reasons}, prediction.source)


def _of_runs(study: Study, prediction: PredictionFile) -> Reason | None:
    """Say which runs that a prediction rests on were deleted or left out since."""
    traced = prediction.content.traced_counts
    gone = sorted(set(traced) & set(study.gone_counts()))
    out = sorted(set(traced) & set(study.left_out()))
    if not gone and not out:
        return None
    commands = Commands(study)
    if gone and len(study.counts()) < _NEEDED:
        advice = f"trace them again: {commands.trace(gone)}"
    else:
        rest = [n for n in prediction.counts if n not in traced] or prediction.counts
        advice = f"make it again without them: {commands.predict(rest)}"
    what = " and ".join(["deleted"] * bool(gone) + ["left out of the model"] * bool(out))
    return Reason(
        "outdated",
        f"the prediction rests on runs at {processes(sorted({*gone, *out}))}, which were {what} "
        "since",
        advice,
    )
