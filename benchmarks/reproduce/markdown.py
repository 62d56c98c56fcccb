"""Tables in Markdown: numbers, ours beside the papers', and rows of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

MISSING = "Not run."


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], *, words: Collection[str] = ()) -> str:
    """Return a table in Markdown: its first column and those of `words` to the left, the others to the right."""
    lines = [head, ["---" if name in (head[0], *words) else "---:" for name in head], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) if len(lines) > 2 else MISSING


def shown(value: float | None, digits: int = 3, scale: float = 1) -> str:
    """Return a number, or nothing for one that there is not."""
    return "" if value is None else f"{scale * value:.{digits}f}"


def beside(ours: float | None, paper: float | None, digits: int = 3, scale: float = 1) -> str:
    """Return our number with the paper's in brackets."""
    mine = shown(ours, digits, scale)
    return mine if paper is None else f"{mine} ({shown(paper, digits)})".lstrip()
