"""Words that can stand for others: WordNet's where its files are given, else a small list of our own."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from shiftproof.errors import ConfigurationError
from shiftproof.runs.files import expand
from shiftproof.shifts.base import reads_files

Lexicon = Mapping[str, tuple[str, ...]]
"""Word -> its synonyms, sorted."""

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")


@reads_files
@lru_cache(maxsize=4)
def synonyms(wordnet: str | None = None) -> Lexicon:
    """Return the synonyms of words, from the folder of WordNet's `data.noun`, `data.verb` and so on, or built in.

    >>> synonyms()["film"]
    ('movie', 'picture')
    """
    return _of_groups(_built_in() if wordnet is None else _wordnet(expand(wordnet)))


@reads_files
@lru_cache(maxsize=4)
def common_words(path: str | None = None) -> tuple[str, ...]:
    """Return words to put in the place of others: a file's, separated by white space, or built in; each once."""
    if path is None:
        table = tomllib.loads((files(__package__) / "synonyms.toml").read_text("utf-8"))
        return tuple(dict.fromkeys(" ".join([*table["groups"], table["others"]]).split()))
    try:
        found = tuple(dict.fromkeys(expand(path).read_text("utf-8").split()))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"Cannot read the vocabulary {path!r}.", expected="a text file in UTF-8", got=str(error)
        ) from error
    if not found:
        raise ConfigurationError(f"The vocabulary {path!r} is empty.", expected="words separated by white space")
    return found


def _built_in() -> Iterable[tuple[str, ...]]:
    table = tomllib.loads((files(__package__) / "synonyms.toml").read_text("utf-8"))
    return (tuple(group.split()) for group in table["groups"])


def _wordnet(folder: Path) -> Iterable[tuple[str, ...]]:
    """Yield the words of every synset: a line has offset, file, type, the number of words in hexadecimal, and words.

    Every word is followed by a number of its own; underscores are spaces, and adjectives may have a marker like (a).
    """
    paths = [folder / f"data.{part}" for part in PARTS_OF_SPEECH]
    if not all(path.is_file() for path in paths):
        raise ConfigurationError(
            f"There is no WordNet in {str(folder)!r}.",
            expected="the files data.noun, data.verb, data.adj and data.adv of WordNet 3.0",
        )
    for path in paths:
        try:
            with path.open(encoding="utf-8") as file:
                yield from (_synset(line) for line in file if not line.startswith("  "))  # as the licence does
        except (OSError, ValueError, IndexError) as error:
            raise ConfigurationError(
                f"{str(path)!r} is not WordNet's.",
                expected=f"the file {path.name} of WordNet 3.0",
                got=f"{type(error).__name__}: {error}",
            ) from error


def _synset(line: str) -> tuple[str, ...]:
    fields = line.split()
    count = int(fields[3], 16)
    return tuple(word.partition("(")[0].replace("_", " ") for word in fields[4 : 4 + 2 * count : 2])


def _of_groups(groups: Iterable[tuple[str, ...]]) -> Lexicon:
    found: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        for word in group if len(group) > 1 else ():
            found[word.lower()].update(other for other in group if other.lower() != word.lower())
    return {word: tuple(sorted(others)) for word, others in found.items() if others}
