"""The report in a real browser: no console message, no request, both themes, hostile names.

Chromium is driven by Playwright; the tests are left out, with a reason, where one is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import models
import pytest
from made_predictions import made_prediction, reason, record
from report_studies import HOSTILE, hostile_prediction, put_study

from p3s.methods.threads import page as teams_page
from p3s.pipeline.content import content_of
from p3s.pipeline.records import model_record
from p3s.predict.surface import Cell, Surface
from p3s.predict.types import Reason
from p3s.report import surface as surfaces
from p3s.report.charts.curves import comparison
from p3s.report.charts.figures import on_page
from p3s.report.compare import compare, page_of
from p3s.report.html import render_page, write_html
from p3s.report.show import Page, Part, PartTable

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = (
    os.environ.get("P3S_CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        try:
            found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        except sync_api.Error as err:
            pytest.skip(f"{CHROMIUM} does not start: {str(err).splitlines()[0]}")
        yield found
        found.close()


class Opened:
    """A page opened from disk, with all it said and asked for."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def check_quiet(self, path: Path) -> None:
        """Assert that nothing but the file was asked for, and nothing was said."""
        assert self.said == []
        assert [url.partition("#")[0] for url in self.asked] == [path.as_uri()] * len(self.asked)
        self.context.close()

    def colour(self, selector: str, what: str = "background-color") -> str:
        """Return a computed colour."""
        return str(
            self.page.eval_on_selector(
                selector, f"e => getComputedStyle(e).getPropertyValue('{what}')"
            )
        )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of one phase, of a handful, of 250, of hostile names; a comparison, and threads."""
    root = tmp_path_factory.mktemp("pages")
    many = tuple(2**k for k in range(1, 11))
    made = {
        "few": (made_prediction(), None),
        "one": (made_prediction((8,), 1), models.one_phase()),
        "huge": (made_prediction(many, 250), models.many()),
        "hostile": (hostile_prediction(), models.hostile()),
        "doubtful": (
            made_prediction(
                representative=False, reasons=[reason("wide", "nobody knows", "run it")]
            ),
            None,
        ),
    }
    found = {}
    for name, (prediction, model) in made.items():
        study = put_study(root / name, prediction, model=model)
        write_html(content_of(model_record(study), record(prediction)), study.report_path)
        found[name] = study.report_path
    both = compare(*(record(made_prediction(phases=k)) for k in (3, 4)), names=("a", "b"))
    named = [replace(pair, name="Irecv+Isend+Waitall+Allreduce") for pair in both.phases]
    both = replace(both, phases=named)
    found["compare"] = root / "compare.html"
    page = page_of(both, partial(on_page, partial(comparison, found=both)))
    found["compare"].write_text(render_page(page))
    found["threads"] = root / "threads.html"
    teams_page.write_page(over_threads(), found["threads"])
    return found


def over_threads() -> Page:
    """Return what the report of several numbers of threads says, of a made surface."""
    cells = tuple(
        Cell(
            n=n, threads=threads, per_node=8, nodes=1, time_s=1.0 / (n * threads), low_s=None,
            high_s=None, time_from="model", compute_s=1.0, compute_low_s=1.0, compute_high_s=1.0,
            comm_s=0.1, comm_low_s=0.1, comm_high_s=0.1, work_s=1.0, measured_s=None, speedup=1.0,
            efficiency=1.0, cost_core_h=0.1, doubtful=False, trusted=False, traced=threads < 8,
        )
        for n in (2, 16, 64, 256)
        for threads in (1, 2, 4, 8)
    )  # fmt: skip
    wide = Reason("wide", "nobody knows", "run it")
    surface = Surface(
        setting="", cores_per_node=16, base=(2, 1), network="", cells=cells, reasons=(wide,),
        notes=(),
    )  # fmt: skip
    parts = "parallel 89.0 %, serial 8.7 %"
    laws = PartTable("Laws", ["phase", "threads", "off by", "made of"], [["1", "1", "1 %", parts]])
    return Page(
        title="hybrid",
        command="mpiexec -n {np} ./hybrid",
        sentences=[surfaces.fastest(surface)],
        against=[wide],
        mind=[],
        warning="Do not rely on this prediction: nobody knows.",
        parts=[
            teams_page.times_part(surface, ""),
            Part("laws", "What threads change", "Messages do not depend on threads.", [laws]),
        ],
    )


def opened_tab(page: Any) -> list[str]:
    """Return the parts that show."""
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('.tab')].filter(e => e.offsetHeight).map(e => e.id)"
    )
    return found


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["few", "one", "huge", "hostile", "doubtful"])
def test_a_report_shows_without_a_request_and_without_a_message(
    browser: Any, pages: dict[str, Path], name: str, theme: str
) -> None:
    opened = Opened(
        browser, pages[name], color_scheme=theme, viewport={"width": 1280, "height": 900}
    )
    page = opened.page
    assert page.locator("h2").count() >= 8
    assert page.locator("svg.chart").count() >= (6 if name == "one" else 8)
    dark = opened.colour("body") == "rgb(16, 19, 24)"
    assert dark == (theme == "dark"), opened.colour("body")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    outside = page.evaluate("""() => [...document.querySelectorAll('svg.chart')].filter(svg =>
        svg.getClientRects().length && svg.getBoundingClientRect().width < 100).length""")
    assert outside == 0, "every chart that shows has a size"
    names = page.evaluate("() => [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(names) == len(set(names))
    soft = "rgb(155, 166, 180)" if dark else "rgb(89, 99, 111)"
    assert opened.colour("svg.chart text", "fill") == soft
    opened.check_quiet(pages[name])


def test_hostile_names_make_no_element(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["hostile"])
    found = opened.page.evaluate("""() => ({
        made: document.querySelectorAll('script, iframe, img, object, embed, link, form').length,
        styles: document.querySelectorAll('style').length,
        handlers: [...document.querySelectorAll('*')].filter(e => [...e.attributes].some(
            a => a.name.startsWith('on'))).length,
        hidden: getComputedStyle(document.querySelector('h2')).display,
        text: document.body.textContent,
    })""")
    assert found["made"] == 1 and found["styles"] == 1 and found["handlers"] == 0
    assert found["hidden"] != "none", "a style in a name does nothing"
    assert HOSTILE[0] in found["text"] and "{{ 7*7 }}" in found["text"]
    opened.check_quiet(pages["hostile"])


def test_the_switch_beats_the_theme_of_the_system(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], color_scheme="light")
    light = opened.colour("body")
    opened.page.click("label[for=theme-dark]")
    dark = opened.colour("body")
    assert light == "rgb(246, 247, 249)" and dark == "rgb(16, 19, 24)"
    opened.page.emulate_media(color_scheme="dark")
    opened.page.click("label[for=theme-light]")
    assert opened.colour("body") == light
    opened.page.click("label[for=theme-auto]")
    assert opened.colour("body") == dark
    opened.check_quiet(pages["few"])


def test_measures_switch_and_numbers_show_on_hover(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], viewport={"width": 1280, "height": 900})
    page = opened.page
    shown = (
        "() => [...document.querySelectorAll('.panel')].filter(e => e.offsetHeight).map(e => e.id)"
    )
    assert page.evaluate(shown) == ["panel-core"]
    page.click("label[for=measure-time]")
    assert page.evaluate(shown) == ["panel-time"]
    marked = (
        "() => [...document.querySelectorAll('.hit path')].filter("
        "e => getComputedStyle(e).opacity > 0.1).map(e => e.parentNode.textContent)"
    )
    assert page.evaluate(marked) == []
    page.locator("svg.chart").first.locator(".hit").nth(3).hover()
    found = page.evaluate(marked)
    assert len(found) == 1 and found[0].startswith("32 processes, predicted")
    opened.check_quiet(pages["few"])


def test_formulas_are_set_as_mathematics(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], viewport={"width": 1280, "height": 900})
    opened.page.click("nav a[href='#paths']")
    sizes = opened.page.evaluate("""() => [...document.querySelectorAll('.laws mfrac')].map(e => {
        const [over, under] = [...e.children].map(c => c.getBoundingClientRect());
        return [e.getBoundingClientRect().height, under.top - over.top];})""")
    assert sizes and all(height > 15 and below > 5 for height, below in sizes)
    opened.check_quiet(pages["few"])


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["few", "one", "huge"])
def test_nothing_in_a_table_runs_over_its_cell(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    opened = Opened(browser, pages[name], viewport={"width": width, "height": 900})
    over = opened.page.evaluate("""() => {
        document.querySelectorAll('details').forEach(e => e.open = true);
        document.querySelectorAll('.tab').forEach(e => e.hidden = false);
        const found = [];
        for (const cell of document.querySelectorAll('td, th')) {
            const box = cell.getBoundingClientRect();
            for (const part of cell.children)
                if (part.getBoundingClientRect().right > box.right + 1)
                    found.push(cell.textContent.slice(0, 60));
            if (cell.scrollWidth > cell.clientWidth + 1) found.push(cell.textContent.slice(0, 60));
        }
        return found;}""")
    assert over == []
    opened.check_quiet(pages[name])


@pytest.mark.parametrize("name", ["few", "hostile", "huge", "compare", "threads"])
def test_a_narrow_window_scrolls_tables_only(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    opened = Opened(browser, pages[name], viewport={"width": 390, "height": 800})
    assert opened.page.evaluate("""() => [...document.querySelectorAll('nav a')].every(tab => {
        tab.click();
        return document.documentElement.scrollWidth <= 390;})""")
    opened.check_quiet(pages[name])


@pytest.mark.parametrize("name", ["few", "huge"])
def test_paper_holds_equations_and_verdicts(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    opened = Opened(browser, pages[name], viewport={"width": 720, "height": 1000})
    opened.page.emulate_media(media="print")
    over = opened.page.evaluate("""() => {
        document.querySelectorAll('details').forEach(e => e.open = true);
        return [...document.querySelectorAll('.rules td')].filter(cell =>
            !cell.matches(':has(math)') && cell.getBoundingClientRect().right > innerWidth + 1)
            .map(cell => cell.textContent.slice(0, 60));}""")
    assert over == []
    opened.check_quiet(pages[name])


#: How many lines each piece of a phase's name takes, where that is several: pieces are calls.
_TORN = """() => [...document.querySelectorAll('.beside td.name:first-child')].flatMap(cell => {
    const found = [];
    for (const node of cell.childNodes) {
        const range = document.createRange();
        if (node.nodeType !== Node.TEXT_NODE) continue;
        range.selectNodeContents(node);
        if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1)
            found.push(node.textContent);
    }
    return found;})"""


def test_names_on_paper_break_between_calls(browser: Any, pages: dict[str, Path]) -> None:
    """Where laws leave names little room: Irecv+Isend+Waitall+Allreduce, not Allredu-ce."""
    opened = Opened(browser, pages["compare"], viewport={"width": 718, "height": 1000})
    opened.page.emulate_media(media="print")
    opened.page.evaluate("""() => document.querySelectorAll('.beside td:nth-last-child(-n+2)')
        .forEach(cell => cell.textContent = '1.672/n + 0.01588*log2(n)/n + '.repeat(4))""")
    assert opened.page.evaluate(_TORN) == []
    opened.check_quiet(pages["compare"])


def test_print_is_light_and_without_controls(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], color_scheme="dark")
    page = opened.page
    page.click("label[for=theme-dark]")
    page.emulate_media(media="print")
    assert opened.colour("body") == "rgb(255, 255, 255)"
    assert not page.locator("header.top").is_visible()
    page.emulate_media(media="screen")
    data = page.pdf(format="A4")
    assert data.startswith(b"%PDF") and 2 <= data.count(b"/Type /Page\n") <= 12
    opened.check_quiet(pages["few"])


def test_tabs_by_pointer_by_keys_and_by_address(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], viewport={"width": 1280, "height": 900})
    page = opened.page
    assert opened_tab(page) == ["overview"]
    page.click("nav a[href='#scaling']")
    assert opened_tab(page) == ["scaling"]
    page.keyboard.press("ArrowRight")
    assert opened_tab(page) == ["paths"]
    page.keyboard.press("End")
    assert opened_tab(page) == ["origin"]
    page.keyboard.press("ArrowRight")
    assert opened_tab(page) == ["overview"], "behind the last one is the first one"
    assert page.locator("nav [aria-selected=true]").inner_text() == "Overview"
    page.evaluate("location.hash = '#gaps'")
    page.wait_for_function("!document.querySelector('#confidence').hidden")
    assert opened_tab(page) == ["confidence"], "an address opens what it is in"
    page.emulate_media(media="print")
    assert len(opened_tab(page)) >= 6, "on paper everything shows"
    opened.check_quiet(pages["few"])


def test_without_scripts_it_is_one_page(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], java_script_enabled=False)
    assert opened.page.locator(".tab:visible").count() >= 6
    assert opened.page.locator(".tools, button").count() == 0, "no control that does nothing"
    opened.page.click("nav a[href='#confidence']")
    assert opened.page.url.endswith("#confidence")
    opened.context.close()


def path_rows(page: Any) -> list[str]:
    """Return the names of the rows of the call paths that show."""
    found: list[str] = page.evaluate("""() => [...document.querySelectorAll('.paths tbody tr')]
        .filter(e => e.offsetHeight).map(e => e.cells[0].innerText.split('\\n')[0].trim())""")
    return found


def test_call_paths_are_searched_sorted_and_folded(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], viewport={"width": 1280, "height": 900})
    page = opened.page
    page.click("nav a[href='#paths']")
    before = path_rows(page)
    assert before[0].startswith("whole program") and len(before) == 6
    page.fill("input[type=search]", "allred")
    assert [row.split()[0] for row in path_rows(page)] == ["whole", "Allreduce"]
    assert page.locator(".tools [role=status]").inner_text() == "1 of 6 rows"
    page.fill("input[type=search]", "")
    head = page.locator(".paths th", has_text="MPI")
    column = head.evaluate("e => e.cellIndex")
    for order, turned in (("descending", True), ("ascending", False)):
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == order
        values = page.evaluate(
            "c => [...document.querySelectorAll('.paths tbody tr')].slice(1)"
            ".map(e => Number(e.cells[c].dataset.v))",
            column,
        )
        assert values == sorted(values, reverse=turned)
    page.locator(".paths th button").first.click()
    assert path_rows(page) == before, "by their place in the program again"
    page.locator(".fold").first.click()
    assert len(path_rows(page)) == 1
    opened.check_quiet(pages["few"])


def test_the_flame_graph_is_walked_with_keys(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], viewport={"width": 1280, "height": 900})
    page = opened.page
    page.click("nav a[href='#paths']")
    assert page.locator(".flame [tabindex='0']").count() == 1, "one stop of the tab key"
    page.locator(".flame [tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    now = "() => document.activeElement.getAttribute('aria-label')"
    first = page.evaluate(now)
    assert "phase 2" in first and page.locator(".told").inner_text() == first
    page.keyboard.press("ArrowRight")
    assert "phase 1" in page.evaluate(now)
    page.keyboard.press("Enter")
    wide = "() => Number(document.activeElement.querySelector('rect').getAttribute('width'))"
    assert page.evaluate(wide) > 1000
    page.keyboard.press("Escape")
    assert page.evaluate(wide) < 1000
    opened.check_quiet(pages["few"])


AXE = "axe-core@4.10.3"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the script of axe, which knows the rules of WCAG; from the registry of npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, so that axe cannot be had")
    root = tmp_path_factory.mktemp("axe")
    try:
        done = subprocess.run(
            [npm, "pack", "--silent", "--cache", str(root / "cache"), AXE],
            cwd=root, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("the registry of npm does not answer")
    found = sorted(root.glob("axe-core-*.tgz"))
    if done.returncode or not found:
        pytest.skip(f"axe cannot be had: {done.stderr.strip()[:200]}")
    with tarfile.open(found[0]) as archive:
        file = archive.extractfile("package/axe.min.js")
        assert file is not None
        return file.read().decode()


#: What axe asks of every page, and of the same page in other colours.
RULES: dict[str, Any] = {
    "light": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"],
    "dark": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]},
}


@pytest.mark.parametrize("theme", RULES)
@pytest.mark.parametrize("name", ["few", "doubtful", "compare", "threads"])
def test_axe_finds_nothing_against_wcag_aa(
    browser: Any, pages: dict[str, Path], axe: str, name: str, theme: str
) -> None:
    opened = Opened(browser, pages[name], color_scheme=theme, bypass_csp=True)
    page = opened.page
    page.evaluate(axe)
    for tab in page.locator("nav a").all():
        tab.click()
        found = page.evaluate(
            """only => axe.run(document, {runOnly: only}).then(r => r.violations.map(
            v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 200),
            v.nodes[0].failureSummary]))""",
            RULES[theme],
        )
        assert found == [], tab.inner_text()
    opened.context.close()
