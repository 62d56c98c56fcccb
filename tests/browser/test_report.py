"""The report as a reader meets it: drawn, sorted, tabbed through, narrow, dark, printed, and without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Locator, Page, expect

from shiftproof.reports import html
from shiftproof.reports.view import Column, Figure, Table, View
from tests.browser.conftest import Opener, Visit
from tests.reports.sample_views import CORRUPTIONS, masthead, views

pytestmark = pytest.mark.browser

HOSTILE = "<script>alert(1)</script>"
FIGURES = [block for view in views() for block in view.blocks if isinstance(block, Figure)]
LIGHT_PAPER, DARK_PAPER = "rgb(253, 253, 251)", "rgb(20, 23, 26)"
LIGHT_MUTED, DARK_MUTED = "rgb(89, 98, 107)", "rgb(163, 171, 179)"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    html.write(path, masthead(), views())
    return path


# Reading Plotly takes a page a second or two, so tests share pages; each leaves alone what the others look at.


@pytest.fixture(scope="module")
def desk(chromium: Browser, sample: Path) -> Iterator[Page]:
    """Return the sample in a wide window."""
    with closing(Visit(chromium, sample)) as opened:
        yield opened.page


@pytest.fixture(scope="module")
def night(chromium: Browser, sample: Path) -> Iterator[Page]:
    """Return the sample where the system asks for dark colours."""
    with closing(Visit(chromium, sample, color_scheme="dark")) as opened:
        yield opened.page


@pytest.fixture(scope="module")
def hostile(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """Return a report with a class whose name is a script and has no place to break a line."""
    path = tmp_path_factory.mktemp("report") / "hostile.html"
    html.write(path, masthead(), views(class_name=HOSTILE + "W" * 150))
    with closing(Visit(chromium, path)) as opened:
        yield opened


def test_draws_every_chart_when_it_comes_near_and_asks_for_nothing(visit: Opener, sample: Path) -> None:
    opened = visit(sample)
    charts = opened.page.locator(".chart")
    expect(charts).to_have_count(len(FIGURES))
    assert marks(charts.last) == 0
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".modebar-btn")).to_have_count(1)  # no button sends the data anywhere
        assert marks(chart) > 0
    assert opened.errors == []
    assert opened.outside() == []


def test_measures_in_tiles_can_be_pointed_at(desk: Page) -> None:
    desk.evaluate("scrollTo(0, 0)")
    measures = desk.locator(".tiles abbr")
    assert measures.count() > 0
    for measure in measures.all():
        measure.hover(trial=True, timeout=3000)  # raises where something else lies above it


def test_the_first_window_holds_the_verdict(desk: Page) -> None:
    desk.evaluate("scrollTo(0, 0)")
    expect(desk.locator(".verdict li")).to_have_count(6)
    expect(desk.locator(".tiles li")).to_have_count(6)
    expect(desk.locator(".verdict .level")).to_have_text(["good", "bad", "bad", "watch", "good", "watch"])
    for sentence in desk.locator(".verdict a").all():
        expect(sentence).to_be_in_viewport()
    desk.get_by_role("link", name="A chain of five colour edits").click()
    expect(desk.get_by_role("heading", name="Worst-case transformations")).to_be_in_viewport()
    expect(desk.locator("nav a[aria-current]")).to_have_text("Worst-case transformations")


def test_tables_behind_charts_open(desk: Page) -> None:
    table = desk.get_by_role("table", name="Accuracy by class")
    expect(table).to_be_hidden()
    desk.get_by_text("Table: Accuracy by class").click()
    expect(table).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(11)


def test_tables_sort_by_any_column_with_mouse_or_keys(desk: Page) -> None:
    table = desk.locator("table.heat")
    header = table.get_by_role("columnheader", name="5", exact=True)
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert (_first_column(table)[0], _first_column(table)[-1]) == ("contrast", "frost")  # frost's cell is empty
    header.get_by_role("button").focus()
    desk.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    assert (_first_column(table)[0], _first_column(table)[-1]) == ("brightness", "frost")
    table.get_by_role("button", name="Corruption").click()
    assert _first_column(table) == sorted(name.replace("_", " ") for name in CORRUPTIONS)
    expect(table.locator("[aria-sort]")).to_have_count(1)


def test_verdict_and_next_steps_are_on_the_first_screen(desk: Page) -> None:
    desk.evaluate("scrollTo(0, 0)")
    for step in desk.locator("aside li").all():
        expect(step).to_be_in_viewport(ratio=1)
    desk.get_by_role("complementary").get_by_role("link", name="Train with AugMix").click()
    expect(desk.get_by_role("heading", name="Train with AugMix")).to_be_in_viewport()
    desk.mouse.move(1, 1)


def test_no_tile_breaks_its_number(desk: Page) -> None:
    for value in desk.locator(".value").all():
        assert value.evaluate("shown => shown.getClientRects().length === 1 && shown.offsetHeight < 60")


def test_a_button_copies_a_command(visit: Opener, sample: Path) -> None:
    page = visit(sample).page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = page.locator("#measured .copy")
    button.click()
    expect(button).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == masthead().command


def test_a_button_covers_nothing_of_its_command(visit: Opener, sample: Path) -> None:
    page = visit(sample).page
    covered = page.locator(".code").first.evaluate(
        """part => {
            const code = part.querySelector("code");
            code.textContent = "shiftproof train --option name=value ".repeat(12);
            const { left, bottom } = part.querySelector("button").getBoundingClientRect();
            const range = document.createRange();
            range.selectNodeContents(code);
            return [...range.getClientRects()].filter((line) => line.top < bottom && line.right > left).length;
        }"""
    )
    assert covered == 0


def test_a_table_is_downloaded_with_its_digits_and_without_formulas(visit: Opener, tmp_path: Path) -> None:
    table = Table(
        "Mean, by kind",
        (Column("Kind"), Column("Share", "percent")),
        (("=1+1", 0.123456), ('say "no"', None), ("fog, dense", -0.5)),
    )
    html.write(tmp_path / "report.html", masthead(), [View("clean", "Clean", blocks=(table,))])
    page = visit(tmp_path / "report.html").page
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV: Mean, by kind").click()
    assert download.value.suggested_filename == "mean-by-kind.csv"
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines == ['"Kind","Share"', '"\'=1+1",0.123456', '"say ""no""",""', '"fog, dense",-0.5']


def test_an_example_shows_while_its_cell_is_pointed_at_or_has_the_focus(desk: Page) -> None:
    table = desk.locator("table.peeks")
    table.scroll_into_view_if_needed()
    peeks = table.locator(".peek:visible")
    expect(peeks).to_have_count(0)
    cell = table.locator("tbody tr").nth(4).locator("td").nth(3)
    cell.hover()
    expect(peeks).to_have_count(1)
    expect(peeks).to_be_in_viewport(ratio=1)
    expect(cell.locator(".peek img, .peek svg:not(.icon)")).to_be_visible()
    desk.mouse.move(1, 1)
    expect(peeks).to_have_count(0)
    assert table.locator("td[tabindex='0']").count() == 1  # the whole table is one stop
    table.locator("td[tabindex='0']").focus()
    expect(peeks).to_be_in_viewport(ratio=1)
    first = desk.evaluate("document.activeElement.textContent")
    for key in ("ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft"):
        before = desk.evaluate("document.activeElement.textContent")
        desk.keyboard.press(key)
        assert desk.evaluate("document.activeElement.textContent") != before
    assert desk.evaluate("document.activeElement.textContent") == first
    desk.locator("#measured").scroll_into_view_if_needed()
    expect(peeks).to_have_count(0)  # it does not stay behind
    desk.evaluate("document.activeElement.blur()")


def test_focus_is_seen_wherever_it_goes(desk: Page) -> None:
    skip = desk.get_by_role("link", name="Skip to the verdict")
    desk.keyboard.press("Tab")  # from here on the reader uses keys
    skip.focus()
    expect(skip).to_be_in_viewport()
    seen = set()
    for _ in range(45):
        tag, ring = desk.evaluate(
            """() => {
                const rings = ["", "::after"].map((part) => getComputedStyle(document.activeElement, part || null));
                const ringed = rings.some((ring) => ring.outlineStyle === "solid" && ring.outlineWidth === "3px");
                return [document.activeElement.tagName, ringed];
            }"""
        )
        assert ring, tag
        seen.add(tag)
        desk.keyboard.press("Tab")
    assert seen >= {
        "A",
        "BUTTON",
        "SUMMARY",
        "DIV",
    }  # links, headers that sort, a table behind a chart, a table that scrolls


def test_light_and_dark(night: Page) -> None:
    night.locator(".chart").first.scroll_into_view_if_needed()
    tick, button = night.locator(".xtick text").first, night.locator("#theme")
    expect(night.locator("body")).to_have_css("background-color", DARK_PAPER)
    expect(tick).to_have_css("fill", DARK_MUTED)
    button.click()
    expect(night.locator("body")).to_have_css("background-color", LIGHT_PAPER)
    expect(tick).to_have_css("fill", LIGHT_MUTED)
    button.click()
    expect(night.locator("body")).to_have_css("background-color", DARK_PAPER)
    assert night.evaluate("localStorage.length + sessionStorage.length") == 0


def test_paper_gets_every_chart_in_light(night: Page) -> None:
    night.evaluate("dispatchEvent(new Event('beforeprint'))")
    for chart in night.locator(".chart").all():
        assert marks(chart) > 0
        assert _width(chart) == 672
        expect(chart.locator(".xtick text").first).to_have_css("fill", LIGHT_MUTED)
    night.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(night.locator(".xtick text").first).to_have_css("fill", DARK_MUTED)
    assert _width(night.locator(".chart").first) == night.evaluate("document.querySelector('.chart').clientWidth")


def test_reads_without_scripts(visit: Opener, sample: Path) -> None:
    page = visit(sample, java_script_enabled=False).page
    expect(page.locator(".verdict")).to_contain_text("Contrast loss and noise cost most")
    expect(page.locator(".tiles")).to_contain_text("91.5%")
    for table in page.locator("table").all():
        expect(table).to_be_visible()
    for picture in page.locator(".pictures li").all():
        expect(picture.locator("img, svg:not(.icon)")).to_be_visible()
    for thing in page.locator(".chart, button").all():
        expect(thing).to_be_hidden()
    cell = page.locator("table.peeks td[tabindex]").first
    cell.hover()
    expect(cell.locator(".peek")).to_be_in_viewport(ratio=1)
    expect(page.locator(".actions pre")).to_have_count(3)


def test_paper_has_no_navigation_and_fits(visit: Opener, sample: Path) -> None:
    page = visit(sample).page
    page.emulate_media(media="print")
    for gone in ("nav", ".skip", ".peek"):
        assert page.locator(f"{gone}:visible").count() == 0
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_hostile_names_are_text(hostile: Visit) -> None:
    page, dialogs = hostile.page, []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(page.locator(".verdict")).to_contain_text(HOSTILE)
    expect(page.locator(".pictures").first).to_contain_text(HOSTILE)
    chart = page.locator("#clean .chart")
    chart.scroll_into_view_if_needed()
    expect(chart.locator(".ytick text", has_text=HOSTILE)).to_have_count(1)
    chart.locator(".points path").nth(8).hover(force=True)
    expect(chart.locator(".hovertext")).to_contain_text(HOSTILE)
    expect(chart.locator(".hovertext")).to_contain_text("96.0%")
    assert dialogs == []
    assert hostile.errors == []


def test_a_narrow_window_scrolls_tables_and_not_the_page(hostile: Visit) -> None:
    page = hostile.page
    page.set_viewport_size({"width": 400, "height": 900})
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".main-svg").first).to_be_visible()
    page.wait_for_function("document.querySelector('.chart .main-svg').clientWidth < 400")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator("table.heat").evaluate("table => table.offsetWidth > table.parentElement.clientWidth")


def test_a_long_title_of_an_axis_is_folded_where_there_is_little_room(visit: Opener, tmp_path: Path) -> None:
    title = {"text": "distance of the statistics from the source's, in standard deviations"}
    plot = {"data": [{"type": "bar", "x": [1, 2], "y": [3, 4]}], "layout": {"xaxis": {"title": title}}}
    table = Table("Behind it", (Column("x"),), (("1",),))
    html.write(tmp_path / "report.html", masthead(), (View("one", "One", "?", blocks=(Figure("Bars", plot, table),)),))
    chart = visit(tmp_path / "report.html", width=400).page.locator(".chart")
    chart.scroll_into_view_if_needed()
    axis = chart.locator(".xtitle")
    expect(axis).to_be_visible()
    box, around = axis.bounding_box(), chart.bounding_box()
    assert box is not None
    assert around is not None
    assert around["x"] <= box["x"]
    assert box["x"] + box["width"] <= around["x"] + around["width"]


def marks(chart: Locator) -> int:
    """Return how many bars and lines of some extent a chart shows."""
    count: int = chart.evaluate(
        """chart => [...chart.querySelectorAll(".points path, path.js-line, .heatmaplayer image")]
            .filter((mark) => mark.getBBox().width > 0 && mark.getBBox().height > 0).length"""
    )
    return count


def _width(chart: Locator) -> float:
    width: float = chart.locator(".main-svg").first.evaluate("drawing => drawing.getBoundingClientRect().width")
    return width


def _first_column(table: Locator) -> list[str]:
    return table.locator("tbody th").all_text_contents()
