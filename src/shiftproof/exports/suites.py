"""What a corrupted copy of a data set is made of: shifts, each with a place, one by one or as a published suite."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shiftproof.data.images.decoding import Size
from shiftproof.errors import ConfigurationError
from shiftproof.shifts.base import Shift
from shiftproof.shifts.catalogue import as_image_shift, corruption, facts, names
from shiftproof.shifts.chain import ImageChain
from shiftproof.shifts.corruptions.corruption import Corruption
from shiftproof.shifts.image_shift import ImageShift
from shiftproof.shifts.tables import Preset, check_preset

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Target:
    """A shift and where its images go.

    `path` is a folder within the output, or an array's file, of which the images of this shift are block `block`.
    """

    shift: ImageShift
    path: str
    block: int = 0

    @property
    def preset(self) -> str | None:
        """The severity table of the shift or of its steps, where one is fixed."""
        steps = self.shift.steps if isinstance(self.shift, ImageChain) else (self.shift,)
        fixed = dict.fromkeys(step.preset for step in steps if isinstance(step, Corruption) and step.preset)
        return ", ".join(fixed) or None


@dataclass(frozen=True)
class Suite:
    """A published set: every corruption of some families at severities 1 to 5.

    `arrays` says whether a corruption is one array of all severities in turn, or a folder of files for each. Images are
    brought to `size` first.
    """

    name: str
    preset: Preset
    families: tuple[str, ...]
    arrays: bool
    size: Size | None = None

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The corruptions that were published at this preset."""
        every = (name for family in self.families for name in names(family))
        return tuple(name for name in every if self.preset in facts(name).get("published", (self.preset,)))

    def targets(self, textures: str | None = None) -> tuple[Target, ...]:
        """Return every corruption at every severity; `textures` are photographs for frost."""
        return tuple(
            Target(self._shift(name, severity, textures), self._path(name, severity), self.arrays * (severity - 1))
            for name in self.corruptions
            for severity in SEVERITIES
        )

    def _shift(self, name: str, severity: int, textures: str | None) -> ImageShift:
        options = {"textures": textures} if name == "frost" and textures is not None else {}
        return corruption(name, severity, self.preset, **options)

    def _path(self, name: str, severity: int) -> str:
        if self.arrays:
            return f"{name}.npy"
        if "bar" in self.families:  # published under their strengths, such as sparkles/3.00
            return f"{name}/{facts(name)[self.preset]['strength'][severity - 1]:.2f}"
        return f"{name}/{severity}"


_C, _BAR = ("common", "holdout"), ("bar",)
_CROPPED = (256, 224)

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite("imagenet-c", "imagenet", _C, arrays=False, size=_CROPPED),
        Suite("imagenet-c-bar", "imagenet", _BAR, arrays=False, size=_CROPPED),
        Suite("cifar-c", "cifar", _C, arrays=True),
        Suite("cifar-c-bar", "cifar", _BAR, arrays=True),
    )
}
"""The sets of Hendrycks & Dietterich 2019 and Mintun et al. 2021, by name."""


def shift_targets(shifts: Sequence[str | Shift], *, preset: str | None = None, arrays: bool) -> tuple[Target, ...]:
    """Return a target for each shift: an array, the output folder itself for a single one, `fog/3` for one of several.

    `preset` fixes the severity table of corruptions that do not name one.
    """
    if preset is not None:
        check_preset(preset)
    found = [as_image_shift(shift) for shift in shifts]
    if arrays:
        paths = [f"{_file_name(shift.label)}.npy" for shift in found]
    else:
        paths = [""] if len(found) == 1 else [_folder(shift) for shift in found]
    for index, path in enumerate(paths):
        if (first := paths.index(path)) < index:
            both = f"{found[first].label} and {found[index].label}"
            raise ConfigurationError("Two shifts would be written to the same place.", got=both, fix="write them apart")
    return tuple(Target(_at(shift, preset), path) for shift, path in zip(found, paths, strict=True))


def _at(shift: ImageShift, preset: str | None) -> ImageShift:
    """Return a shift with its corruptions at a preset, where they have none."""
    if isinstance(shift, ImageChain):
        return ImageChain(steps=[_at(step, preset) for step in shift.steps])
    return replace(shift, preset=preset) if isinstance(shift, Corruption) and shift.preset is None else shift


def _folder(shift: Shift) -> str:
    if isinstance(shift, Corruption):
        return f"{shift.name}/{shift.severity:g}"
    return _file_name(shift.label)


def _file_name(label: str) -> str:
    """Return a label as a file's name: `fog@3+jpeg_compression@2`, `rotate=15[fill=reflect]`."""
    return re.sub(r"[^\w.@=+,\[\]-]+", "_", label.replace(" + ", "+"))
