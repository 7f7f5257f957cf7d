"""The laws of the parameters: what one file, family.json, holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from p3s.base.serialise import from_data, to_data
from p3s.costs.parameters.paramlaws import Number
from p3s.model.comparison import HoldOut, Summary
from p3s.model.work_types import Segment


@dataclass(frozen=True)
class Means:
    """A law of means: at each process count the mean as a law of the parameters.

    amount: of a size, which goes with the extents of the process grid, not with the count alone.
    """

    state: Literal["fitted"]
    amount: bool
    counts: tuple[tuple[int, Number], ...]


#: Told apart by the keys of Means, which a number lacks.
Law = Number | Means


@dataclass(frozen=True)
class SegmentLaws:
    """Laws of the work of segments, by where they start and end ("site:op > site:op").

    Expressions hold numbers of laws (``{"law": k}``) and symbols of the parameters.
    """

    segments: Mapping[str, Segment]


@dataclass(frozen=True)
class MissedRules:
    """What the laws fitted without the last setting got wrong there: (site, op, tag) of calls, and
    the calls of phases whose iterations were missed.
    """

    calls: tuple[tuple[str, str, int | None], ...]
    phases: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """Settings that are alike and the laws of their numbers.

    tree: of rules, its numbers replaced by numbers of laws (p3s.costs.parameters.tree); where: the
    place of each law in it. holdout: of the last setting.
    """

    settings: tuple[str, ...]
    tree: Mapping[str, Any]
    where: tuple[str, ...]
    laws: tuple[Law, ...]
    work: SegmentLaws
    holdout: HoldOut
    missed: MissedRules


@dataclass(frozen=True)
class SettingInfo:
    """A traced setting, its process counts, and whether they are enough for a model."""

    name: str
    counts: tuple[int, ...]
    modelled: bool


@dataclass(frozen=True)
class Check:
    """The laws compared with a run of a setting without a model; summary: None where ``why`` says
    why that cannot be.
    """

    name: str
    why: str = ""
    equal: bool = False
    summary: Summary | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the check as plain data."""
        if self.summary is None:
            return {"name": self.name, "possible": False, "why": self.why}
        head = {"name": self.name, "possible": True, "equal": self.equal}
        return {**head, **to_data(self.summary)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Check:
        """Return the check from :meth:`to_json` data."""
        name = str(data["name"])
        if not data["possible"]:
            return Check(name, str(data["why"]))
        known = {k: v for k, v in data.items() if k not in ("name", "possible", "equal")}
        return Check(name, "", data["equal"] is True, from_data(Summary, known))


@dataclass(frozen=True)
class Family:
    """The laws of a study's parameters: of settings that are alike; alone: why others are not."""

    parameters: tuple[str, ...]
    settings: tuple[SettingInfo, ...]
    alone: Mapping[str, str]
    parts: tuple[Part, ...]
    checks: tuple[Check, ...]
