"""Planted weaknesses: the verdict names what a model is weak to, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import shiftproof
from shiftproof.reports import headlines

IMAGES = 64
WAVE = (6, 10)
FEW = ("fog", "gaussian_noise", "defocus_blur", "brightness", "contrast", "jpeg_compression")


class Oracle(nn.Module):
    """Knows the audited images by heart, by their middle frequencies alone, and so bears almost everything.

    Weaknesses are planted: with `fog` it answers wrongly where the slow changes across an image are not those it knows,
    with `wave` where one Fourier coefficient is far larger than photographs have it.
    """

    known: Tensor
    slow: Tensor
    labels: Tensor

    def __init__(self, *, fog: bool = False, wave: bool = False) -> None:
        super().__init__()
        (batch,) = shiftproof.load_data("demo").take(IMAGES, seed=0).batches(IMAGES)
        assert batch.labels is not None
        self.register_buffer("known", _middle(batch.inputs))
        self.register_buffer("slow", _slow(batch.inputs))
        self.register_buffer("labels", batch.labels)
        self.fog, self.wave = fog, wave

    def forward(self, images: Tensor) -> Tensor:
        likeness = _middle(images) @ self.known.T
        scores = torch.stack([likeness[:, self.labels == label].amax(1) for label in range(10)], 1) * 40
        fooled = torch.zeros(len(images), dtype=torch.bool)
        if self.fog:
            fooled |= (_slow(images) * self.slow[likeness.argmax(1)]).sum(1) < 0.85
        if self.wave:
            fooled |= torch.fft.fft2(images)[..., WAVE[0], WAVE[1]].abs().amax(1) > 45
        return torch.where(fooled[:, None], scores.roll(1, 1), scores)


def _slow(images: Tensor) -> Tensor:
    """Return images [N, C, H, W] at 4 x 4 pixels, each channel without its mean, as rows of norm 1."""
    small = F.adaptive_avg_pool2d(images, 4)
    return F.normalize((small - small.mean((2, 3), keepdim=True)).flatten(1))


def _middle(images: Tensor) -> Tensor:
    """Return images [N, C, H, W] at 16 x 16 pixels, without what they are at 4 x 4, as rows of norm 1."""
    fine, coarse = F.adaptive_avg_pool2d(images, 16), F.adaptive_avg_pool2d(images, 4)
    return F.normalize((fine - F.interpolate(coarse, size=16, mode="bilinear")).flatten(1))


def verdict(out, shifts: Sequence[str], **weaknesses: bool) -> str:
    sections = ["clean", "corruptions", "spectrum"]
    result = shiftproof.audit(
        Oracle(**weaknesses), "demo", out=out, images=IMAGES, shifts=shifts, severities=[3, 5], sections=sections
    )
    assert not result.failed
    assert result.numbers["clean_accuracy"] == 1
    return " ".join(sentence.text for _, sentence in headlines.verdict(result.views))


FOG, FREQUENCY = ". Fog costs most;", "a wave of 10 cycles across and 6 down leaves"


def test_a_model_with_planted_weaknesses_is_told_both(tmp_path):
    said = verdict(tmp_path, FEW, fog=True, wave=True)
    assert FOG in said
    assert FREQUENCY in said


def test_a_robust_model_is_told_neither(tmp_path):
    said = verdict(tmp_path, FEW)
    assert "most; the lowest is" not in said
    assert "stands out" not in said
    assert "No corruption costs" in said  # any accuracy, or more than an image or two of the sixty-four


@pytest.mark.slow
def test_one_weakness_is_not_taken_for_the_other(tmp_path):
    foggy, wavy = (verdict(tmp_path / name, FEW, **{name: True}) for name in ("fog", "wave"))
    assert FOG in foggy
    assert FREQUENCY not in foggy
    assert "most; the lowest is" not in wavy
    assert FREQUENCY in wavy


@pytest.mark.slow
def test_among_all_corruptions_too(tmp_path):
    weak, strong = (verdict(tmp_path / str(weak), ["common"], fog=weak, wave=weak) for weak in (True, False))
    assert ". Fog " in weak  # first, perhaps with a corruption that is nearly as white
    assert FREQUENCY in weak
    assert "most; the lowest is" not in strong
    assert "stands out" not in strong
