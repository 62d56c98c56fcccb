"""What a text classifier reads: a list of texts, or of pairs of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Text: TypeAlias = str | tuple[str, str]
"""One text, or a pair such as a premise and a hypothesis."""


def parts(text: Text) -> tuple[str, ...]:
    """Return the one or two texts of an input."""
    return (text,) if isinstance(text, str) else text


def truncation(model: Callable[..., Any], texts: Sequence[Text]) -> str:
    """Return what a report should say of texts that are longer than the model reads; nothing where none is.

    A model that cuts texts tells so by `max_length` and `lengths(texts)`, both in words or tokens.
    """
    limit, lengths = getattr(model, "max_length", None), getattr(model, "lengths", None)
    if not isinstance(limit, int) or lengths is None:
        return ""
    long = sum(length > limit for length in lengths(texts))
    if not long:
        return ""
    return f"The model reads {limit} tokens at most: {long} of {len(texts)} texts are longer and were cut."


def pairing(model: Callable[..., Any], texts: Sequence[Text]) -> str:
    """Return what a report should say of pairs given to a model of which nobody knows whether it was made for them.

    A model tells by `pairs`, which is None where it takes both and does not know what it was trained on.
    """
    if getattr(model, "pairs", False) is not None or not any(isinstance(text, tuple) for text in texts):
        return ""
    return "The texts are pairs, and nothing in the model says that it was trained on pairs: if not, this means little."
