"""Columns of tables of texts: which of them hold texts, or pairs of them, and which labels."""

from __future__ import annotations

from collections.abc import Sequence

from shiftproof.data.columns import find_columns
from shiftproof.errors import DataError

TEXT_COLUMNS = ("text", "sentence", "review", "content", "document", "comment", "body", "t")
PAIR_COLUMNS = (
    ("text", "pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("sentence_a", "sentence_b"),
    ("question1", "question2"),
    ("question", "answer"),
)
LABEL_COLUMNS = ("label", "labels", "gold_label", "sentiment", "class", "category", "target", "entailment_judgment")
"""Names of columns that are found without being named, in any case of letters; the first that fits is taken."""

_NO_HEADER = "columns by number, from 0, where the first line is a row like the others"


def wanted_columns(text_column: str | None) -> list[str]:
    """Return the columns of texts that a user named: one, or two of pairs with a comma between them."""
    return [name.strip() for name in (text_column or "").split(",") if name.strip()]


def _spelt(columns: Sequence[str]) -> dict[str, str]:
    return {column.strip().lower(): column for column in reversed(columns)}


def usual_columns(columns: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names, in small letters, of the columns that hold texts by their names: a pair, or one."""
    spelt = _spelt(columns)
    single = ((name,) for name in TEXT_COLUMNS)
    return next((names for names in (*PAIR_COLUMNS, *single) if all(name in spelt for name in names)), None)


def find_text_columns(
    where: str, columns: Sequence[str], texts: Sequence[str], label: str | None, of_classes: str | None = None
) -> tuple[tuple[str, ...], str | None]:
    """Return the names, as the table spells them, of the columns of texts and labels.

    Labels are in `of_classes` where no column has a common name.
    """
    spelt = _spelt(columns)
    for name in (*texts, *([label] if label is not None else [])):
        if name.strip().lower() not in spelt:
            raise DataError(
                f"There is no column {name!r} in {where}.",
                expected=f"one of its columns, or {_NO_HEADER}",
                got=", ".join(columns) or "no columns",
                fix="--text-column and --label-column name columns",
            )
    if len(texts) > 2:
        raise DataError(
            "A text is one column, or a pair of them.",
            expected="--text-column NAME or ONE,OTHER",
            got=", ".join(texts),
        )
    if not texts:
        found = usual_columns(columns)
        if found is None:
            images, _ = find_columns(columns)
            raise DataError(
                f"Cannot tell which column of {where} holds the texts.",
                expected=f"a column named {', '.join(TEXT_COLUMNS[:-1])}, or a pair such as premise and hypothesis",
                got=", ".join(columns[:20]) or "no columns",
                fix="--text-column NAME, or PREMISE,HYPOTHESIS, or numbers from 0 where there is no header; "
                + (
                    f"--image-column {images} if that names images, with their endings, as in 17.png"
                    if images
                    else "--image-column NAME where it names images"
                ),
            )
        texts = found
    label = label if label is not None else next((name for name in LABEL_COLUMNS if name in spelt), of_classes)
    return tuple(spelt[name.lower()] for name in texts), None if label is None else spelt[label.strip().lower()]
