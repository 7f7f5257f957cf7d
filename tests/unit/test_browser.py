"""The report in a real browser: no console message, no request, both themes, hostile names.

Chromium is driven by Playwright; the tests are left out, with a reason, where one is missing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import models
import pytest
from made_predictions import made_prediction, reason, record
from report_studies import HOSTILE, hostile_prediction, put_study

from p3s.report.html import write_html
from p3s.report.view import view_of

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
        assert self.asked == [path.as_uri()]
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
    """Reports of one phase, of a handful, of 500, and of hostile names."""
    root = tmp_path_factory.mktemp("pages")
    many = tuple(2**k for k in range(1, 11))
    made = {
        "few": (made_prediction(), None),
        "one": (made_prediction((8,), 1), models.one_phase()),
        "huge": (made_prediction(many, 500), models.many()),
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
        write_html(view_of(study, record(prediction)), study.report_path)
        found[name] = study.report_path
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
    assert found["made"] == 0 and found["styles"] == 1 and found["handlers"] == 0
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
    tips = (
        "() => [...document.querySelectorAll('.tip')].filter("
        "e => getComputedStyle(e).visibility == 'visible').map(e => e.textContent)"
    )
    assert page.evaluate(tips) == []
    page.locator("svg.chart").first.locator(".catch").nth(3).hover()
    found = page.evaluate(tips)
    assert len(found) == 1 and found[0].startswith("32 processes, predicted")
    opened.check_quiet(pages["few"])


def test_formulas_are_set_as_mathematics(browser: Any, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["few"], viewport={"width": 1280, "height": 900})
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


@pytest.mark.parametrize("name", ["few", "hostile", "huge"])
def test_a_narrow_window_scrolls_tables_only(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    opened = Opened(browser, pages[name], viewport={"width": 390, "height": 800})
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    opened.check_quiet(pages[name])


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
