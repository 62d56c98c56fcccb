"""Shifts with parameters of their own, written `power_law[eps=8,center=4,alpha=1]`.

A subclass of `Parametric` is a frozen dataclass whose fields are its parameters; the text form follows from them, both
ways. Parameters at their default are left out, so `rand_augment` is a whole text form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, get_type_hints

from shiftproof.errors import ConfigurationError
from shiftproof.registry import resolve, unknown
from shiftproof.shifts.base import Shift
from shiftproof.shifts.operation import plain

FORMS: Mapping[str, str] = {
    "power_law": "shiftproof.shifts.spectral:PowerLaw",
    "fourier_basis": "shiftproof.shifts.spectral:FourierBasis",
    "rand_augment": "shiftproof.shifts.augment:RandAugment",
    "auto_augment": "shiftproof.shifts.augment:AutoAugment",
    "augmix": "shiftproof.shifts.augment:AugMix",
    "fouriermix": "shiftproof.shifts.fouriermix:FourierMix",
    "pad_crop": "shiftproof.shifts.crop:PadCrop",
    "random_translate": "shiftproof.shifts.crop:RandomTranslate",
    "random_erase": "shiftproof.shifts.crop:RandomErase",
    "flip_crop": "shiftproof.shifts.crop:FlipCrop",
}
"""Name -> lazy target."""

_TEXT = re.compile(r"(\w+)(?:\[(.*)\])?")


@dataclass(frozen=True)
class Parametric(Shift):
    """A shift whose dataclass fields are its parameters; its strength is in them, so its severity is always 1."""

    name: str = field(default="", init=False)
    severity: float = field(default=1.0, init=False)

    @property
    def label(self) -> str:
        """The text form: the name and, in brackets, the parameters that are not at their default."""
        told = [f"{key}={_written(value)}" for key, value in self.parameters().items() if not self._is_default(key)]
        return f"{self.name}[{','.join(told)}]" if told else self.name

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def require(self, holds: bool, expected: str) -> None:
        """Refuse these parameters unless the condition holds."""
        if not holds:
            came = ", ".join(f"{key}={_written(value)}" for key, value in self.parameters().items())
            raise ConfigurationError(f"Shift {self.name!r} cannot have these parameters.", expected=expected, came=came)

    def _is_default(self, key: str) -> bool:
        (default,) = (each.default for each in fields(self) if each.name == key)
        return default is not MISSING and bool(default == getattr(self, key))


def parse(text: str) -> Parametric:
    """Return the shift a text such as `power_law[eps=8,center=4,alpha=1]` or `augmix` stands for."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise _unreadable(text, "a name and, in brackets, name=value pairs, such as power_law[eps=8,center=4,alpha=1]")
    name, inside = match.groups()
    form: type[Parametric] = resolve(FORMS, name, "shift")
    kinds = get_type_hints(form)
    taken = [each.name for each in fields(form) if each.init]
    values: dict[str, Any] = {}
    for pair in filter(None, (inside or "").split(",")):
        key, _, value = (part.strip() for part in pair.partition("="))
        if key not in taken:
            raise unknown(f"parameter of {name!r}", key, taken)
        try:
            values[key] = kinds[key](value) if kinds[key] in (int, float) else value
        except ValueError:
            raise _unreadable(text, f"a number for {key}") from None
    missing = [each.name for each in fields(form) if each.init and each.default is MISSING and each.name not in values]
    if missing:
        raise _unreadable(text, f"values for {', '.join(missing)}")
    return form(**values)


def _unreadable(text: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"Cannot read the shift {text!r}.", expected=expected, came=text)


def _written(value: float | str) -> str:
    return value if isinstance(value, str) else plain(value)
