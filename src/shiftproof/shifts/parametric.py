"""Shifts with parameters of their own, written `power_law[eps=8,center=4,alpha=1]`.

A subclass of `Parametric` is a frozen dataclass whose fields are its parameters, annotated with their ranges and what
they are for (see `shiftproof.options`); the text form follows from them, both ways. Parameters at their default are
left out, so `rand_augment` is a whole text form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from shiftproof.errors import ConfigurationError
from shiftproof.options import hints, read
from shiftproof.registry import resolve
from shiftproof.shifts.forms import Form, bracketed, missing, stated, typed, written
from shiftproof.shifts.image_shift import ImageShift

FORMS: Mapping[str, str] = {
    "power_law": "shiftproof.shifts.spectral.waves:PowerLaw",
    "fourier_basis": "shiftproof.shifts.spectral.waves:FourierBasis",
    "rand_augment": "shiftproof.shifts.augment.policies:RandAugment",
    "auto_augment": "shiftproof.shifts.augment.policies:AutoAugment",
    "augmix": "shiftproof.shifts.augment.policies:AugMix",
    "fouriermix": "shiftproof.shifts.spectral.fouriermix:FourierMix",
    "prime": "shiftproof.shifts.augment.max_entropy:Prime",
    "coloured_noise": "shiftproof.shifts.spectral.random_spectra:ColouredNoise",
    "random_blur": "shiftproof.shifts.spectral.random_spectra:RandomBlur",
    "colour_cast": "shiftproof.shifts.augment.casting:ColourCast",
    "random_wave": "shiftproof.shifts.spectral.random_spectra:RandomWave",
    "veil": "shiftproof.shifts.spectral.random_spectra:Veil",
    "pad_crop": "shiftproof.shifts.augment.framing:PadCrop",
    "random_translate": "shiftproof.shifts.augment.framing:RandomTranslate",
    "random_erase": "shiftproof.shifts.augment.framing:RandomErase",
    "occlude": "shiftproof.shifts.augment.occluding:Occlude",
    "flip_crop": "shiftproof.shifts.augment.framing:FlipCrop",
}
"""Name -> lazy target."""


@dataclass(frozen=True)
class Parametric(ImageShift):
    """A shift whose dataclass fields are its parameters; its strength is in them, so its severity is always 1."""

    name: str = field(default="", init=False)
    severity: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in hints(type(self)):
            object.__setattr__(self, name, read(type(self), name, getattr(self, name), self.name))

    @property
    def label(self) -> str:
        """The text form: the name and, in brackets, the parameters that are not at their default."""
        return f"{self.name}{bracketed(stated(self))}"

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def require(self, holds: bool, expected: str) -> None:
        """Refuse these parameters unless the condition holds."""
        if not holds:
            got = ", ".join(f"{key}={written(value)}" for key, value in self.parameters().items())
            raise ConfigurationError(f"Shift {self.name!r} cannot have these parameters.", expected=expected, got=got)


def made_of(form: Form) -> Parametric:
    """Return the shift that a text such as `power_law[eps=8,center=4,alpha=1]` or `augmix` stands for."""
    kind: type[Parametric] = resolve(FORMS, form.name, "shift")
    if form.sign:
        raise form.unreadable("a name and, in brackets, name=value pairs, such as power_law[eps=8,center=4,alpha=1]")
    values = typed(kind, form.fields, form.name)
    if lacking := missing(kind, values):
        raise form.unreadable(f"values for {', '.join(lacking)}")
    return kind(**values)
