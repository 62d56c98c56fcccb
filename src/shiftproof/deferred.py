"""The arguments of a loader, kept until what they describe is needed."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from shiftproof.registry import imported, unknown


class Deferred:
    """The arguments of a loader, kept until they are needed; names of options are checked at once."""

    loader: ClassVar[str]
    """Where the loader is, `module:function`; its first parameter is what is loaded, the others are its options."""

    def __init__(self, given: Any, **options: Any) -> None:
        _, *known = inspect.signature(imported(self.loader)).parameters
        for name in options:
            if name not in known:
                raise unknown(f"option of {self.loader.partition(':')[2]}()", name, known)
        inner = given if isinstance(given, Deferred) else None
        self.given: Any = given if inner is None else inner.given
        self.options: dict[str, Any] = options if inner is None else {**inner.options, **options}

    def __repr__(self) -> str:
        said = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({self.given!r}{said})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]
