"""What a user sees when something cannot go on: what was expected, what it got, and the fix.

One exception type, `ShiftproofError`, with a subclass for each thing that can be at fault. The command line prints
its text and exits; nothing already computed is lost.
"""

from __future__ import annotations

import re
import textwrap

_WIDTH = 116

# Control characters but the line's end; what reorders the text around it; halves of characters, which names of files
# that are not UTF-8 become and no terminal can show.
_HIDDEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


class ShiftproofError(Exception):
    """A problem the user can act on.

    `headline` is one sentence; each keyword is a short line under it, such as `expected`, `got`, `fix`.

    >>> print(ShiftproofError("Cannot read the labels.", expected="one per image", got="3 for 4 images"))
    Cannot read the labels.
      expected  one per image
      got       3 for 4 images
    """

    status = 1
    """Exit status of a command that ends with this error."""

    def __init__(self, headline: str, **facts: str) -> None:
        super().__init__(headline)
        self.headline = headline
        self.facts = facts

    def __str__(self) -> str:
        """Return the headline with its facts aligned below it."""
        margin = max((len(name) for name in self.facts), default=0)
        lines = [printable(self.headline)]
        for name, text in self.facts.items():
            lead = f"  {name:<{margin}}  "
            told = textwrap.fill(
                text, _WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
            )
            lines.append(printable(told))
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with the facts, so that an error in a worker process arrives whole."""
        return _rebuild, (type(self), self.headline, self.facts)


class ModelError(ShiftproofError):
    """The model cannot be loaded, or does not behave as a classifier."""


class DataError(ShiftproofError):
    """The data cannot be read, or does not fit the model."""


class ConfigurationError(ShiftproofError):
    """An option or a name does not exist, or options contradict each other."""


class UsageError(ConfigurationError):
    """A command line cannot be parsed; exits with the status of an invalid option."""

    status = 2


class RunError(ShiftproofError):
    """A run directory cannot be used or written."""


class Interrupted(BaseException):
    """A request to stop the command; a separate class because the argument parser swallows KeyboardInterrupt."""


INTERRUPTIONS = (KeyboardInterrupt, Interrupted)
"""What ends a run from outside. All else that a user's code raises, `SystemExit` too, is a failure of that code."""


def printable(text: str) -> str:
    r"""Return text that is safe to print: control and invisible characters are escaped.

    Args:
        text: The text.

    >>> print(printable("cat\x1b[31m"))
    cat\x1b[31m
    """
    return _HIDDEN.sub(lambda found: ascii(found[0])[1:-1], text)


def _rebuild(kind: type[ShiftproofError], headline: str, facts: dict[str, str]) -> ShiftproofError:
    return kind(headline, **facts)
