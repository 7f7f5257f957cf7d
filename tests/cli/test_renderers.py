"""Every way a prediction is shown, with empty, one-point, huge, partial and hostile predictions."""

from __future__ import annotations

import copy
import csv
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from made_predictions import made_prediction, reason, record

from p3s import Prediction
from p3s.base.errors import P3SError, UsageError
from p3s.base.text import seconds
from p3s.pipeline.saved import COUNT_COLUMNS, PHASE_COLUMNS
from p3s.report.charts import curves
from p3s.report.charts.figures import on_page
from p3s.report.compare import as_text, compare
from p3s.report.counts import columns_csv, count_table, counts_csv, phases_csv
from p3s.report.notebook import fragment
from p3s.report.pictures import FORMATS, PLOTS, format_of, picture_of, size_of
from p3s.report.terminal import render

Json = dict[str, Any]

NAMES = [
    "</text></svg><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "=1+cmd|' /C calc'!A0",
    "\x1b[31mred\x1b]0;title\x07",
    "abc\u202egnp.exe",
    "$\\frac{",
    "_hidden",
    "\ud800lone",
    "a\x00b",
    "x" * 5000,
    "日本語",
    "%s{0}{{x}}",
    "",
]


def nulled(data: Json) -> Json:
    """Return a prediction with everything null that may be."""
    for row in data["counts"]:
        for key in (
            "low_s",
            "high_s",
            "model_low_s",
            "model_high_s",
            "speedup_low",
            "speedup_high",
            "waiting_s",
            "transfer_s",
            "software_s",
            "measured_s",
            "measured_work_s",
        ):
            row[key] = None
        row["interval_parts"] = dict.fromkeys(row["interval_parts"])
        row.update(measured=False, time_from="model")
        for estimate in row["estimators"].values():
            estimate.update(dict.fromkeys(key for key in estimate if key.endswith("_s")))
        for phase in row["phases"]:
            for key in (
                "low_s",
                "high_s",
                "compute_low_s",
                "compute_high_s",
                "crm_i_s",
                "crm_c_s",
                "waiting_s",
                "transfer_s",
                "software_s",
            ):
                phase[key] = None
    for residual in data["residuals"]:
        residual["ratio"] = None
    return {
        **data,
        "knee": None,
        "recommended": None,
        "extrapolation_ratio": None,
        "limits": [{**limit, "n": None} for limit in data["limits"]],
        "traced_counts": [],
        "phase_laws": [],
        "verdict_share": {},
        "baseline_measured": False,
    }


def zeroed(data: Json) -> Json:
    """Return a prediction in which nothing takes any time."""

    def zero(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: 0.0
                if re.search(r"_s$|speedup|efficiency$|cost_core", key) and isinstance(entry, float)
                else zero(entry)
                for key, entry in value.items()
            }
        return [zero(entry) for entry in value] if isinstance(value, list) else value

    return {**data, "counts": zero(data["counts"])}


def hostile(data: Json) -> Json:
    """Return a prediction with the worst of names in every place that takes a text."""
    made = copy.deepcopy(data)
    for row in made["counts"]:
        for at, phase in enumerate(row["phases"]):
            phase["name"] = NAMES[at % len(NAMES)]
        row["estimators"] = {
            name[:40]: {**row["estimators"]["machine"], "notes": [name]} for name in NAMES
        }
    for limit, name in zip(made["limits"], NAMES, strict=False):
        limit.update(name=name, text=name)
    made.update(
        estimator=NAMES[0],
        estimator_why=NAMES[1],
        notes=NAMES,
        reasons=[reason(name, name, name) for name in NAMES],
        not_modelled=NAMES,
        verdict_share={name: {"events": 0.1} for name in NAMES},
    )
    return made


MADE: dict[str, Json] = {
    "usual": made_prediction(),
    "one point": made_prediction((8,), 1),
    "no phases": made_prediction((4, 8), 0),
    "nothing measured": made_prediction(measured=()),
    "shared cores": made_prediction(representative=False),
    "partial": nulled(made_prediction()),
    "partial, one point": nulled(made_prediction((4,), 1)),
    "zero": zeroed(made_prediction()),
    "no limits": made_prediction(limits=[], phase_laws=[], residuals=[], notes=[], not_modelled=[]),
    "empty": made_prediction((4,), 1, limits=[], phase_laws=[], residuals=[]),
    "150 phases": made_prediction((4, 64, 1024), 150),
    "200 counts": made_prediction(tuple(range(4, 204)), 2),
    "hostile": hostile(made_prediction((4, 8, 64), 20)),
}
MADE["empty"]["counts"][0].update(phases=[], estimators={})


TEXTS: dict[str, Callable[[Json], str]] = {
    "terminal": lambda data: render(record(data)),
    "all of it": lambda data: render(record(data), verbose=True),
    "notebook": lambda data: fragment(record(data)),
    "csv of counts": lambda data: counts_csv(Prediction.of(data)),
    "csv of phases": lambda data: phases_csv(Prediction.of(data)),
    "compare": lambda data: as_text(compare(record(data), record(data))),
    "repr": lambda data: repr(Prediction.of(data)),
    "json": lambda data: Prediction.of(data).to_json(),
}


@pytest.mark.parametrize("renderer", TEXTS)
@pytest.mark.parametrize("name", MADE)
def test_texts(renderer: str, name: str) -> None:
    text = TEXTS[renderer](MADE[name])
    text.encode("utf-8")
    assert "nan" not in re.sub(r"[a-z]nan|nan[a-z]", "", text.lower())
    if renderer not in ("json", "csv of phases"):
        limit = 6_000 if name in ("usual", "one point") else 20_000
        assert 20 < len(text) < (4 * limit if renderer in ("notebook", "csv of counts") else limit)
    if renderer in ("terminal", "compare", "repr"):
        assert all(line.isprintable() for line in text.split("\n"))
        assert max(map(len, text.split("\n"))) < 1100  # a command is never broken in two


#: Predictions that differ in what a picture shows, each with the plots that show it.
DRAWN = {
    "partial, one point": list(PLOTS),
    "zero": list(PLOTS),
    "hostile": ["phases"],
    "150 phases": ["phases", "parts"],
    "200 counts": ["speedup", "phases"],
    "no phases": ["parts", "phases"],
    "partial": ["efficiency", "parts"],
    "empty": ["parts", "time"],
}


@pytest.mark.parametrize("name", DRAWN)
def test_every_plot(tmp_path: Path, name: str) -> None:
    for plot in DRAWN[name]:
        path = tmp_path / f"{plot}.png"
        picture_of(record(MADE[name]), plot, (5.0, 2.5)).save(path)
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 2000


@pytest.mark.parametrize("name", ["usual", "hostile"])
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_and_the_same_bytes_again(tmp_path: Path, name: str, kind: str) -> None:
    first, second = tmp_path / f"a.{kind}", tmp_path / f"b.{kind}"
    picture_of(record(MADE[name]), "phases").save(first)
    picture_of(record(MADE[name]), "phases").save(second)
    data = first.read_bytes()
    assert data == second.read_bytes()
    if kind == "svg":
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(data).iter()}
        assert "path" in tags and not tags & {"script", "image", "style", "foreignObject", "a"}
        assert {link[:1] for link in re.findall(rb'href="([^"]*)"', data)} <= {b"#"}
    if kind == "pdf":
        assert data.startswith(b"%PDF-1.") and b"/CreationDate" not in data
        fonts = re.findall(rb"/Type /FontDescriptor\b", data)
        assert fonts and data.count(b"/FontFile2") == len(fonts), "every font is in the file"


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("name", MADE)
def test_what_a_notebook_shows_is_static(name: str) -> None:
    page = _Tags(Prediction.of(MADE[name])._repr_html_())
    texts, shapes = "div p b table thead tbody tr th td", "svg g defs title text path use"
    assert set(page.tags) <= {*texts.split(), *shapes.split(), "pattern", "clippath", "rect"}
    assert not {attr for attr in page.attributes if attr.startswith("on")}
    assert not page.attributes & {"src", "style", "xlink:href"}
    links = re.findall('href="([^"]*)"', Prediction.of(MADE[name])._repr_html_())
    assert {link[:1] for link in links} <= {"#"}


def test_csv_holds_every_number_and_runs_nothing() -> None:
    made = Prediction.of(MADE["hostile"])
    rows = list(csv.DictReader(io.StringIO(counts_csv(made))))
    assert list(rows[0]) == list(COUNT_COLUMNS)
    assert [float(row["time_s"]) for row in rows] == [row["time_s"] for row in made.data["counts"]]
    assert rows[-1]["measured_s"] == "" and rows[0]["representative"] == "true"
    phases = list(csv.DictReader(io.StringIO(phases_csv(made), newline="")))
    assert list(phases[0]) == ["n", *PHASE_COLUMNS] and len(phases) == 3 * 22
    names = [row["name"] for row in phases]
    assert "'=1+cmd|' /C calc'!A0" in names and "a\\x00b" in names and "日本語" in names
    assert not any(name.lstrip().startswith(("=", "+", "-", "@")) for name in names)
    assert columns_csv({"a": ["-1", "@x", " =2"], "b": [-1.5, None, True]}) == (
        "a,b\n'-1,-1.5\n'@x,\n' =2,true\n"
    )


def test_the_terminal_says_the_result_first_and_what_limits() -> None:
    lines = render(record()).splitlines()
    assert lines[0].startswith("From 4 to 512 processes the program becomes 33.3x as fast")
    assert len(lines[0].split()) <= 20 and len(lines) < 24
    table = [line.split()[0] for line in lines if re.match(r" +\d+ +~?[\d.]+ m?s", line)]
    assert table == ["4", "8", "16", "32", "64", "128", "256", "512"]
    text = render(record(), verbose=True)
    assert (
        "of the core time lost at 512 processes is in Allreduce, mostly waiting; alone it keeps "
        "efficiency below 50.0 % from 512 processes on"
    ) in " ".join(text.split())
    assert "Communication by simulation: costs of messages were measured" in text
    for name in ("machine", "thesis"):
        time = seconds(MADE["usual"]["counts"][-1]["estimators"][name]["time_s"])
        assert re.search(rf"^ +{name} .* {time} ", text, re.MULTILINE)
    assert re.search(r"^ +16  run time .* 1.03\d$", text, re.MULTILINE)
    assert "not included: MPI_File_write_all" in text


def test_the_terminal_counts_what_it_leaves_out() -> None:
    text = render(record(MADE["200 counts"]))
    assert "12 of 200 counts; p3s report --csv has all" in text
    many = made_prediction(notes=[f"note {k}" for k in range(40)])
    assert "note: 28 more are in prediction.json" in render(record(many), verbose=True)
    assert render(record(many), verbose=True).count("note: note ") == 12
    assert "notes: 42, on the page" in render(record(many), more="on the page")


def test_marks_in_the_terminal() -> None:
    text = render(record(MADE["shared cores"]))
    assert "(...) measured, but not as in a real run" in text and "*     communication was" in text
    assert text.startswith("Do not rely on this prediction: message costs were not measured as")
    assert "(...)" not in render(record()) and "rests on" not in render(record())
    assert "unknown" in render(record(MADE["partial"]))


def test_sizes_and_formats() -> None:
    assert size_of("3.4x2.4") == (3.4, 2.4)
    with pytest.raises(UsageError, match="3.4x2.4"):
        size_of("")
    assert format_of(Path("a.b.PDF")) == "pdf"
    for name in ("a", "a.gif", "a.png.txt", ".svg"):
        with pytest.raises(UsageError, match="ends with .png, .svg, .pdf"):
            format_of(Path(name))


def test_a_picture_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(P3SError, match="cannot be written"):
        picture_of(record(), "speedup").save(tmp_path / "file" / "x.png")


def test_pictures_and_csv_of_the_command(tmp_path: Path) -> None:
    from test_report import put_study

    study = put_study(tmp_path / "study", MADE["usual"])
    one, two = str(tmp_path / "speedup.pdf"), str(tmp_path / "parts.svg")
    page = str(tmp_path / "page.html")
    both = ["--picture", one, "--plot", "speedup", "--picture", two, "--plot", "parts"]
    found = cli(f"report {study.root} -o", page, *both, "--size", "3.4x2.4", "--json").data
    assert found["pictures"] == [one, two] and found["report"] == page
    assert found["prediction"] == MADE["usual"]
    assert Path(one).read_bytes()[:4] == b"%PDF" and Path(two).read_bytes()[:5] == b"<?xml"
    assert "<html" in Path(page).read_text()
    before = sorted(study.root.iterdir())
    rows = list(csv.DictReader(io.StringIO(cli(f"report {study.root} --csv --phases").out)))
    assert len(rows) == 8 * 5 and rows[0]["kind"] == "start"
    assert len(cli(f"report {study.root} --csv").out.splitlines()) == 9
    assert sorted(study.root.iterdir()) == before


# ---- what is not to be trusted ---------------------------------------------------------------
WARNED = made_prediction(reasons=[reason("superlinear", "the efficiency is 300 %", "trace again")])


@pytest.mark.parametrize("plot", PLOTS)
def test_pictures_say_that_they_are_not_to_be_trusted(plot: str, tmp_path: Path) -> None:
    """The words stand in the picture and it is hatched; neither is so of one that is trusted."""
    for made, warned in ((WARNED, True), (MADE["usual"], False)):
        picture_of(record(made), plot).save(tmp_path / "x.svg")
        text = (tmp_path / "x.svg").read_text()
        assert ("Do not rely on this prediction: an efficiency is" in text) is warned
        assert ("<pattern" in text) is warned, "hatching"


def test_charts_and_notebooks_say_so_too() -> None:
    words = "Do not rely on this prediction: an efficiency is implausibly high."
    for draw in (curves.speedup, curves.efficiency):
        chart, trusted = (
            on_page(partial(draw, prediction=record(made))) for made in (WARNED, MADE["usual"])
        )
        assert words.split(":")[0] in chart and "<pattern" in chart
        assert "not to be trusted" in chart and "worth using" not in chart
        assert "<pattern" not in trusted and "worth using" in trusted
    assert set(count_table(record(WARNED)).row_kinds) == {""}
    assert "recommended" in count_table(record()).row_kinds
    page = Prediction.of(WARNED)._repr_html_()
    assert page.startswith(
        f"<div><p><b>{words}</b></p><p>superlinear: the efficiency is 300 %; "
        "trace again</p><p>Taken at face value: from 4"
    )
    assert page.count("<pattern") == 1 and page.count("Do not rely on this prediction") == 2
    assert "<pattern" not in Prediction.of(MADE["usual"])._repr_html_()


def test_a_terminal_gives_three_reasons_and_one_thing_to_do() -> None:
    made = made_prediction(
        reasons=[
            reason("superlinear", "the efficiency is 300 %", "trace 4 again"),
            reason("wide", "the run time at 512 processes is not known", "measure messages"),
            reason("shared-cores", "ranks shared cores", "trace with more cores", False),
        ]
    )
    text = render(record(made))
    head, _, below = text.partition("\n\n")
    assert head.startswith("Do not rely on this prediction: an efficiency")
    assert "superlinear: the efficiency is 300 %\n    to do: trace 4 again" in below
    assert "wide: the run time at 512" in below and below.count("to do:") == 1
    everything = render(record(made), verbose=True)
    assert "Taken at face value: from 4 to 512 processes" in everything
    assert "caution: ranks shared cores\n    to do: trace with more cores" in everything


def test_an_interval_that_says_nothing_is_not_shown_as_if_it_did() -> None:
    made = made_prediction((4, 8))
    for row in made["counts"]:
        row.update(low_s=row["time_s"] / 3, high_s=row["time_s"] * 12, time_from="model")
    text = render(record(made))
    assert "unknown (36x)" in text and "4.46 s to" not in text
    assert "(not known within a factor of 36)" in render(
        record({**made, "counts": made["counts"][1:], "baseline_n": 8, "knee": None})
    )


@pytest.mark.parametrize("plot", PLOTS)
def test_pictures_name_the_network(plot: str, tmp_path: Path) -> None:
    network = {"name": "eth10", "label": "10 Gbit/s Ethernet cluster", "source": "typical"}
    for made, there in ((made_prediction(network=network), True), (made_prediction(), False)):
        picture_of(record(made), plot).save(tmp_path / "x.svg")
        drawn = (tmp_path / "x.svg").read_text()
        assert ("for a typical 10 Gbit/s Ethernet cluster" in drawn) is there
