"""Weak scaling: predictions at counts with values of parameters that grow with them, made whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from p3s.base.errors import P3SError, UsageError
from p3s.base.progress import Progress
from p3s.base.settings import parameters, setting_name, settings_in, value_text
from p3s.base.study import Study, write_json
from p3s.base.text import quoted
from p3s.costs.parameters.laws import Family
from p3s.pipeline import stages as pipeline
from p3s.predict.commands import Commands
from p3s.predict.types import WEAK, WeakPrediction

if TYPE_CHECKING:
    from p3s.pipeline.predicting import PredictArguments


def has_parameters(root: Path) -> bool:
    """Tell whether a study has parameters."""
    return (Path(root) / "study.json").exists() and bool(parameters(Study(root)))


def with_parameters(study_dir: Path) -> Study:
    """Return a study that has parameters; raises UsageError for another."""
    study = Study.open(study_dir)
    if not parameters(study):
        raise UsageError(
            f"{study_dir}: has no parameters; --param and --weak need a study traced with "
            "p3s characterize --param"
        )
    return study


class Named(Progress):
    """Steps of one setting of the parameters, told with its name.

    notes: what the user should know is told, too, without the name.
    """

    def __init__(self, bar: Progress, name: str, *, notes: bool = False) -> None:
        super().__init__()
        self._of, self._name, self._notes = bar, name, notes

    def start(self, text: str) -> None:
        """Say which step is being done."""
        self._of.start(f"{self._name} {text}")

    def done(self, text: str) -> None:
        """Say that a step has ended."""
        self._of.done(f"{self._name} {text}")

    def say(self, text: str) -> None:
        """Say something that the user should know, in one line."""
        if self._notes:
            self._of.say(text)


def ensure_family(study: Study, bar: Progress, *, again: bool = False) -> Family | None:
    """Fit the models of all values and the laws of the parameters where missing or out of date.

    None for a study whose runs differ in their threads alone: these have laws of their own.
    """
    from p3s.base.settings import MIN_COUNTS, THREADS, alike_in_threads
    from p3s.pipeline.family import build_family, family_path, load_family
    from p3s.pipeline.stages import ensure_model, ensure_signatures, is_stale

    inputs = []
    for setting, at in alike_in_threads(study):
        counts = ensure_signatures(at, bar)
        if len(counts) >= MIN_COUNTS:
            ensure_model(at, Named(bar, setting_name(setting)), again=again)
            inputs.append(at.model_path)
        else:
            inputs += [at.signature_path(n) for n in counts]
    if parameters(study) == [THREADS]:
        return None
    if again or is_stale(family_path(study.root), inputs):
        bar.start("fitting the laws of the parameters")
        build_family(study.root, say=lambda text: bar.start(text))
        bar.done("laws of the parameters fitted")
    return load_family(study.root)


def largest_values(study: Study) -> tuple[Study, list[str]]:
    """Return the study at the largest values that were traced, and the options that name them."""
    from p3s.base.settings import THREADS, threads_in, without_threads

    setting, at = max(settings_in(study), key=lambda pair: tuple(pair[0].values()))
    rest = setting_name(without_threads(setting))
    words = [word for each in rest.split(",") if each for word in ("--param", each)]
    if THREADS in setting:
        words += ["--threads", ",".join(map(str, threads_in(study)))]
    return at, words


def at_value(study_dir: Path, params: Sequence[str], bar: Progress) -> Path:
    """Return the study at one value of every parameter, derived if it was not traced."""
    from p3s.base.settings import THREADS, one_setting
    from p3s.pipeline.family import instantiate
    from p3s.pipeline.teams import over_threads

    study = with_parameters(study_dir)
    setting = one_setting(params, parameters(study))
    ensure_family(study, bar)
    if THREADS in setting:
        return over_threads().at(study, setting, bar).root
    path = instantiate(study.root, setting)
    bar.say(f"{setting_name(setting)}: {_origin(Study(path))}, {quoted(path)}")
    return path


def _origin(at: Study) -> str:
    """Return where the model of a value comes from and what speaks against it."""
    from p3s.model.stage import read

    derived = read(at.model_path).derived
    if derived is None:
        return "traced"
    text = f"derived from {', '.join(derived.settings)}"
    if derived.outside > 1:
        text += f"; {derived.outside:.3g} times outside the traced values"
    if derived.left_out:
        text += f"; without {', '.join(derived.left_out)}, whose structure is another"
    return text


def predicted(
    study: Study, arguments: PredictArguments, law: str, params: Sequence[str], bar: Progress
) -> tuple[WeakPrediction, Path]:
    """Make what is missing, predict times at counts with parameters that grow, and write them;
    return the prediction and its file.

    ``law``: as of --weak, size~n or size~2*n^(1/3). ``params``: values at the smallest count, as
    of --param. Counts that were predicted before with the same law stay, unless they alone are
    asked for. Of the arguments those of another machine and of changes are not heeded. Raises
    P3SError, in one line.
    """
    counts, request, only = arguments.counts, arguments.request, arguments.only
    from p3s.costs.parameters.weak import parse_laws, settings_along
    from p3s.pipeline.family import instantiate
    from p3s.pipeline.predicting import estimation, one_at_a_time
    from p3s.predict.prediction import Weak, predict

    names = parameters(study)
    laws = parse_laws(law)
    for each in laws:
        if each.name not in names:
            raise UsageError(
                f"--weak {law}: {each.name} is no parameter of this study, which has "
                f"{', '.join(names)}"
            )
    traced = settings_in(study)
    if not traced:
        raise P3SError(f"{study.root}: holds no runs yet; run p3s characterize --param first")
    path = study.root / f"weak-{'-'.join(each.name for each in laws)}.json"
    told = ",".join(each.text() for each in laws)
    base_n = min(n for _, at in traced for n in at.counts())
    fixed = _base(params, names, [s for s, _ in traced])
    whole = {name: all(s[name].denominator == 1 for s, _ in traced) for name in names}
    with one_at_a_time(path, bar):
        every = sorted({base_n, *counts, *([] if only else _earlier(path, told))})
        along, notes = settings_along(laws, fixed, names, every, base_n, whole)
        for note in notes:
            bar.say(note)
        bar.expect(2 * len(every) + 2)
        ensure_family(study, bar)
        studies: dict[int, Study] = {}
        for n, setting in along.items():
            at = studies[n] = Study(instantiate(study.root, setting))
            step = Named(bar, setting_name(setting))
            pipeline.ensure_model(at, step)
            pipeline.ensure_compute(at, step)
            pipeline.check_times(at)
            for count, why in pipeline.doubted(at, [n]).items():
                bar.say(f"n={count}: {why}")
            pipeline.ensure_scaled(at, n, step)
        words = (word for each in params for word in ("--param", each))
        predicting = ["predict", str(study.root), "--weak", law, *words]
        last = studies[max(studies)]
        result = predict(
            last,
            every,
            replace(estimation(studies, every, request, bar), threshold=arguments.knee),
            commands=Commands(last, studies, predicting),
            weak=Weak(
                studies,
                {n: {k: value_text(v) for k, v in setting.items()} for n, setting in along.items()},
                sorted({n for _, at in traced for n in at.counts()}),
            ),
        )
        parts = {each.name: getattr(result, each.name) for each in fields(result)}
        parts["notes"] = (*notes, *result.notes)
        found = WeakPrediction(**parts, weak=told, base_n=base_n)
        write_json(path, WEAK.data(found))
    return found, path


def _earlier(path: Path, law: str) -> list[int]:
    """Return the counts that were predicted before with the same growth."""
    try:
        found = WEAK.read(path)
    except P3SError:  # none, or of an older version
        return []
    return [row.n for row in found.counts] if found.weak == law else []


def _base(
    params: Sequence[str], names: Sequence[str], traced: Sequence[Mapping[str, Fraction]]
) -> dict[str, Fraction]:
    """Return the value of every parameter at the smallest count: as given, else the smallest."""
    from p3s.base.settings import parse_params

    given = parse_params(params)
    for name, values in given.items():
        if name not in names:
            raise UsageError(
                f"--param {name}: no parameter of this study, which has {', '.join(names)}"
            )
        if len(values) > 1:
            raise UsageError(f"--param {name}: give one value here, {len(values)} are given")
    return {
        name: given[name][0] if name in given else min(s[name] for s in traced) for name in names
    }
