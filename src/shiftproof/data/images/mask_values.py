"""Values of label maps as classes: numbers, colours of a palette, published numberings, and the ignore label."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from shiftproof.data.images.decoding import Decoder, Size, open_image
from shiftproof.data.labels import listed_names
from shiftproof.errors import ConfigurationError, DataError

IGNORE = 255
"""The label of pixels that have none, in every set: whatever value says so in its files."""
NO_IGNORE = -1
"""What the user says where no value stands for pixels without a label."""
MOST_CLASSES = 255

Values: TypeAlias = NDArray[Any]
Palette: TypeAlias = Mapping[tuple[int, int, int], str]
PaletteLike: TypeAlias = str | Path | Mapping[Any, Any] | None

VOID = {"void", "unlabelled", "unlabeled", "ignore", "ignored", "none"}
"""Names of a palette that stand for no label."""
CITYSCAPES = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
    *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
)
CITYSCAPES_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
CAMVID = (*("sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist"),)
VOC = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa", "train", "tv monitor"),
)


class ReadMaps(NamedTuple):
    """Maps of classes, uint8 [H, W] with `IGNORE`, the names of the classes, and what a report should say of them."""

    maps: list[NDArray[np.uint8]]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class MaskRules:
    """How values become classes.

    `classes` names them, in the order of the model's outputs; `table` says which class each stored value is, others
    having no label; `palette` names colours. `ignore` is a value without one beside 255; `NO_IGNORE`: not that either.
    """

    classes: tuple[str, ...] = ()
    ignore: int | None = None
    palette: Palette | None = None
    table: Mapping[int, int] | None = None

    def changed(
        self,
        classes: str | Path | Sequence[str] = "auto",
        ignore_label: int | None = None,
        palette: PaletteLike = None,
    ) -> MaskRules:
        """Return the rules with what the user says, which goes before what a layout does."""
        names = listed_names(classes)
        return MaskRules(
            self.classes if names is None else tuple(names),
            self.ignore if ignore_label is None else ignore_label,
            self.palette if palette is None else read_palette(palette),
            self.table,
        )

    def read(self, values: Sequence[Values], names: Sequence[str]) -> ReadMaps:
        """Return maps of classes; what is outside the palette or the classes is refused with counts and a name."""
        coloured = [name for value, name in zip(values, names, strict=True) if value.ndim == 3]
        if coloured and len(coloured) < len(values):
            plain = next(name for value, name in zip(values, names, strict=True) if value.ndim != 3)
            raise DataError(
                "Some label maps have colours, and others numbers.",
                expected="maps of class numbers (one channel, or a palette file's indices), or colours in all",
                got=f"colours in {coloured[0]}, numbers in {plain}",
                fix="write all maps in one way; colours need --palette FILE (palette=)",
            )
        if coloured:
            return self._from_colours(values, names)
        if self.table is not None:
            return self._from_table(values)
        return self._from_numbers(values, names)

    def _from_table(self, values: Sequence[Values]) -> ReadMaps:
        table = self.table or {}
        made = [np.full(value.shape, IGNORE, np.uint8) for value in values]
        for one, value in zip(made, values, strict=True):
            for stored, label in table.items():
                one[value == stored] = label
        return ReadMaps(made, self.classes)

    def _from_colours(self, values: Sequence[Values], names: Sequence[str]) -> ReadMaps:
        if self.palette is None:
            raise DataError(
                "The label maps have colours, and nothing says which class each colour is.",
                expected="maps of class numbers (one channel, or a palette file's indices), or a table of colours",
                got=f"colours in {names[0]}",
                fix="--palette FILE (palette=) with a line 'red green blue name' for each class",
            )
        known = [name for name in dict.fromkeys(self.palette.values()) if name.lower() not in VOID]
        classes = self.classes or tuple(known)
        strange = [name for name in known if name not in classes]
        if strange:
            raise ConfigurationError(
                "The palette names classes that are not listed.",
                expected=f"names among {', '.join(classes[:20])}",
                got=", ".join(strange[:10]),
            )
        numbers = {
            _packed(np.array(colour)).item(): classes.index(name) if name in classes else IGNORE
            for colour, name in self.palette.items()
        }
        order = np.array(sorted(numbers))
        labels = np.array([numbers[code] for code in order], np.uint8)
        made = []
        for value, name in zip(values, names, strict=True):
            codes = _packed(value)
            place = np.searchsorted(order, codes).clip(max=len(order) - 1)
            outside = order[place] != codes
            if outside.any():
                first = value[outside][0].tolist()
                raise DataError(
                    "A label map has colours outside the palette.",
                    expected=f"{len(order)} colours of the palette",
                    got=f"{int(outside.sum()):,} of {outside.size:,} pixels of {name}, such as {first}",
                    fix="add them to the palette (the name void is no label); label maps must not be JPEG or resized",
                )
            made.append(labels[place])
        return ReadMaps(made, classes)

    def _from_numbers(self, values: Sequence[Values], names: Sequence[str]) -> ReadMaps:
        found = sorted({int(each) for value in values for each in np.unique(value)})
        ignore = self.ignore if self.ignore is not None else IGNORE
        if self.ignore is None and found == [0, 255] and len(self.classes) != 1:
            raise DataError(
                "The label maps hold 0 and 255, and it is unclear whether 255 is a class or means no label.",
                expected="maps of classes from 0",
                got="values 0 and 255",
                fix=f"--ignore-label {NO_IGNORE} (ignore_label={NO_IGNORE}): 255 is class 1; --ignore-label 255: none",
            )
        if ignore == NO_IGNORE and set(found) <= {0, 255}:
            values, found = [np.minimum(value, 1) for value in values], [0, 1]
        void = {ignore, IGNORE} if ignore != NO_IGNORE else set()
        used = [each for each in found if each not in void]
        if not used:
            raise DataError(
                "No pixel of the label maps has a class.",
                expected=f"values other than {ignore}, which means no label",
                got=f"values {found[:10]}",
            )
        count = len(self.classes) or used[-1] + 1
        outside = [each for each in used if not 0 <= each < count]
        if outside or count > MOST_CLASSES:
            pixels = sum(int(np.isin(value, outside).sum()) for value in values)
            name = next((name for value, name in zip(values, names, strict=True) if np.isin(value, outside).any()), "")
            raise DataError(
                "A label map has values that are not classes.",
                expected=f"0 to {min(count, MOST_CLASSES) - 1}, and {ignore} where there is no label",
                got=f"{', '.join(map(str, (outside or used)[-5:]))} in {pixels:,} pixels, first in {name}",
                fix=f"--ignore-label {(outside or used)[-1]} (ignore_label=) where it stands for no label; --classes "
                "FILE (classes=) lists all classes",
            )
        made = []
        for value in values:
            one = np.where(value == ignore, IGNORE, value) if void else value
            made.append(one.astype(np.uint8))
        notes = () if self.classes else (f"Classes are the numbers of the label maps: 0 to {count - 1}.",)
        return ReadMaps(made, self.classes or tuple(map(str, range(count))), notes)


def is_map(label: object) -> bool:
    """Whether a label is a map: a PIL image, or an array or tensor of two axes, or three where it is of colours."""
    if isinstance(label, Mapping):
        return {"bytes", "path"} <= label.keys()  # as Hugging Face's data sets hold images
    return isinstance(label, Image.Image) or (isinstance(label, np.ndarray | Tensor) and label.ndim in (2, 3))


def map_values(label: object, size: Size | None, name: str) -> Values:
    """Return the values of a map that is an object, as `read_mask` returns those of a file."""
    if isinstance(label, Mapping):
        return read_mask(label["path"] if label["bytes"] is None else io.BytesIO(label["bytes"]), size)
    if isinstance(label, np.ndarray | Tensor):
        array = label.detach().cpu().numpy() if isinstance(label, Tensor) else label
        array = array[0] if array.ndim == 3 and len(array) == 1 else array
        if array.dtype.kind not in "iub" or (array.ndim == 3 and array.shape[2] != 3):
            raise DataError(
                "This is not a label map.",
                expected="whole numbers [H, W], or colours [H, W, 3]",
                got=f"{array.dtype} of shape {array.shape} ({name})",
            )
        if size is None:
            return array.astype(np.uint8) if array.dtype == bool else array
        label = Image.fromarray(array.astype(np.uint8 if array.ndim == 3 else np.int32))
    if isinstance(label, Image.Image):
        return mask_values(label, size)
    raise DataError(
        "Some images have no label map.", expected="a label map for each image", got=f"{type(label).__name__} ({name})"
    )


def refuse_map_options(ignore_label: int | None, palette: object) -> None:
    """Refuse what is said of label maps where there are none."""
    for name, option in (("ignore_label", ignore_label), ("palette", palette)):
        if option is not None:
            raise ConfigurationError(
                f"{name}= goes with label maps, and the labels are classes.", fix=f"leave {name} out"
            )


def described(classes: Sequence[str]) -> bool:
    """Whether class names only count."""
    return all(name == str(place) for place, name in enumerate(classes))


def read_mask(file: str | Path | Any, size: Size | None = None) -> Values:
    """Return the stored values of a label map's file, [H, W], or its colours [H, W, 3]; `size` as of its image."""
    with open_image(file) as image:
        if image.format in ("JPEG", "MPO"):
            raise DataError("It is a JPEG, which does not keep labels: label maps are PNG, TIFF, BMP or GIF files.")
        image.load()
        return mask_values(image, size)


def mask_values(image: Image.Image, size: Size | None = None) -> Values:
    """Return the values of an open label map; a palette's are its indices, never its colours."""
    if image.mode in ("RGBA", "RGBX"):
        image = image.convert("RGB")
    elif image.mode == "LA":
        image = image.getchannel(0)
    if image.mode not in ("1", "L", "P", "RGB") and not image.mode.startswith("I"):
        raise DataError(f"Its mode is {image.mode}, which holds no labels.")
    fitted = Decoder("rgb", size).fit(image, Image.Resampling.NEAREST)
    found = np.array(fitted)
    return found.astype(np.uint8) if found.dtype == bool else found


def read_palette(given: str | Path | Mapping[Any, Any]) -> Palette:
    """Return colours with the names of their classes: a mapping, JSON, or lines of three numbers and a name.

    Names stand before or after the numbers, with commas, tabs or spaces between, as CamVid's label_colors.txt and
    class_dict.csv have them.
    """
    if isinstance(given, Mapping):
        return _mapped(given)
    path = Path(given)
    try:
        text = path.read_text("utf-8-sig")
        if path.suffix == ".json":
            return _mapped(json.loads(text))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"Cannot read the palette {str(path)!r}.",
            expected="a text file with a line 'red green blue name' for each class, or JSON: names with colours",
            got=getattr(error, "strerror", None) or str(error),
        ) from error
    found: dict[tuple[int, int, int], str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part for part in re.split(r"[,;\t ]+", line.strip()) if part]
        numbers = [place for place, part in enumerate(parts) if part.isdigit()]
        if not parts or (number == 1 and not numbers):
            continue
        run = numbers[:3] if numbers[:1] == [0] else numbers[-3:]
        name = " ".join(part for place, part in enumerate(parts) if place not in run)
        if len(run) < 3 or not name:
            raise ConfigurationError(
                f"Line {number} of the palette {str(path)!r} is not a colour and a name.",
                expected="three numbers from 0 to 255 and a name, such as 64 128 64 animal",
                got=line[:80],
            )
        colour = tuple(int(parts[place]) for place in run)
        found[_colour(colour)] = name
    return found


def _mapped(given: Mapping[Any, Any]) -> Palette:
    """Return a palette from colours with names, or names with colours."""
    pairs = [(colour, name) if isinstance(name, str) else (name, colour) for colour, name in given.items()]
    return {_colour(tuple(colour)): str(name) for colour, name in pairs}


def _colour(given: Sequence[Any]) -> tuple[int, int, int]:
    if len(given) != 3 or not all(isinstance(each, int) and 0 <= each <= 255 for each in given):
        raise ConfigurationError(
            "A palette colour has three numbers.", expected="red, green and blue from 0 to 255", got=str(given)
        )
    return given[0], given[1], given[2]


def _packed(colours: Values) -> NDArray[np.int64]:
    """Return colours [..., 3] as one number each."""
    wide = colours.astype(np.int64)
    packed: NDArray[np.int64] = wide[..., 0] << 16 | wide[..., 1] << 8 | wide[..., 2]
    return packed
