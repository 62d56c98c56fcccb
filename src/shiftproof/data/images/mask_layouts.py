"""Folders of images and label maps as they are published: two trees, whose files have the same names but for an ending.

Cityscapes, ACDC, ADE20K, Pascal VOC and CamVid are known by their folders; other sets by names such as `images` and
`masks`, with parts above (`train/images`) or below (`images/train`), or by files such as `a.jpg` and `a_mask.png`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from shiftproof.data.images.decoding import open_image
from shiftproof.data.images.file_lists import images_under
from shiftproof.data.images.mask_pairs import path_stem
from shiftproof.data.images.mask_values import CAMVID, CITYSCAPES, CITYSCAPES_IDS, IGNORE, VOC, MaskRules
from shiftproof.errors import DataError
from shiftproof.runs.files import is_hidden

IMAGE_FOLDERS = ("images", "image", "imgs", "img", "img_dir", "rgb")
MASK_FOLDERS = (
    *("labels", "label", "masks", "mask", "annotations", "annotation", "ann_dir", "gt", "groundtruth"),
    *("ground_truth", "segmentation", "segmentations", "seg"),
)
MASK_TAILS = ("_mask", "-mask", "_masks", "_seg", "_segmentation", "_label", "_labels", "_gt", "_L", "_trainids")
PART_TAILS = ("annot", "_annot", "-annot", "_labels", "-labels", "_masks", "-masks", "_mask")
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")
ADE_CLASSES, CITY_TAIL = 150, "_leftImg8bit"
CITY_MAPS = ("_gtFine_labelTrainIds", "_gtFine_labelIds", "_gtCoarse_labelTrainIds", "_gtCoarse_labelIds")
_CAMVID_FILES = re.compile(r"(0001TP|0006R0|0016E5|Seq05VD|01TP)_")
_SAMPLE, _FEW = 4, 64


@dataclass(frozen=True)
class MaskLayout:
    """Where images and maps are: two folders below a root, endings of names, the parts there are, and the rules.

    `listed` is a folder with a text file of names for each part, as Pascal VOC has.
    """

    what: str
    root: Path
    images: str
    maps: str
    image_tail: str = ""
    map_tail: str = ""
    parts: tuple[str, ...] = ()
    rules: MaskRules = field(default_factory=MaskRules)
    listed: str = ""

    def part(self, split: str | None) -> tuple[Path, Path, set[str] | None]:
        """Return the folders of images and maps of a part, and the stems that belong to it where a list says."""
        if split is None and len(self.parts) > 1:
            raise DataError(
                f"The folder {str(self.root)!r} holds parts of {self.what}.",
                expected="one of its parts",
                got=", ".join(self.parts),
                fix=f"--split {self.parts[-1]} (split={self.parts[-1]!r})",
            )
        chosen = split or (self.parts[0] if self.parts else None)
        if chosen is not None and chosen not in self.parts:
            raise DataError(
                f"There is no split {chosen!r} in {str(self.root)!r}.",
                expected="one of its parts",
                got=", ".join(self.parts) or "none",
            )
        if self.listed and chosen is not None:
            names = (self.root / self.listed / f"{chosen}.txt").read_text("utf-8").split()
            return self.root / self.images, self.root / self.maps, set(names)
        images, maps = (name.format(part=chosen or "") for name in (self.images, self.maps))
        return self.root / images, self.root / maps, None

    def pairs(self, split: str | None) -> tuple[list[tuple[Path, Path]], list[str], list[str]]:
        """Return each image with its map, in the order of names, the images without a map, and maps without an image.

        Of one folder for both, images are the files without the ending of maps.
        """
        at, maps_at, names = self.part(split)
        images = {self._key(file, self.image_tail): file for file in images_under(at)}
        maps = {self._key(file, self.map_tail): file for file in images_under(maps_at)}
        if at == maps_at:
            images = {key: file for key, file in images.items() if key not in _files(maps, self.map_tail)}
        images.pop("", None)
        maps.pop("", None)
        if names is not None:
            images = {key: file for key, file in images.items() if key in names}
            maps = {key: file for key, file in maps.items() if key in names}
        found = [(at / file, maps_at / maps[key]) for key, file in sorted(images.items()) if key in maps]
        alone = [file for key, file in sorted(images.items()) if key not in maps]
        orphans = [file for key, file in sorted(maps.items()) if key not in images]
        return found, alone, orphans

    @staticmethod
    def _key(file: str, tail: str) -> str:
        """Return what an image and its map share: the path without its suffix and ending; nothing where it has none."""
        whole = path_stem(file)
        return whole.removesuffix(tail) if whole.endswith(tail) else ""


def _files(maps: dict[str, str], tail: str) -> set[str]:
    return {f"{key}{tail}" for key in maps}


def find_masks(root: Path) -> MaskLayout | None:
    """Return the layout of a folder of images and label maps; None where it is none."""
    for find in (_cityscapes, _voc, _trees, _camvid, _suffixes, _beside):
        layout = find(root)
        if layout is not None:
            return layout
    return None


def _cityscapes(root: Path) -> MaskLayout | None:
    for images, maps, tail, tails in (
        ("leftImg8bit", "gtFine", CITY_TAIL, CITY_MAPS),
        ("leftImg8bit", "gtCoarse", CITY_TAIL, CITY_MAPS),
        ("rgb_anon", "gt", "_rgb_anon", ("_gt_labelTrainIds", "_gt_labelIds")),
    ):
        if (root / images).is_dir() and (root / maps).is_dir():
            files = [path_stem(file) for file in images_under(root / maps)]
            end = next((end for end in tails if any(file.endswith(end) for file in files)), None)
            if end is None:
                continue
            table = {stored: place for place, stored in enumerate(CITYSCAPES_IDS)} if end.endswith("Ids") else None
            table = None if end.endswith("TrainIds") else table
            rules = MaskRules(CITYSCAPES, IGNORE, table=table)
            parts = _folders(root / images)
            return MaskLayout("Cityscapes", root, images + "/{part}", maps + "/{part}", tail, end, parts, rules)
    return None


def _voc(root: Path) -> MaskLayout | None:
    if not (root / "JPEGImages").is_dir() or not (root / "SegmentationClass").is_dir():
        return None
    lists = sorted(file.stem for file in (root / "ImageSets" / "Segmentation").glob("*.txt"))
    rules = MaskRules(VOC, IGNORE)
    where = "ImageSets/Segmentation" if lists else ""
    return MaskLayout("Pascal VOC", root, "JPEGImages", "SegmentationClass", "", "", tuple(lists), rules, where)


def _trees(root: Path) -> MaskLayout | None:
    """Return two trees by the names of their folders, with parts below or above them."""
    entries = {entry.lower(): entry for entry in _folders(root)}
    images = next((entries[name] for name in IMAGE_FOLDERS if name in entries), None)
    maps = next((entries[name] for name in MASK_FOLDERS if name in entries), None)
    if images is not None and maps is not None:
        below = [part for part in _folders(root / images) if part in _folders(root / maps)]
        parts = tuple(below) if below and set(map(str.lower, below)) <= set(SPLITS) else ()
        inner = "/{part}" if parts else ""
        layout = MaskLayout("a set of images and label maps", root, images + inner, maps + inner, parts=parts)
        return _tailed(_ade(layout))
    parts = tuple(part for part in _folders(root) if part.lower() in SPLITS)
    inside = {part: _trees(root / part) for part in parts}
    first = next((found for found in inside.values() if found is not None), None)
    if first is None:
        return None
    usable = tuple(part for part in parts if inside[part] is not None)
    images, maps = f"{{part}}/{first.images}", f"{{part}}/{first.maps}"
    return MaskLayout(first.what, root, images, maps, map_tail=first.map_tail, parts=usable, rules=first.rules)


def _ade(layout: MaskLayout) -> MaskLayout:
    """Return ADE20K's rules where a tree is its: 0 is no label, and classes begin at 1."""
    marks = ("objectInfo150.txt", "sceneCategories.txt")
    if layout.root.name != "ADEChallengeData2016" and not any((layout.root / mark).is_file() for mark in marks):
        return layout
    table = {stored + 1: stored for stored in range(ADE_CLASSES)}
    rules = MaskRules(_ade_names(layout.root), IGNORE, table=table)
    return MaskLayout("ADE20K", layout.root, layout.images, layout.maps, parts=layout.parts, rules=rules)


def _ade_names(root: Path) -> tuple[str, ...]:
    """Return the names in objectInfo150.txt, the first of each, or numbers from 1 where it is not there."""
    try:
        lines = (root / "objectInfo150.txt").read_text("utf-8").splitlines()[1:]
        names = [line.split("\t")[-1].split(",")[0].strip() for line in lines if line.strip()]
    except OSError:
        names = []
    unique = [name if names.index(name) == place else f"{name} {place + 1}" for place, name in enumerate(names)]
    return tuple(unique) if len(unique) == ADE_CLASSES else tuple(f"class {place + 1}" for place in range(ADE_CLASSES))


def _camvid(root: Path) -> MaskLayout | None:
    """Return folders of parts with maps in folders of the same name and an ending: train, trainannot."""
    entries = _folders(root)
    for tail in PART_TAILS:
        parts = tuple(part for part in entries if f"{part}{tail}" in entries)
        if parts and set(map(str.lower, parts)) <= set(SPLITS):
            files = [file for part in parts for file in images_under(root / part)]
            known = files and all(_CAMVID_FILES.match(Path(file).name) for file in files)
            rules = MaskRules(CAMVID, len(CAMVID)) if known else MaskRules()
            layout = MaskLayout(
                "CamVid" if known else "a set", root, "{part}", "{part}" + tail, parts=parts, rules=rules
            )
            return layout if _has_maps(layout) else None
    return None


def _beside(root: Path) -> MaskLayout | None:
    """Return one part that is named itself, and has its maps in the folder beside it: train, where trainannot is."""
    whole = _camvid(root.parent) if root.name.lower() in SPLITS else None
    return None if whole is None or root.name not in whole.parts else replace(whole, parts=(root.name,))


def _suffixes(root: Path) -> MaskLayout | None:
    """Return a folder with images and maps side by side, whose names have an ending."""
    files = [file for file in images_under(root) if "/" not in file]
    stems = {path_stem(file) for file in files}
    for tail in MASK_TAILS:
        paired = [one for one in stems if one.endswith(tail) and one.removesuffix(tail) in stems]
        if paired:
            layout = MaskLayout("a set of images and label maps", root, ".", ".", "", tail)
            return layout if _has_maps(layout) else None
    return None


def _tailed(layout: MaskLayout) -> MaskLayout | None:
    """Return two trees with the ending that their maps have, if any; None where the second holds no label maps."""
    for tail in ("", *MASK_TAILS):
        made = MaskLayout(**{**vars(layout), "map_tail": tail})
        if _has_maps(made):
            return made
    _refuse_jpegs(layout)
    return None


def _refuse_jpegs(layout: MaskLayout) -> None:
    """Refuse trees whose files have the same names, and the second holds JPEGs: these are no two classes of images."""
    found, alone, orphans = layout.pairs(layout.parts[0] if layout.parts else None)
    if found and not alone and not orphans and all(_format(maps) in ("JPEG", "MPO") for _, maps in found[:_SAMPLE]):
        raise DataError(
            f"The label maps in {str(found[0][1].parent)!r} are JPEGs, which do not keep labels.",
            expected="PNG, TIFF, BMP or GIF files",
            got=f"{found[0][1].name} beside the image of this name",
            fix="save them as PNG from what they were made of; a JPEG's values are changed. If these are two classes "
            "of images, rename the files or the folders",
        )


def _has_maps(layout: MaskLayout) -> bool:
    """Whether one of the first pairs of a layout is an image with a map of few values: what the others are is told."""
    found, _, _ = layout.pairs(layout.parts[0] if layout.parts else None)
    return any(_few_values(maps) for _, maps in found[:_SAMPLE])


def _few_values(path: Path) -> bool:
    try:
        with open_image(path) as image:
            if image.mode.startswith("I"):
                return True
            return (
                image.format not in ("JPEG", "MPO")
                and image.getcolors(256 if image.mode != "RGB" else _FEW) is not None
            )
    except Exception:  # what is no image fails in any way there is, and is told of elsewhere
        return False


def _format(path: Path) -> str | None:
    try:
        with open_image(path) as image:
            return image.format
    except Exception:  # as above
        return None


def _folders(root: Path) -> tuple[str, ...]:
    if not root.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not is_hidden(entry.name)))
