"""Sphinx configuration: strict, MyST, furo."""

import sys
from pathlib import Path

from shiftproof.version import __version__

project = "Shiftproof"
author = "The Shiftproof authors"
copyright = "2026, The Shiftproof authors"
version = release = __version__

sys.path.insert(0, str(Path(__file__).parent))
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "shift_tables", "method_tables", "mathml"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_math_renderer = "mathml"
html_title = "Shiftproof"

nitpicky = False
default_role = "code"  # docstrings write `fog@3` as in Markdown
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "separated"
