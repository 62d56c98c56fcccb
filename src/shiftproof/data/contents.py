"""Who an image or a text is: digests of its content, so that file names and the order of files decide nothing.

Two digests serve two purposes. The bytes that are stored key the draw of a subset and the order of a set, because a
large folder must not be decoded to draw from it. The decoded pixels key an image's own randomness, so that the same
image gets the same noise from a PNG, a BMP or an array. Equal inputs are told apart by an occurrence number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from shiftproof.models.texts import Text, parts


def digests(contents: Iterable[bytes]) -> Tensor:
    """Return 63 bits of BLAKE2 of each content, [N] int64."""
    found = [hashlib.blake2b(content, digest_size=8).digest() for content in contents]
    return torch.tensor([int.from_bytes(digest, "little") >> 1 for digest in found], dtype=torch.int64)


def content_keys(images: Tensor) -> Tensor:
    """Return a key for each image, [N] int64: a digest of its shape and its values at the nearest levels."""
    stored = images if images.dtype == torch.uint8 else images.mul(255.0).round_().to(torch.uint8)
    levels = stored.cpu().numpy()
    shape = repr(levels.shape[1:]).encode()
    return digests(shape + level.tobytes() for level in levels)


def text_keys(texts: Sequence[Text]) -> Tensor:
    """Return the keys of texts by their content, [N] int64."""
    return digests("\x1f".join(parts(text)).encode("utf-8", "surrogatepass") for text in texts)


def occurrences(contents: Tensor, labels: Tensor | None) -> Tensor:
    """Return how many rows of the same content and label come before each row, [N] int64.

    Rows that agree in both can change places without any effect, so that the order of rows does not matter.

    >>> occurrences(torch.tensor([7, 5, 7, 7]), torch.tensor([0, 0, 1, 0])).tolist()
    [0, 0, 0, 1]
    """
    columns = (contents.numpy(),) if labels is None else (labels.numpy(), contents.numpy())
    order = np.lexsort(columns)  # stable: equal rows stay in their order
    starts = np.ones(len(order), bool)
    if len(order):
        starts[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    places = np.arange(len(order))
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(starts, places, 0))
    return torch.from_numpy(found)


def numbered(keys: Tensor, repeats: Tensor) -> Tensor:
    """Return keys in which the second and later occurrences of an input have keys of their own."""
    later = repeats.nonzero()[:, 0].tolist()
    if not later:
        return keys
    made = keys.clone()
    made[later] = digests(f"{int(keys[row])}/{int(repeats[row])}".encode() for row in later)
    return made
