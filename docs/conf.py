"""Sphinx configuration: strict, MyST, furo."""

import sys
from pathlib import Path

from shiftproof.version import __version__

project = "Shiftproof"
author = "The Shiftproof authors"
copyright = "2026, The Shiftproof authors"
version = release = __version__

sys.path.insert(0, str(Path(__file__).parent))
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "shift_tables",
    "method_tables",
    "error_tables",
    "public_names",
    "plain_types",
    "mathml",
    "accessible",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_math_renderer = "mathml"
html_title = "Shiftproof"
html_static_path = ["_static"]
html_css_files = ["custom.css"]

nitpicky = True  # a reference that leads nowhere is a fault, but for those to other packages and to private types
nitpick_ignore_regex = [("py:.*", r"(?!shiftproof\.(\w+\.)?\w+$).*|shiftproof\.prediction_tasks\..*")]
default_role = "code"  # docstrings write `fog@3` as in Markdown
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
autodoc_type_aliases = {
    name: name for name in ("ArrayLike", "FloatArray", "NDArray", "Images", "ModelLike", "DataLike")
}
