"""Data that is yet to be loaded, with how it is loaded: for verbs, other processes and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

from shiftproof.deferred import Deferred


class DataSpec(Deferred):
    """Data to load later: the arguments of `load_data`.

    Every verb accepts one in place of data. It can be pickled; each process then loads its own data.

    Args:
        given: First argument of `load_data`.
        options: Options of `load_data`, by name.

    >>> DataSpec("photos", size=224)
    DataSpec('photos', size=224)
    """

    loader = "shiftproof.data.loading:load_data"


DataLike: TypeAlias = str | Path | DataSpec | Any
"""Data in any form that `load_data` takes: text, arrays, a set already made, a Hugging Face data set, ..."""
