"""What can change in a text: everyday corruptions, word edits, and edits by language models, keyed by text."""

from shiftproof.shifts.text.base import TextShift
from shiftproof.shifts.text.chain import TextChain

__all__ = ["TextChain", "TextShift"]
