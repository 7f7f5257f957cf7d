"""The report: right numbers, offline, and nothing a name in a file can do."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import corpus
import models
import pytest
from made_predictions import made_prediction, reason, record
from report_studies import HOSTILE, put_study, shown

from p3s.base.errors import P3SError
from p3s.base.study import REPLAY_VERSION, write_json
from p3s.base.text import factor, percent, seconds, visible
from p3s.model.reasons import Code, Reason
from p3s.model.types import Decision, NextCount
from p3s.predict.types import Prediction
from p3s.report.costs import phase_costs
from p3s.report.counts import count_table, points_of
from p3s.report.html import render as render_html
from p3s.report.phase_table import account as account_of
from p3s.report.pictures import picture_of
from p3s.report.sections import gaps_of
from p3s.report.sure import verdict_of
from p3s.report.terminal import render
from p3s.signature.phase_file import PHASES
from p3s.signature.phases import phases_of
from p3s.signature.structure import structure

Json = dict[str, Any]


def part(number: int, name: str, compute_s: float, comm_s: float, weight: int = 1) -> Json:
    """Return a phase of which no interval is known."""
    unknown = (
        "low_s high_s compute_low_s compute_high_s crm_i_s crm_c_s waiting_s transfer_s software_s"
    )
    return {
        "phase": number,
        "name": name,
        "kind": "loop",
        "weight": weight,
        "time_s": compute_s + comm_s,
        "compute_s": compute_s,
        "comm_s": comm_s,
        **dict.fromkeys(unknown.split()),
    }


def row(n: int, time_s: float, base: float, **more: Any) -> Json:
    """Return a row of two phases, made of what reports show."""
    unknown = "model_low_s model_high_s waiting_s transfer_s software_s measured_s measured_work_s"
    return {
        "n": n,
        "time_s": time_s,
        "low_s": time_s * 0.9,
        "high_s": time_s * 1.1,
        "model_s": time_s,
        "time_from": "model",
        "speedup": base / time_s,
        "speedup_low": base / time_s / 1.1,
        "speedup_high": base / time_s / 0.9,
        "efficiency": base / time_s * 2 / n,
        "compute_s": time_s * 0.75,
        "comm_s": time_s * 0.25,
        "work_s": time_s * 0.75,
        "cost_core_h": n * time_s / 3600,
        "measured": False,
        "representative": True,
        "model_representative": True,
        "contradicts": False,
        "below_traced": False,
        "estimator": "simulation",
        "estimators": {},
        "interval_parts": dict.fromkeys(("work", "cost", "replay", "residual")),
        **dict.fromkeys(unknown.split()),
        "phases": [
            part(0, "sweep", time_s * 0.65, time_s * 0.05, 100),
            part(1, "norm", time_s * 0.1, time_s * 0.2, 10),
        ],
        **more,
    }


def prediction(**more: Any) -> Json:
    """Return a prediction of such rows; its knee is at 64 where that is one of its counts."""
    rows = more.get("counts") or [
        row(2, 8.0, 8.0, measured=True, measured_s=8.0, time_from="measured"),
        row(4, 4.4, 8.0, measured=True, measured_s=30.0, representative=False),
        row(64, 1.0, 8.0),
    ]
    counts = [entry.get("n") for entry in rows if isinstance(entry, dict)]
    changes = {
        "counts": rows,
        "baseline_n": counts[0] if counts else 2,
        "knee": 64 if 64 in counts else None,
        "recommended": None,
        "unknown_share": 0.0,
        "verdict_share": {"exact": {"events": 1.0, "bytes": 1.0, "work": 1.0}},
        "network": None,
        **dict.fromkeys(("estimator", "estimator_why"), ""),
        **{key: [] for key in ("limits", "phase_laws", "residuals", "reasons", "notes")},
        **{key: [] for key in ("not_modelled", "traced_counts")},
    }
    return {**made_prediction(), **changes, **more}


def made(**more: Any) -> Prediction:
    """Return such a prediction as its readers get it."""
    return record(prediction(**more))


class Page(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def check_offline(text: str) -> Page:
    """Assert that a page loads nothing, and holds no style and no script but its own."""
    page = Page(text)
    assert page.open == []
    names = [tag for tag, _ in page.tags]
    assert not set(names) & {"iframe", "link", "img", "object", "embed", "base", "form"}
    assert names.count("style") == names.count("script") == 1 and names.count("svg") >= 1
    known = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    for _, attrs in page.tags:
        for name, value in attrs.items():
            assert not name.startswith("on") and name not in ("src", "style", "action")
            assert name != "href" or (value or "")[:1] == "#" and (value or "")[1:] in known
            assert "javascript:" not in (value or "") or name in ("aria-label", "data-t")
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        own = re.search(f"<{tag}>(.*?)</{tag}>", text, re.S)
        assert own is not None
        digest = base64.b64encode(hashlib.sha256(own[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert not re.search(r"url\(|@import|https?:|eval\(|innerHTML|import\(|fetch\(", own[1])
    return page


def test_report_is_one_offline_page_with_the_numbers(tmp_path: Path) -> None:
    content = shown(put_study(tmp_path / "study", prediction()))
    text = render_html(content)
    words = " ".join(" ".join(check_offline(text).words).split())
    for expected in (
        "Messages: 11 of 12 equal, 13 predicted",
        "Weights: 1 of 2",
        "8.00x",
        "in the worst phase by 25.0 %",
        "(30.0 s)",
        "sweep",
        "Phase 1: Irecv+Isend+Waitall+Allreduce",
        "weight w = 3 [exact, traced",
        "mpiexec -n {np} ./app",
        "p3s predict study -n 4,64",
    ):
        assert expected in words, expected
    formulas = [attrs["alttext"] for tag, attrs in Page(text).tags if tag == "math"]
    assert "8*block_first(61, p1, c1)" in formulas
    heads = re.findall(r'<h2 id="(\w+)"', text)
    parts = "curve time counts growth calls phases equations sure holdout verdicts gaps provenance"
    assert heads == parts.split()
    tabs = re.findall(r'<div class="tab" id="(\w+)"', text)
    assert tabs == ["overview", "scaling", "paths", "model", "confidence", "origin"]
    assert re.findall(r'<a href="#(\w+)">', text) == tabs
    assert "prefers-color-scheme: dark" in text and "@media print" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(tmp_path: Path, name: str) -> None:
    model = models.built("jacobi2d")
    why = (Reason(Code.PARAMETER_LAWS, name=name),)
    model = replace(
        model,
        sites=dict.fromkeys(model.sites, (name, name)),
        phases=tuple(replace(phase, name=name) for phase in model.phases),
        items=tuple(replace(item, op=name, why=why) for item in model.items),
        next=(NextCount(36, (6, 6), 1.0, (Decision(name, 0.1),)),),
    )
    result = prediction(
        notes=[name], reasons=[reason(name, name, name)], verdict_share={name: {"events": 1.0}}
    )
    for entry in result["counts"]:
        entry["phases"][0]["name"] = name
    command = ["mpiexec", "-n", "{np}", "./app", name.encode("utf-8", "replace").decode()]
    study = put_study(tmp_path / "study", result, command, model)
    content = shown(study)
    text = render_html(content)
    page = check_offline(text)
    assert len([tag for tag, _ in page.tags if tag == "style"]) == 1
    text.encode("utf-8")
    printed = render(record(result)) + verdict_of(content.prediction)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e\ud800]", printed + text.replace("\n", ""))


@pytest.mark.parametrize("size", [1, 2, pytest.param(300, marks=pytest.mark.slow)])
def test_any_number_of_counts_and_phases(tmp_path: Path, size: int) -> None:
    many = [part(i, f"p{i}", 1.0, 0.0) for i in range(size)]
    rows = [row(2 + i, 8.0 / (1 + i), 8.0, phases=many) for i in range(size)]
    study = put_study(tmp_path / "study", prediction(counts=rows, knee=None))
    content = shown(study)
    check_offline(render_html(content))
    assert len(count_table(content.prediction).rows) == min(size, 60)
    shown_phases, phases_cut = phase_costs(content.prediction)
    assert (len(shown_phases), len(points_of(content.prediction))) == (min(size, 200), size)
    if size > 200:
        assert "100 more phases with 33.3 %" in phases_cut
    picture_of(content.prediction, "speedup").save(study.speedup_png_path)
    assert study.speedup_png_path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert render(made(counts=rows))


def test_unknown_intervals_are_drawn_without_a_band(tmp_path: Path) -> None:
    blank = dict.fromkeys(("low_s", "high_s", "speedup_low", "speedup_high"))
    rows = [{**entry, **blank} for entry in prediction()["counts"]]
    content = shown(put_study(tmp_path / "study", prediction(counts=rows)))
    text = render_html(content)
    assert ">interval</text>" not in text and "no interval is known" in text
    assert "unknown" in render(made(counts=rows))
    picture_of(content.prediction, "speedup").save(tmp_path / "x.png")


def test_zero_times_do_not_break_the_report(tmp_path: Path) -> None:
    zero = {
        "time_s": 0.0,
        "speedup": 0.0,
        "efficiency": 0.0,
        "model_s": 0.0,
        "compute_s": 0.0,
        "comm_s": 0.0,
        "speedup_low": 0.0,
        "speedup_high": 0.0,
        "low_s": 0.0,
        "high_s": 0.0,
        "phases": [],
    }
    rows = [{**entry, **zero} for entry in prediction()["counts"]]
    content = shown(put_study(tmp_path / "study", prediction(counts=rows)))
    check_offline(render_html(content))
    assert [row[2].strip() for row in count_table(content.prediction).rows] == ["0 s"] * 3
    assert [(p.speedup, p.model) for p in points_of(content.prediction)] == [(0.0, None)] * 3
    assert phase_costs(content.prediction)[0] == []
    assert "slower (0 s)" in verdict_of(content.prediction)
    picture_of(content.prediction, "speedup").save(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_without_prediction_the_next_step_is_named(tmp_path: Path) -> None:
    study = put_study(tmp_path / "study", prediction())
    study.prediction_path.unlink()
    with pytest.raises(P3SError, match="p3s predict"):
        shown(study)


def test_unmeasured_classes_are_listed(tmp_path: Path) -> None:
    study = put_study(tmp_path / "study", prediction(notes=["beware"]))
    write_json(
        study.replay_path(64),
        {
            "schema": "p3s.replay",
            "schema_version": REPLAY_VERSION,
            "n": 64,
            "unmeasured": [{"op": f"MPI_Op{i}", "bytes": 8} for i in range(7)],
        },
    )
    gaps = " | ".join(gaps_of(shown(study)))
    assert "beware" in gaps and "MPI_Op4" in gaps and "MPI_Op5" not in gaps and "2 more" in gaps


def test_verdict_sentence() -> None:
    text = verdict_of(made())
    assert "From 2 to 64 processes" in text and "8.00x as fast" in text
    assert "below 50 % at 64" in text
    twice = [*prediction()["counts"], row(128, 1.0, 8.0)]
    assert "below 50 % from 64 processes on" in verdict_of(made(counts=twice))
    assert "Phase sweep takes most of the time at 64 (70.0 %, mostly computation)" in text
    slower = [row(2, 1.0, 1.0), row(4, 3.0, 1.0)]
    assert "becomes slower (1.00 s to 3.00 s, within 12 %)" in verdict_of(made(counts=slower))
    good = [row(2, 8.0, 8.0), row(4, 4.1, 8.0)]
    assert "stays above" in verdict_of(made(counts=good, knee=None))
    dip = [row(2, 8.0, 8.0), row(3, 20.0, 8.0), row(4, 4.1, 8.0)]
    assert "below 50 % at 3 processes, above it later" in verdict_of(made(counts=dip))


def test_verdict_of_doubtful_times_says_so_first_and_names_no_knee() -> None:
    shared = reason("not-representative", "at 64 processes ranks shared cores", "take more nodes")
    text = verdict_of(made(reasons=[shared, reason("superlinear", "it is 300 %")]))
    assert text.startswith(
        "Do not rely on this prediction: message costs were not measured as in a real run, and an "
        "efficiency is implausibly high. To get one you can rely on: take more nodes. Taken at "
        "face value: from 2 to 64 processes"
    )
    assert "Efficiency" not in text and "50 %" not in text
    one = [row(4, 1.0, 1.0)]
    assert "Taken at face value: at 4 processes" in verdict_of(made(counts=one, reasons=[shared]))
    mind = made(reasons=[{**shared, "untrustworthy": False}])
    assert verdict_of(mind).startswith("From 2 to 64 processes")


def test_a_typical_network_is_named() -> None:
    network = {"name": "eth10", "label": "10 Gbit/s Ethernet cluster", "source": "typical"}
    text = verdict_of(made(network=network))
    assert "The times are for a typical 10 Gbit/s Ethernet cluster." in text
    assert "typical" not in verdict_of(made(network={**network, "source": "measured"}))
    assert "typical" not in verdict_of(made(network=None))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 s"),
        (3e-9, "3.00 ns"),
        (1.5e-6, "1.50 µs"),
        (0.0123, "12.3 ms"),
        (0.99996, "1.00 s"),
        (1.0, "1.00 s"),
        (99.96, "100 s"),
        (12345.6, "12,346 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_shares_and_factors() -> None:
    assert percent(0.0001) == "<0.1 %" and percent(0.0) == "0.0 %" and percent(1.0) == "100.0 %"
    assert factor(None) == "–" and factor(12.34) == "12.3x"
    assert factor(0.00661) == "0.0066x" and factor(0.5) == "0.50x" and factor(0.0) == "0.00x"


def test_control_characters_become_visible() -> None:
    assert visible("a\x1b[0m\u202e\ud800") == r"a\x1b[0m\u202e\ud800"
    assert visible("x" * 300, 10) == "x" * 10 + "…"


def test_what_is_not_representative_is_marked(tmp_path: Path) -> None:
    rows = prediction()["counts"]
    rows[2]["model_representative"] = False
    shared = reason("shared-cores", "4 ranks shared 2 cores", "", False)
    result = prediction(counts=rows, reasons=[shared])
    text = render(record(result))
    assert "1.00 s*" in text and "(30.0 s)" in text and "8.00 s*" not in text
    assert "communication was not measured as in a real run" in text
    assert "asterisk" not in render(made()) and "rests on" not in render(made())
    content = shown(put_study(tmp_path / "study", result))
    words = " ".join(" ".join(Page(render_html(content)).words).split())
    assert "Mind that 4 ranks shared 2 cores" in words


def test_the_account_of_events_and_time_is_in_the_report(tmp_path: Path) -> None:
    study = put_study(tmp_path / "study", prediction())
    assert "There is no account of the traced runs" in render_html(shown(study))
    tables = [corpus.table(corpus.jacobi2d(97, 61, 3), n) for n in (2, 4, 8)]
    write_json(study.phases_path, PHASES.data(phases_of(structure(tables))))
    content = shown(study)
    page = check_offline(render_html(content))
    account = account_of(content.phases).tables[0].rows
    parts = [cells[1] for cells in account]
    assert parts[:5] == [
        "start of the program",
        "relevant phases",
        "the rest",
        "end of the program",
        "all",
    ]
    for k in range(0, len(parts), 5):
        events = [int(cells[2].replace(",", "")) for cells in account[k : k + 5]]
        assert sum(events[:4]) == events[4] > 0
    words = " ".join(" ".join(page.words).split())
    assert "start of the program" in words and "n calls that all counts have: 100.0 %" in words


@pytest.mark.parametrize("name", ["empty", "one-phase", "300-calls", "hostile", "halo3d"])
def test_any_model_makes_a_report(tmp_path: Path, name: str) -> None:
    model = models.ALL[name]()
    text = render_html(shown(put_study(tmp_path / "study", prediction(), model=model)))
    page = check_offline(text)
    words = " ".join(" ".join(page.words).split())
    rows = sum(tag == "tr" for tag, _ in page.tags)
    assert rows > len(model.items) / 2, "every rule is in the report"
    if name == "halo3d":
        assert "Worth tracing next" in words and "36 processes (4x3x3): " in words
        assert "ambiguous" in words
    if name == "300-calls":
        assert "more rules with less share" in words
