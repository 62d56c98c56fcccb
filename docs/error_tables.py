"""A Sphinx directive that lists the errors of packages, read from their source, so that none is left out.

```{error-messages} models
```
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shift_tables import Generated
from sphinx.application import Sphinx

import shiftproof
from shiftproof import errors

ROOT = Path(shiftproof.__path__[0])
KINDS = {name for name, value in vars(errors).items() if isinstance(value, type) and name.endswith("Error")}


class Message(NamedTuple):
    """An error: its headline, what it expects, and the fix, with dots for what is not known before."""

    headline: str
    expected: str
    fix: str


def messages(package: str) -> list[Message]:
    """Return the errors that a package or module raises, in the order of their headlines, each once."""
    paths = [ROOT / f"{package}.py"] if (ROOT / f"{package}.py").is_file() else sorted((ROOT / package).rglob("*.py"))
    found = {message for path in paths for message in _raised(ast.parse(path.read_text()))}
    return sorted((each for each in found if each.headline.strip(". ")), key=lambda each: each.headline.lstrip(". ("))


def _raised(tree: ast.Module) -> Iterator[Message]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args:
            facts = {fact.arg: _text(fact.value) for fact in node.keywords}
            yield Message(_text(node.args[0]), facts.get("expected", ""), facts.get("fix", ""))


def _text(node: ast.expr) -> str:
    """Return a text as far as the source tells it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=one):
            return _text(one)
    return "..."


class ErrorMessages(Generated):
    """Messages with their fixes, as a list: what it says, then what to do."""

    def lines(self) -> Iterator[str]:
        """Yield a term and its definition per message."""
        for package in self.arguments:
            for message in messages(package):
                facts = [f"*{name}* {code(text)}" for name, text in message._asdict().items() if name != "headline"]
                told = [fact for fact, text in zip(facts, message[1:], strict=True) if text.strip(". ")]
                yield from (code(message.headline), f": {'; '.join(told) or 'The message says what was given.'}", "")


def code(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("error-messages", ErrorMessages)
    return {"parallel_read_safe": True}
