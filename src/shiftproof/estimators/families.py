"""Families of shifts to calibrate on: shifts of one family are alike, those of two families are not.

How far off an estimate is for a shift of a kind nobody has thought of can only be learnt by leaving out whole families,
one after the other. None of the fifteen common corruptions is here: audits and benchmarks test on those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from shiftproof.data import Dataset
from shiftproof.estimators import rearrangements as re
from shiftproof.shifts import Corruption, Shift, facts, parse

CLASS_MIX = "class mix"
"""The family of copies whose inputs are as they were, in other shares of the classes."""

MIXES = (5.0, 1.0, 0.5, 0.2)
"""Concentrations of the Dirichlet draws of classes of which there are copies: the lower, the fewer classes."""

IMAGES: Mapping[str, Sequence[str | Shift]] = {
    "noise": ("speckle_noise@1", "speckle_noise@3", "speckle_noise@5", "plasma_noise@3", "cocentric_sine_waves@3"),
    "blur": ("gaussian_blur@1", "gaussian_blur@3", "gaussian_blur@5", "circular_motion_blur@3"),
    "weather": ("spatter@1", "spatter@3", "spatter@5", "sparkles@2", "sparkles@4"),
    "digital": ("posterize=3", "posterize=2", "sharpness=6", "pinch_and_twirl@2", "pinch_and_twirl@4"),
    "colour": ("grayscale", re.ChannelOrder(), "invert", re.Gamma(power=2.0), re.Gamma(power=0.4), "red_shift=60"),
    "geometry": ("rotate=15", "rotate=45", "rotate=90", "rotate=180", "shear_x=0.4"),
    "scale and position": ("scale=0.7", "scale=0.5[fill=reflect]", "scale=1.5", "scale=2", "translate_x=0.3"),
    "occlusion": (
        re.Occlusion(part="centre", share=0.25),
        re.Occlusion(part="left", share=0.5),
        re.Occlusion(part="patches", share=0.3, level=0.5),
        re.Occlusion(part="patches", share=0.6),
    ),
    "composition": (
        re.DoubleExposure(weight=0.2),
        re.DoubleExposure(weight=0.4),
        re.Tiles(a_side=2),
        re.ShuffledPatches(a_side=2),
        re.ShuffledPatches(a_side=4),
    ),
    "resolution": (
        re.LowResolution(factor=1.5),
        re.LowResolution(factor=2.0, back="bilinear"),
        re.LowResolution(factor=2.0),
        re.LowResolution(factor=3.0, back="bilinear"),
        re.LowResolution(factor=4.0),
    ),
}
"""Family -> shifts of images, at several strengths."""

TEXTS: Mapping[str, Sequence[str | Shift]] = {
    "words": tuple(f"{name}@{level}" for name in ("synonym_replacement", "random_replacement") for level in (1, 3, 5)),
    "order": tuple(f"{name}@{level}" for name in ("random_swap", "random_insertion") for level in (1, 3, 5)),
    "loss": tuple(f"random_deletion@{level}" for level in (1, 2, 3, 5)),
    "typing": tuple(f"typos@{level}" for level in (1, 2, 3, 5)),
    "scanning": tuple(f"{name}@{level}" for name in ("ocr_confusions", "spacing") for level in (1, 3, 5)),
    "register": tuple(f"{name}@{level}" for name in ("letter_case", "dropped_punctuation") for level in (1, 3, 5)),
}
"""Family -> edits of texts, at several strengths."""


def shifts_of(source: Dataset) -> tuple[Shift, ...]:
    """Return the shifts that suit a set, family by family."""
    return tuple(each for some in families_for(source.kind).values() for each in some)


def family_of(shift: Shift) -> str:
    """Return the family of a shift: that of its name, the category of a corruption, or else a family of its own."""
    by_name = {each.name: family for family, some in families_for(shift.acts_on).items() for each in some}
    told = by_name.get(shift.name) or (
        facts(shift.name)["category"] if isinstance(shift, Corruption) else shift.category
    )
    return shift.name if told in ("other", "text") else told


@cache
def families_for(kind: str) -> Mapping[str, tuple[Shift, ...]]:
    """Return the families for a kind of inputs, `images` or `texts`."""
    table = TEXTS if kind == "texts" else IMAGES
    return {
        family: tuple(parse(each) if isinstance(each, str) else each for each in some) for family, some in table.items()
    }
