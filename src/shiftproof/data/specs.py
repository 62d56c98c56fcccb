"""Data that is yet to be loaded, with how it is loaded: for verbs, other processes and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from shiftproof.deferred import Deferred


class DataSpec(Deferred):
    """What `load_data` would be told, kept until the data are needed.

    Every verb takes one in the place of data. It can be sent to another process, which loads its own.

    Args:
        given: What `load_data` takes first.
        options: Any options of `load_data`, by name.

    >>> DataSpec("photos", size=224)
    DataSpec('photos', size=224)
    """

    loader = "shiftproof.data.loading:load_data"


DataLike: TypeAlias = str | Path | DataSpec | Any
"""Data in any form that `load_data` takes: text, arrays, a set already made, a Hugging Face data set, ..."""
