"""Texts for the tests of text shifts."""

from typing import Any

from shiftproof import shifts

TEXTS = [
    "This film is a wonderful, funny story about a man who finds his old friend; I really loved it!",
    "The product broke after two days. What a terrible waste of money, and nobody answered my question.",
    "OK",
    "It works. The battery is small but strong, the price is fair, and the manual is clear and easy to read. " * 5,
    "modern life is strange and people often want to see more than the best book can show",
    "I bought 100 of these (no, really!) on 5 May -- and 8 of them were wrong.",
    "Ein kleiner Text mit Umlauten: schön, größer, früh.",
    "A boy is walking down the street with his dog in the rain",
]
KEYS = [3, 1, 4, 15, 9, 2, 6, 5]


def parse(label: str) -> Any:
    """Return the text shift a label stands for."""
    return shifts.parse(label)
