"""Types of the reference as a reader wants them: without what annotations tell programs, and without private aliases.

Of `Annotated[float, Gt(gt=0), "The learning rate."]` the type is `float`; bounds and help are in the description.
Docstrings of properties are sentences: what stands before a colon is no type.
"""

from __future__ import annotations

import re
from typing import Any

from docutils.nodes import Element
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

ANNOTATED = re.compile(r"~?(?:typing\.)?Annotated\[")
ALIAS = re.compile(r"~?(?:[\w.]+\.)?TypeAliasForwardRef\('(\w+)'\)")
CLOSING = {"[": "]", "(": ")", "{": "}"}


def plain(annotation: str) -> str:
    """Return a type without what `Annotated` adds to it, and with aliases by their name.

    >>> plain("~typing.Annotated[float, ~annotated_types.Gt(gt=0), 'A rate, in [0, 1].'] | None")
    'float | None'
    >>> plain("TypeAliasForwardRef('ArrayLike') | ~pathlib.Path")
    'ArrayLike | ~pathlib.Path'
    """
    annotation = ALIAS.sub(r"\1", annotation)
    while begin := ANNOTATED.search(annotation):
        first, end = _members(annotation, begin.end())
        annotation = annotation[: begin.start()] + annotation[begin.end() : first] + annotation[end + 1 :]
    return annotation


def _members(text: str, start: int) -> tuple[int, int]:
    """Return where the first member of brackets that opened before `start` ends, and where the brackets close."""
    open_brackets, quote, first, place = ["]"], "", 0, start
    while open_brackets:
        sign = text[place]
        if quote:
            quote = "" if sign == quote and text[place - 1] != "\\" else quote
        elif sign in "'\"":
            quote = sign
        elif sign in CLOSING:
            open_brackets.append(CLOSING[sign])
        elif sign == open_brackets[-1]:
            open_brackets.pop()
        elif sign == "," and len(open_brackets) == 1:
            first = first or place
        place += 1
    return first or place - 1, place - 1


def simplify(app: Sphinx, domain: str, kind: str, content: Element) -> None:
    """Simplify the types that autodoc has recorded, before it writes them."""
    for types in app.env.current_document.autodoc_annotations.values():
        for name, annotation in types.items():
            types[name] = plain(annotation)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what simplifies types, and have Napoleon leave docstrings of properties alone."""
    app.connect("object-description-transform", simplify, priority=400)
    setattr(GoogleDocstring, "_parse_attribute_docstring", lambda self: self._consume_to_end())  # noqa: B010
    return {"parallel_read_safe": True}
