"""Compare a study's model with a captured run at another count."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def validate(study_dir: Path, run_dir: Path, n: int) -> dict[str, Any]:
    """Compare the model with the run in ``run_dir`` and write validate/npNNNNNN.json.

    Returns {true, predicted, equal} of messages and collectives, weights, work errors and what
    the model leaves out; every event of the run counts in every number.
    """
    from p3s.characterize.signature import join_files
    from p3s.characterize.tables import table_of
    from p3s.errors import P3SError
    from p3s.model.compare import compare
    from p3s.model.stage import load
    from p3s.predict.doubts import of_validation
    from p3s.study import Study, write_json
    from p3s.trace import run_files

    study = Study.open(Path(study_dir))
    model = load(study.root)
    run = run_files(Path(run_dir))
    if run.np != n:
        raise P3SError(f"validate: {run_dir} holds a run of {run.np} processes, not {n}; check "
                       "that the launcher uses {np}")
    problem = run.problems[min(run.problems)] if run.problems else ""
    if not problem:
        # Where the model tells the calls of one site apart, the run's are told apart alike.
        shared = {site.partition("#")[0] for site in model["sites"] if "#" in site}
        part = join_files(list(run.files.values()), shared)
        problem = part.problem
    if problem:
        raise P3SError(f"validate: the capture in {run_dir} cannot be compared ({problem}); "
                       f"run `p3s validate -n {n}` again")
    table = table_of([part], [run.wall_ns], str(run_dir))
    result = {"schema": "p3s.validation", "schema_version": 1, "counts": model["counts"],
              **compare(model, table)}
    result["reasons"] = [reason.to_json() for reason in of_validation(result)]
    write_json(study.validate_path(n), result)
    return result
