"""The report of a real audit in a browser: every section is there and drawn, tables sort, and nothing leaks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

import shiftproof
from shiftproof.audits import Audit
from shiftproof.audits.sections import SECTIONS
from shiftproof.reports import headlines
from tests.browser.conftest import Visit
from tests.browser.test_report import marks

pytestmark = pytest.mark.browser


SMALL: dict[str, Any] = {"shifts": ["contrast", "fog"], "severities": [3, 5]}


def test_a_real_report_is_drawn_and_sorts(chromium: Browser, tmp_path: Path) -> None:
    result = shiftproof.audit("demo", "demo", out=tmp_path, images=30, sections=["clean", "corruptions"], **SMALL)
    with closing(Visit(chromium, result.report)) as visit:
        page = visit.page
        expect(page.locator("#corruptions table").first.locator("tbody tr")).to_have_count(2)
        expect(page.locator("#corruptions .peek")).to_have_count(4)
        for pictures in page.locator("#corruptions .pictures").all():
            expect(pictures.locator("li")).to_have_count(4)
        _check(visit, result)


@pytest.mark.slow
def test_a_report_of_every_section_is_whole(chromium: Browser, tmp_path: Path) -> None:
    result = shiftproof.audit("demo", "demo", out=tmp_path, images=120, **SMALL)
    sections = list(SECTIONS)
    sections.insert(sections.index("failures") + 1, "mistakes")
    assert [view.section for view in result.views] == sections
    with closing(Visit(chromium, result.report)) as visit:
        expect(visit.page.locator(".tiles li")).to_have_count(6)
        expect(visit.page.locator(".tiles .level")).to_have_count(6)
        _check(visit, result)


def _check(visit: Visit, result: Audit) -> None:
    """Look for every sentence and action, draw every chart, sort every table by every column."""
    page = visit.page
    expect(page.locator(".verdict li")).to_have_count(len(headlines.verdict(result.views)))
    expect(page.locator(".actions > li")).to_have_count(len(headlines.actions(result.views)))
    for chart in page.locator(".chart").all():
        chart.scroll_into_view_if_needed()
        expect(chart.locator(".modebar-btn")).to_have_count(1)
        assert marks(chart) > 0, chart.get_attribute("aria-label")
    for table in page.locator("table:visible").all():
        for header in table.get_by_role("columnheader").all():
            header.get_by_role("button").click()
            expect(header).to_have_attribute("aria-sort", "ascending")
    assert visit.errors == []
    assert visit.outside() == []
