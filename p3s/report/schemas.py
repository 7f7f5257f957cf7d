"""The published schemas of all files that are written from records.

``python -m p3s.report.schemas`` writes them anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from p3s.base import schemas
from p3s.base.artefacts import SCHEMA_VERSION
from p3s.base.extensions import provided
from p3s.base.records import RUN_SCHEMA, ReplayRead, RunRead, StudyRead
from p3s.base.schemas.published import Published
from p3s.base.study import REPLAY_SCHEMA, REPLAY_VERSION, STUDY_SCHEMA
from p3s.costs import stage as costs
from p3s.costs.parameters import stage as parameters
from p3s.costs.parameters.types import Family
from p3s.costs.small_runs import builds, summary
from p3s.costs.types import ComputeModel
from p3s.machine import filesystem, machinefile
from p3s.machine.machinefile import MachineRead
from p3s.methods.threads import stage as threads_stage
from p3s.methods.threads import store as threads
from p3s.model import stage as model
from p3s.model.comparison import VALIDATION, Comparison
from p3s.model.law_types import TraceOrder
from p3s.model.types import Model
from p3s.predict import saved, surface
from p3s.predict.types import WeakPrediction
from p3s.program.types import Communicators, HeadRead
from p3s.report import advice
from p3s.signature import phase_file, sampled, store, times

#: Those whose schemas are written by hand are not here: prediction, cluster, topology.
FORMATS: tuple[Published[Any], ...] = (
    Published(STUDY_SCHEMA, SCHEMA_VERSION, StudyRead, more=True),
    Published(RUN_SCHEMA, SCHEMA_VERSION, RunRead, more=True),
    Published(store.SCHEMA, store.VERSION, store.SignatureHead, more=True),
    Published(times.TIMES_SCHEMA, times.TIMES_VERSION, times.TimesRead, more=True),
    Published(model.SCHEMA, 2, Model),
    Published(costs.SCHEMA, costs.VERSION, ComputeModel),
    Published("p3s.scaled", SCHEMA_VERSION, HeadRead, more=True),
    Published("p3s.comms", SCHEMA_VERSION, Communicators, more=True),
    Published("p3s.order", SCHEMA_VERSION, TraceOrder),
    Published(REPLAY_SCHEMA, REPLAY_VERSION, ReplayRead, more=True),
    Published(VALIDATION, SCHEMA_VERSION, Comparison, more=True),
    Published(parameters.SCHEMA, SCHEMA_VERSION, Family),
    surface.SURFACE,
    Published(advice.SCHEMA, advice.VERSION, advice.AdviceFile),
    Published(threads.SCHEMA, SCHEMA_VERSION, threads.File),
    Published(filesystem.SCHEMA, filesystem.VERSION, filesystem.FileSystem),
    Published(threads_stage.SCHEMA, SCHEMA_VERSION, threads_stage.ChecksHead),
    Published(phase_file.SCHEMA, phase_file.VERSION, phase_file.PhasesRead, more=True),
    Published(machinefile.MACHINE_SCHEMA, machinefile.MACHINE_VERSION, MachineRead, more=True),
    Published(saved.WEAK, saved.VERSION, WeakPrediction),
    Published(summary.SCHEMA, summary.VERSION, summary.FarFile, more=True),
    builds.SITES,
    Published(sampled.SCHEMA, sampled.VERSION, sampled.SampledFile, more=True),
    *provided("schemas"),
)


def main() -> None:
    """Write the schemas of all formats into the package."""
    for each in FORMATS:
        path = Path(schemas.__file__).parent / f"{each.file}.json"
        path.write_text(json.dumps(each.made(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
