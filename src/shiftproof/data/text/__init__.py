"""Sets of texts: from tables, folders of text files, and lists."""

from shiftproof.data.text.textset import TextSet, as_texts

__all__ = ["TextSet", "as_texts"]
