"""What the theme leaves out for screen readers and keyboards.

The captions of the sidebar are headings, and say of which level; code and tables that may scroll can have the focus.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def give_levels(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    """Give the captions of the sidebar a level, after the theme has written it."""
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def give_focus(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    """Let code and tables have the focus, so that the arrow keys scroll them in narrow windows."""
    if body := context.get("body"):
        body = body.replace('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">')
        context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.connect("html-page-context", give_levels, priority=900)
    app.connect("html-page-context", give_focus, priority=900)
    return {"parallel_read_safe": True}
