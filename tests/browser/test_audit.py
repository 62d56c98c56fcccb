"""The report of a real audit in a browser: verdict, corruption table and chart are there, and nothing leaks."""

from __future__ import annotations

from contextlib import closing

import pytest
from playwright.sync_api import Browser, expect

import shiftproof
from tests.browser.conftest import Visit

pytestmark = pytest.mark.browser


def test_a_real_report_shows_verdict_table_and_chart(
    chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("audit")
    result = shiftproof.audit("demo", "demo", out=folder, images=30, shifts=["contrast", "fog"], severities=[3, 5])
    with closing(Visit(chromium, result.report)) as visit:
        page = visit.page
        expect(page.locator(".verdict li")).to_have_count(sum(len(view.verdict) for view in result.views))
        expect(page.locator("#corruptions table").first.locator("tbody tr")).to_have_count(2)
        page.locator("#corruptions .chart").first.scroll_into_view_if_needed()
        expect(page.locator("#corruptions .chart .bars path")).to_have_count(2)
        expect(
            page.locator("#corruptions figure img, #corruptions .gallery svg, #corruptions img").first
        ).to_be_visible()
        assert visit.errors == []
        assert visit.outside() == []
