"""Which shifts move content, and that label maps end where the content of their images does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from shiftproof import shifts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.keyed import Keyed
from shiftproof.shifts import ImageShift, Shape, move_labels
from shiftproof.shifts.operations.operation import GEOMETRIC
from tests.shifts.test_contract import CORRUPTIONS, OTHERS

EVERY = [*(f"{name}@2" for name in CORRUPTIONS), *OTHERS]
MOVING = [text for text in EVERY if shifts.as_image_shift(text).moves]
FOLLOWED = [text for text in MOVING if "augmix" not in text]
KEYS = torch.arange(8) * 7919


def pattern(channels: int = 3, height: int = 64, width: int = 64) -> Tensor:
    """Smooth random fields on the 256 levels: every neighbourhood is unlike the others."""
    coarse = torch.rand(len(KEYS), 1, 16, 16, generator=torch.Generator().manual_seed(0))
    fine = F.interpolate(coarse, size=(height, width), mode="bicubic", align_corners=False).clamp(0, 1)
    return ((fine * 255).floor() / 255).repeat(1, channels, 1, 1)


def maps(height: int = 24, width: int = 32) -> Tensor:
    return torch.randint(0, 20, (len(KEYS), height, width), generator=torch.Generator().manual_seed(1))


def moved(text: str, labels: Tensor, **options: float) -> Tensor:
    return move_labels(shifts.as_image_shift(text), labels, KEYS[: len(labels)], **options)  # type: ignore[arg-type]


def stays(text: str, reach: int = 1) -> float:
    """Return the share of bright dots whose brightest trace is within some pixels of them; hidden ones do not count."""
    cell, place, side, shift = 24, 9, 192, shifts.as_image_shift(text)
    blank = torch.full((4, 3, side, side), 64 / 255)
    dots = blank.clone()
    for row in range(place, side, cell):
        for column in range(place, side, cell):
            dots[:, :, row - 1 : row + 2, column - 1 : column + 2] = 220 / 255
    trace = (shift(dots, KEYS[:4]) - shift(blank, KEYS[:4])).abs().amax(dim=1)
    cells = trace.unfold(1, cell, cell).unfold(2, cell, cell).flatten(1, 2)
    near = slice(place - reach, place + reach + 1)
    brightest, own = cells.amax(dim=(2, 3)), cells[:, :, near, near].amax(dim=(2, 3))
    seen = brightest > 0.03
    assert seen.float().mean() > 0.3
    return float((own >= 0.5 * brightest)[seen].float().mean())


def test_every_shift_of_ours_says_whether_it_moves_content() -> None:
    families = (family for family in shifts.families() if family not in ("everyday", "edits", "plugins"))
    listed = {name for family in families for name in shifts.names(family)}
    assert listed <= {text.partition("[")[0].partition("@")[0].partition("=")[0] for text in EVERY}
    assert all(shifts.as_image_shift(text).moves is not None for text in EVERY)
    assert {name for name in CORRUPTIONS if shifts.facts(name)["moves"]} == {
        *("elastic_transform", "caustic_refraction", "pinch_and_twirl", "ripple")
    }


LOOSE = {
    "glass_blur@2": (4, 0.9),
    "fouriermix[branches=1,preset=imagenet]": (4, 0.8),
    "prime[width=1,depth=3]": (3, 0.8),
}
"""Glass exchanges pixels with near ones, prime warps by a pixel or two of 32, and the noise of Fourier mixing outshines
some dots: pixels, and the share that stays."""


@pytest.mark.parametrize("text", [text for text in EVERY if text not in MOVING])
def test_a_shift_that_is_not_marked_leaves_content_where_it_was(text: str) -> None:
    reach, share = LOOSE.get(text, (1, 0.9))
    assert stays(text, reach) > share
    labels = maps()
    assert torch.equal(moved(text, labels), labels)


@pytest.mark.parametrize("text", [text.replace("@2", "@5") for text in MOVING])
def test_a_marked_shift_moves_content(text: str) -> None:
    assert stays(text) < 0.9


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("text", FOLLOWED)
def test_labels_go_where_a_marked_shift_moves_the_image(text: str, channels: int) -> None:
    images = pattern(channels)
    shifted = shifts.as_image_shift(text)(images, KEYS)
    followed = moved(text, images[:, 0], ignore=-1.0)
    inside = followed >= 0
    assert inside.float().mean() > 0.6
    near, far = ((shifted[:, 0] - images)[inside].abs().mean() for images in (followed, images[:, 0]))
    assert near < 0.9 * far
    if text.partition("=")[0] in GEOMETRIC:
        assert near < 0.2 * far


@pytest.mark.parametrize("text", FOLLOWED)
def test_labels_are_the_same_in_any_batch_and_seeded_as_the_images(text: str) -> None:
    shift, labels = shifts.as_image_shift(text), maps(96, 80)
    whole = move_labels(shift, labels, KEYS, seed=5)
    assert whole.dtype == labels.dtype
    alone = [move_labels(shift, labels[i : i + 1], KEYS[i : i + 1], seed=5) for i in range(len(KEYS))]
    assert torch.equal(torch.cat(alone), whole)
    images = pattern(height=96, width=80)
    same = torch.equal(shift(images, KEYS, seed=5), shift(images, KEYS, seed=6))
    assert torch.equal(move_labels(shift, labels, KEYS, seed=6), whole) == same


def test_exact_moves() -> None:
    labels, square = maps(), maps(24, 24)
    assert torch.equal(moved("flip", labels), labels.flip(2))
    assert torch.equal(moved("flip + flip", labels), labels)
    assert torch.equal(moved("rotate=90", square), torch.rot90(square, dims=(1, 2)))
    assert torch.equal(moved("rotate=180", labels), labels.flip(1, 2))
    right = moved("translate_x=0.25", labels, ignore=99)
    assert torch.equal(right[:, :, 8:], labels[:, :, :-8])
    assert (right[:, :, :8] == 99).all()
    half = moved("scale=0.5", labels)
    assert (half == 255).float().mean() == pytest.approx(0.75)
    assert torch.equal(moved("scale=2", labels)[:, 0, 0], labels[:, 6, 8])


def test_what_a_reflection_or_an_edge_shows_outside_is_ignored() -> None:
    black, mirrored = (moved(f"rotate=30[fill={fill}]", maps()) for fill in ("black", "reflect"))
    assert torch.equal(black, mirrored)
    assert (black == 255).any()


def test_a_chain_moves_step_by_step() -> None:
    labels = maps()
    chain = moved("translate_x=0.25 + gaussian_noise@3 + flip", labels)
    assert torch.equal(chain, moved("translate_x=0.25", labels).flip(2))
    assert shifts.as_image_shift("fog@3 + rotate=5").moves is True
    assert shifts.as_image_shift("fog@3 + contrast=0.5").moves is False
    assert torch.equal(moved("elastic_transform@0", labels), labels)


def test_labels_of_any_type_and_size_are_moved() -> None:
    for dtype in (torch.bool, torch.uint8, torch.int16, torch.int32, torch.float32):
        assert moved("flip", maps().to(dtype)).dtype == dtype
    index = torch.arange(8 * 70_000).view(8, 200, 350)
    assert torch.equal(moved("flip", index), index.flip(2))


@dataclass(frozen=True)
class Secretive(ImageShift):
    """What another package may bring."""

    def draw(self, rng: Keyed, shape: Shape) -> None:
        """Draw nothing."""

    def transform(self, images: Tensor, drawn: None) -> Tensor:
        return images.roll(5, 3)


def test_what_cannot_be_followed_is_refused_with_its_reason() -> None:
    labels = maps()
    with pytest.raises(ConfigurationError, match=r"(?s)augmix does not say where pixels come from.*several places"):
        moved("augmix", labels)
    with pytest.raises(ConfigurationError, match=r"(?s)not known whether.*moves = False"):
        move_labels(Secretive("secretive", 1.0), labels, KEYS)
    with pytest.raises(ConfigurationError, match="not known whether"):
        move_labels(shifts.ImageChain(steps=[Secretive("secretive", 1.0)]), labels, KEYS)
    with pytest.raises(DataError, match="N x H x W"):
        moved("flip", labels[0])
    with pytest.raises(DataError, match="N x H x W"):
        moved("flip", np.zeros((1, 8, 8)))  # type: ignore[arg-type]
    with pytest.raises(DataError, match="8 keys"):
        move_labels(shifts.as_image_shift("flip"), labels, [1])
