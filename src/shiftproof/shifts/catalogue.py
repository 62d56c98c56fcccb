"""Every shift by name: families, facts for tables, and the text form that names a shift anywhere.

fog@3.5                                  a corruption at a severity
contrast=0.8, grayscale                  an operation at a level
power_law[eps=8,center=4,alpha=1]        a shift with parameters of its own
fog@3 + jpeg_compression@2               a chain
typos@3, eda@2[wordnet=folder]           a text shift
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shiftproof.errors import ConfigurationError
from shiftproof.models.identity import plugin_codes
from shiftproof.registry import Registry, unknown
from shiftproof.shifts import parametric, tables
from shiftproof.shifts.base import Shift
from shiftproof.shifts.chain import JOINT, ImageChain
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.forms import missing, split, typed
from shiftproof.shifts.image_shift import ImageShift
from shiftproof.shifts.operations import operation
from shiftproof.shifts.text import TextChain, TextShift
from shiftproof.shifts.text import registry as text_registry

RECIPES: Mapping[str, Mapping[str, str]] = {
    "common": {
        "gaussian_noise": "shiftproof.shifts.corruptions.noise:GaussianNoise",
        "shot_noise": "shiftproof.shifts.corruptions.noise:ShotNoise",
        "impulse_noise": "shiftproof.shifts.corruptions.noise:ImpulseNoise",
        "speckle_noise": "shiftproof.shifts.corruptions.noise:SpeckleNoise",
        "gaussian_blur": "shiftproof.shifts.corruptions.blur:GaussianBlur",
        "defocus_blur": "shiftproof.shifts.corruptions.blur:DefocusBlur",
        "glass_blur": "shiftproof.shifts.corruptions.blur:GlassBlur",
        "motion_blur": "shiftproof.shifts.corruptions.blur:MotionBlur",
        "zoom_blur": "shiftproof.shifts.corruptions.blur:ZoomBlur",
        "snow": "shiftproof.shifts.corruptions.weather:Snow",
        "frost": "shiftproof.shifts.corruptions.weather:Frost",
        "fog": "shiftproof.shifts.corruptions.weather:Fog",
        "spatter": "shiftproof.shifts.corruptions.weather:Spatter",
        "brightness": "shiftproof.shifts.corruptions.digital:Brightness",
        "contrast": "shiftproof.shifts.corruptions.digital:Contrast",
        "elastic_transform": "shiftproof.shifts.corruptions.digital:ElasticTransform",
        "pixelate": "shiftproof.shifts.corruptions.digital:Pixelate",
        "jpeg_compression": "shiftproof.shifts.corruptions.digital:JpegCompression",
        "saturate": "shiftproof.shifts.corruptions.digital:Saturate",
    },
    "bar": {
        "blue_noise_sample": "shiftproof.shifts.corruptions.bar_overlay:BlueNoiseSample",
        "brownish_noise": "shiftproof.shifts.corruptions.bar_noise:BrownishNoise",
        "caustic_refraction": "shiftproof.shifts.corruptions.bar_warp:CausticRefraction",
        "checkerboard_cutout": "shiftproof.shifts.corruptions.bar_overlay:CheckerboardCutout",
        "circular_motion_blur": "shiftproof.shifts.corruptions.bar_blur:CircularMotionBlur",
        "cocentric_sine_waves": "shiftproof.shifts.corruptions.bar_noise:CocentricSineWaves",
        "inverse_sparkles": "shiftproof.shifts.corruptions.bar_overlay:InverseSparkles",
        "lines": "shiftproof.shifts.corruptions.bar_overlay:Lines",
        "perlin_noise": "shiftproof.shifts.corruptions.bar_noise:PerlinNoise",
        "pinch_and_twirl": "shiftproof.shifts.corruptions.bar_warp:PinchAndTwirl",
        "plasma_noise": "shiftproof.shifts.corruptions.bar_noise:PlasmaNoise",
        "ripple": "shiftproof.shifts.corruptions.bar_warp:Ripple",
        "single_frequency_greyscale": "shiftproof.shifts.corruptions.bar_noise:SingleFrequencyGreyscale",
        "sparkles": "shiftproof.shifts.corruptions.bar_overlay:Sparkles",
        "transverse_chromatic_abberation": "shiftproof.shifts.corruptions.bar_blur:TransverseChromaticAbberation",
    },
}
"""Table -> corruption -> lazy target, in the order listings show them."""

FAMILIES: Mapping[str, str] = {
    "common": "the fifteen corruptions of the benchmark (Hendrycks & Dietterich 2019), fog@3",
    "holdout": "the four kept for choosing hyper-parameters, speckle_noise@3",
    "bar": "corruptions unlike the common ones (Mintun et al. 2021), ripple@3",
    "spectral": "noise of a chosen frequency, power_law[eps=8,center=4,alpha=1]",
    "enhance": "Pillow's enhancement operations at a level, contrast=0.8",
    "geometric": "moves of the image at a level, rotate=15",
    "augment": "random policies of training and neighbourhoods, augmix",
    "everyday": "what happens to texts on their way to a model, typos@3",
    "edits": "edits of texts for neighbourhoods, eda@2",
    "plugins": "corruptions of other installed packages, and those registered in this process",
}
"""Family -> what it is, with an example of its text form."""


TABLED = ("common", "holdout", "bar")
"""The families of corruptions, whose severities come from tables."""
PLUGINS = "plugins"
OTHERS: Registry[type[ImageShift]] = Registry(
    "shift",
    "shiftproof.shifts",
    {},
    lambda found: isinstance(found, type) and issubclass(found, ImageShift),
    "a class derived from shifts.ImageShift",
    lambda: (*_corruptions(), *operation.KINDS, *parametric.FORMS, *text_registry.SHIFTS),
)
"""What others add: classes of shifts, made as `Class(name=name, severity=severity)`."""


def families() -> tuple[str, ...]:
    """Return the names of the families of shifts."""
    return tuple(FAMILIES)


def names(family: str = "common") -> tuple[str, ...]:
    """Return the names of a family's shifts.

    Args:
        family: A family of `families()`.

    >>> names("holdout")
    ('speckle_noise', 'gaussian_blur', 'spatter', 'saturate')
    """
    if family not in FAMILIES:
        raise unknown("family of shifts", family, FAMILIES)
    if family in TABLED:
        return tuple(name for name in _corruptions() if facts(name)["family"] == family)
    if family in text_registry.FAMILIES:
        return tuple(text_registry.FAMILIES[family])
    if family == PLUGINS:
        return tuple(name for name, _ in OTHERS.load_all())
    if family in ("enhance", "geometric"):
        return tuple(operation.ENHANCE if family == "enhance" else operation.GEOMETRIC)
    spectral = family == "spectral"
    return tuple(name for name, target in parametric.FORMS.items() if ("shifts.spectral:" in target) == spectral)


def corruption(name: str, severity: float, preset: str | None = None, **options: Any) -> ImageShift:
    """Make a corruption by name: `corruption("fog", 3.5)`, `corruption("frost", 3, textures="photographs/")`.

    Corruptions of plugins are made by their own classes; options given as text are converted by their annotations.

    Args:
        name: The name of a corruption (`shiftproof list shifts`).
        severity: From 0, no change, to 5.
        preset: The table of parameters, `imagenet` or `cifar`; None chooses by image size.
        options: Options of the corruption.

    >>> corruption("fog", 3.5).label
    'fog@3.5'
    """
    check_name(name)
    known = _corruptions()
    if name not in known and name in OTHERS:
        return _of_package(name, severity, options if preset is None else {**options, "preset": preset})
    if name not in known:
        raise unknown("corruption", name, [*known, *OTHERS])
    return Corruption(name=name, severity=severity, preset=preset, family=known[name], options=tuple(options.items()))


def _of_package(name: str, severity: float, options: Mapping[str, Any]) -> ImageShift:
    kind = OTHERS.load(name)
    own = ("name", "severity")
    values = typed(kind, options, name, without=own)
    if lacking := missing(kind, values, without=own):
        raise ConfigurationError(f"The corruption {name!r} needs values.", expected=", ".join(lacking), got="none")
    return kind(name=name, severity=severity, **values)


def check_name(name: object) -> None:
    """Refuse what is not the name of a corruption, where severities are chosen apart."""
    if not isinstance(name, str):
        raise ConfigurationError(
            "Corruptions must be given by name here.",
            expected="a name such as 'fog', or a family of them; severities are chosen apart",
            got=f"the shift {name.label}" if isinstance(name, Shift) else f"a {type(name).__name__}",
            fix="certify, corrupt, estimate and compare_methods accept shift objects",
        )


def as_shift(shift: str | Shift) -> Shift:
    """Return a shift from a shift or its text form; anything else is an error.

    Args:
        shift: A shift, or its text form.
    """
    if isinstance(shift, str):
        return parse(shift)
    if isinstance(shift, Shift):
        return shift
    raise ConfigurationError(
        "Invalid shift.",
        expected="a text such as fog@3, or a shift such as shifts.corruption('fog', 3)",
        got=f"a {type(shift).__name__}",
    )


def as_image_shift(shift: str | Shift) -> ImageShift:
    """Return an image shift from a shift or its text form; a text shift is an error.

    Args:
        shift: A shift of images, or its text form.
    """
    found = as_shift(shift)
    if isinstance(found, ImageShift):
        return found
    raise ConfigurationError(
        f"The shift {found.label} acts on {found.acts_on}, and these are images.",
        expected="shifts of images, such as fog@3 or contrast=0.8",
    )


def coded(text: str) -> dict[str, dict[str, str]]:
    """Return what an identity holds besides a text that names shifts: digests of those of other packages."""
    found = plugin_codes(OTHERS, text)
    return {"code": found} if found else {}


def facts(name: str) -> Mapping[str, Any]:
    """Return facts about a corruption: family, category, monotone and, for images, frequency and moves.

    Args:
        name: The name of a corruption.
    """
    if name in text_registry.SHIFTS:
        return text_registry.text_facts(name)
    if name in _corruptions():
        return {"moves": False, **tables.table(_corruptions()[name])[name]}
    made = corruption(name, 0)
    own = {"category": made.category, "frequency": made.frequency, "monotone": made.monotone, "moves": made.moves}
    return {"family": PLUGINS, **own}


def parse(text: str) -> Shift:
    """Parse the text form of a shift, such as `fog@3.5`, `contrast=0.8`, `augmix` or `fog@3 + contrast=0.8`.

    Args:
        text: The text form of a shift.

    >>> parse("fog@3.5").severity
    3.5
    """
    if text.strip() == "identity":
        return ImageChain()
    parts = re.split(r"\s*\+\s*(?=[a-z])", text.strip())  # a plus before a digit belongs to a number
    if len(parts) > 1:
        return _chain([_single(part) for part in parts])
    return _single(parts[0])


def named_at(name: str, severity: float, **options: Any) -> Shift:
    """Return the corruption of images or texts of a name at a severity."""
    make = text_registry.text_shift if name in text_registry.SHIFTS else corruption
    return make(name, severity, **options)


def _single(text: str) -> Shift:
    form = split(text)
    name = form.name
    if form.sign == "@":
        return named_at(name, form.number or 0.0, **form.fields)
    if name in parametric.FORMS:
        return parametric.made_of(form)
    if name in operation.KINDS and (name not in _corruptions() or form.sign):
        return operation.made_of(form)
    if name in _corruptions() or name in text_registry.SHIFTS or name in OTHERS:
        expected = "a corruption's name, @ and a severity from 0 to 5, such as fog@3 or fog@3.5"
        raise form.unreadable(expected, "no severity")
    raise unknown("shift", name, [*OTHERS.taken(), *OTHERS])


def _chain(steps: list[Shift]) -> Shift:
    """Return a chain of image shifts, or of text shifts; the two do not mix."""
    texts = [step for step in steps if isinstance(step, TextShift)]
    images = [step for step in steps if isinstance(step, ImageShift)]
    if texts and images:
        raise ConfigurationError(
            "A chain acts on images or on texts, not on both.", got=JOINT.join(step.label for step in steps)
        )
    return TextChain(steps=texts) if texts else ImageChain(steps=images)


def _corruptions() -> dict[str, str]:
    """Return every corruption's table, by corruption."""
    return {name: table for table, recipes in RECIPES.items() for name in recipes}
