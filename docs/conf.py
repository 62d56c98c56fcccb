"""Sphinx configuration: strict, MyST, furo."""

from shiftproof.version import __version__

project = "Shiftproof"
author = "The Shiftproof authors"
copyright = "2026, The Shiftproof authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Shiftproof"

nitpicky = False
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"
