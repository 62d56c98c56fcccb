"""What the theme leaves out for screen readers: the captions of the sidebar are headings, and say of which level."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def give_levels(app: Sphinx, page: str, template: str, context: dict[str, Any], document: object) -> None:
    """Give the captions of the sidebar a level, after the theme has written it."""
    if tree := context.get("furo_navigation_tree"):
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what gives levels."""
    app.connect("html-page-context", give_levels, priority=900)
    return {"parallel_read_safe": True}
