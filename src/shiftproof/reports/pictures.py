"""Pictures: their sizes, and those that occur more than once, which the page holds once."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Sequence

from shiftproof.errors import DataError
from shiftproof.reports.view import Block, Gallery, Picture, Table, View

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def size(picture: Picture) -> tuple[int, int]:
    """Return a picture's width and height in pixels, which stand at the beginning of its file."""
    try:
        head = base64.b64decode(picture.png[:32], validate=True)
    except binascii.Error:
        head = b""
    if len(head) < 24 or not head.startswith(_SIGNATURE):
        raise DataError(
            f"The picture {picture.caption!r} cannot be shown.",
            expected="a PNG file, in base64",
            got=repr(picture.png[:32]),
        )
    return int.from_bytes(head[16:20]), int.from_bytes(head[20:24])


def repeated(views: Sequence[View]) -> dict[str, tuple[str, Picture]]:
    """Return, by their bytes, the pictures that occur more than once, each with an id."""
    found = [picture for view in views for block in view.blocks for picture in _shown(block)]
    counts = Counter(picture.png for picture in found)
    shared = {picture.png: picture for picture in found if counts[picture.png] > 1}
    return {png: (f"picture-{index}", picture) for index, (png, picture) in enumerate(shared.items(), start=1)}


def _shown(block: Block) -> Iterable[Picture]:
    if isinstance(block, Gallery):
        return block.pictures
    return block.pictures.values() if isinstance(block, Table) else ()
