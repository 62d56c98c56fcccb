"""Sphinx directives that make tables of the methods of adaptation, so that the documents follow the code.

```{method-departures}
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shift_tables import Generated, code, table
from sphinx.application import Sphinx

from shiftproof.adapters import facts


class Departures(Generated):
    """Where methods depart from their papers or released code."""

    def lines(self) -> Iterator[str]:
        """Yield a row per method that does."""
        rows = [(code(each.name), each.paper, each.departures) for each in facts() if each.departures]
        yield from table(("method", "paper", "how ours differs"), rows)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("method-departures", Departures)
    return {"parallel_read_safe": True}
