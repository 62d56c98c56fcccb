"""A headless Chromium for tests that look at a page; they are skipped where it is not installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

Opener: TypeAlias = Callable[..., "Visit"]


class Visit:
    """A file opened in a window of its own, what it asked for, and the errors it had."""

    def __init__(self, browser: Browser, path: Path, *, width: int = 1400, **options: Any) -> None:
        self.page = page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        self.address = path.as_uri()
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.route(lambda url: not url.startswith(("file:", "data:", "blob:")), lambda route: route.abort())
        page.goto(self.address)

    def close(self) -> None:
        """Close the window."""
        self.page.close()

    def outside(self) -> list[str]:
        """Return what was asked for besides the page itself and what it carries."""
        return [url for url in self.requests if url != self.address and not url.startswith(("data:", "blob:"))]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Return a running Chromium."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Opener]:
    """Return a function that opens a file: `visit(path, width=400, color_scheme="dark")`."""
    visits = []

    def opened(path: Path, **options: Any) -> Visit:
        visits.append(Visit(chromium, path, **options))
        return visits[-1]

    yield opened
    for visited in visits:
        visited.close()
