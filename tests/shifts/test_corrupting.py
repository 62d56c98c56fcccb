"""The drop-in: whatever kind of image goes in, the same kind comes out, corrupted as the shift itself would."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import shiftproof
from shiftproof import shifts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts import Transform, corrupt

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (24, 32, 3), dtype=np.uint8)
GREY = RNG.integers(0, 256, (24, 32), dtype=np.uint8)


def reference(image, text="gaussian_noise@3", key=7, seed=3):
    """Let the shift itself corrupt a uint8 image, H x W x C or H x W."""
    channels_first = torch.from_numpy(image if image.ndim == 3 else image[:, :, None]).permute(2, 0, 1)
    shifted = shifts.parse(text)(channels_first[None] / 255, [key], seed=seed)
    return (shifted[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy().reshape(image.shape)


def levels(x):
    """Read anything `corrupt` returns as uint8 with channels last."""
    if isinstance(x, torch.Tensor):
        x = x.movedim(-3, -1).numpy() if x.ndim > 2 else x.numpy()
    array = np.asarray(x)
    return array if array.dtype == np.uint8 else (array.astype(np.float64) * 255).round().astype(np.uint8)


def tensor(image, dtype=torch.uint8) -> torch.Tensor:
    first = torch.from_numpy(image).movedim(-1, -3) if image.ndim > 2 else torch.from_numpy(image)
    return first if dtype == torch.uint8 else (first.double() / 255).to(dtype)


KINDS = {
    "Pillow RGB": (Image.fromarray(RGB), RGB),
    "Pillow L": (Image.fromarray(GREY), GREY),
    "uint8 H x W x 3": (RGB, RGB),
    "uint8 H x W x 1": (GREY[:, :, None], GREY[:, :, None]),
    "uint8 H x W": (GREY, GREY),
    "float32 H x W x 3": ((RGB / 255).astype(np.float32), RGB),
    "float64 H x W x 3": (RGB / 255, RGB),
    "float64 H x W": (GREY / 255, GREY),
    "big-endian float": ((RGB / 255).astype(">f4"), RGB),
    "uint8 tensor": (tensor(RGB), RGB),
    "float32 tensor": (tensor(RGB, torch.float32), RGB),
    "float64 tensor": (tensor(RGB, torch.float64), RGB),
    "H x W tensor": (tensor(GREY), GREY),
}


@pytest.mark.parametrize(("x", "pixels"), KINDS.values(), ids=KINDS.keys())
class TestEveryKind:
    def test_is_corrupted_as_the_shift_does_it_and_comes_back_as_it_was(self, x, pixels):
        before = pickle.dumps(x)
        made = corrupt(x, "gaussian_noise@3", seed=3, keys=7)
        assert pickle.dumps(x) == before
        assert isinstance(made, Image.Image if isinstance(x, Image.Image) else type(x))
        assert getattr(made, "shape", None) == getattr(x, "shape", None)
        assert getattr(made, "dtype", None) == getattr(x, "dtype", None)
        assert np.array_equal(levels(made), reference(pixels))

    def test_draws_by_content_whatever_the_kind(self, x, pixels):
        assert np.array_equal(levels(corrupt(x, "shot_noise@3")), corrupt(pixels, "shot_noise@3"))

    def test_severity_0_changes_nothing(self, x, pixels):
        same = corrupt(x, "fog@0")
        assert same is not x
        assert np.array_equal(np.asarray(same), np.asarray(x))

    def test_is_deterministic_and_seeded(self, x, pixels):
        first, again, other = (levels(corrupt(x, "impulse_noise@3", seed=seed)) for seed in (0, 0, 1))
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_type(dtype):
    made = corrupt(tensor(RGB, dtype), "contrast@2")
    assert made.dtype == dtype
    near = corrupt(tensor(RGB, torch.float32), "contrast@2")
    assert (made.float() - near).abs().max() < 0.02


@settings(max_examples=15)
@given(st.integers(1, 5), st.integers(8, 20), st.integers(8, 20), st.sampled_from([1, 3]), st.integers(0, 99))
def test_an_image_fares_the_same_alone_in_a_batch_and_in_any_order(count, height, width, channels, seed):
    batch = np.random.default_rng(seed).integers(0, 256, (count, height, width, channels), dtype=np.uint8)
    together = corrupt(batch, "gaussian_noise@2", seed=seed)
    assert np.array_equal(together, np.stack([corrupt(image, "gaussian_noise@2", seed=seed) for image in batch]))
    assert np.array_equal(corrupt(batch[::-1], "gaussian_noise@2", seed=seed), together[::-1])
    first = corrupt(tensor(batch), "gaussian_noise@2", seed=seed)
    assert np.array_equal(levels(first), together)


def test_other_images_get_other_draws():
    flat = np.full((2, 32, 32, 3), 128, np.uint8)
    flat[1, 0, 0, 0] = 129
    noise = corrupt(flat, "gaussian_noise@1").astype(int) - flat
    assert (noise[0] != noise[1]).mean() > 0.5
    twins = corrupt(flat[[0, 0]], "gaussian_noise@1")
    assert np.array_equal(twins[0], twins[1])
    named = corrupt(flat[[0, 0]], "gaussian_noise@1", keys=[1, 2])
    assert not np.array_equal(named[0], named[1])


def test_alpha_and_what_a_file_says_are_kept():
    alpha = Image.fromarray(RNG.integers(0, 256, (24, 32), dtype=np.uint8))
    for mode, pixels in (("RGBA", RGB), ("LA", GREY)):
        image = Image.fromarray(pixels)
        image.putalpha(alpha)
        image.info["dpi"] = (72, 72)
        made = corrupt(image, "gaussian_noise@3", seed=3, keys=7)
        assert (made.mode, made.info) == (mode, image.info)
        assert np.array_equal(np.asarray(made.getchannel("A")), np.asarray(alpha))
        assert np.array_equal(np.asarray(made)[..., :-1].reshape(pixels.shape), reference(pixels))


def test_odd_memory_is_read_and_kept():
    expected = corrupt(RGB, "pixelate@3")
    frozen = RGB.copy()
    frozen.setflags(write=False)
    assert np.array_equal(corrupt(frozen, "pixelate@3"), expected)
    assert np.array_equal(corrupt(np.ascontiguousarray(RGB[::-1])[::-1], "pixelate@3"), expected)
    last = tensor(RGB)[None].contiguous(memory_format=torch.channels_last)
    made = corrupt(last, "pixelate@3")
    assert made.is_contiguous(memory_format=torch.channels_last)
    assert np.array_equal(levels(made[0]), expected)
    assert corrupt(RGB, "pixelate@3").flags.c_contiguous
    tracked = tensor(RGB, torch.float32).requires_grad_()
    assert not corrupt(tracked, "pixelate@3").requires_grad


def test_takes_shifts_of_every_kind():
    fog = shifts.corruption("fog", 3, preset="imagenet")
    expected = fog(tensor(RGB)[None] / 255, [5])
    assert np.array_equal(levels(corrupt(tensor(RGB)[None], fog, keys=[5])), levels(expected))
    assert np.array_equal(
        corrupt(RGB, "contrast=0.5 + invert"), 255 - np.asarray(corrupt(Image.fromarray(RGB), "contrast=0.5"))
    )
    assert shiftproof.corrupt is corrupt


def test_an_empty_batch_is_an_empty_batch():
    assert corrupt(np.zeros((0, 8, 8, 3), np.uint8), "fog@3").shape == (0, 8, 8, 3)


ERRORS = {
    "C x H x W array": (np.zeros((3, 32, 32), np.uint8), r"moveaxis\(x, -3, -1\).*x\[..., None\]"),
    "N x C x H x W array": (np.zeros((2, 3, 32, 32), np.uint8), r"moveaxis\(x, -3, -1\)"),
    "N x H x W array": (np.zeros((9, 28, 28), np.uint8), r"x\[..., None\] makes a batch"),
    "RGBA array": (np.zeros((32, 32, 4), np.uint8), r"x\[..., :-1\] drops an alpha"),
    "H x W x C tensor": (torch.zeros(32, 32, 3), r"movedim\(x, -1, -3\)"),
    "N x H x W tensor": (torch.zeros(9, 28, 28), r"x\[:, None\] makes a batch"),
    "RGBA tensor": (torch.zeros(1, 4, 32, 32), r"x\[..., :-1, :, :\] drops an alpha"),
    "five axes": (torch.zeros(1, 1, 3, 32, 32), "got +tensor of shape"),
    "int64 array": (np.zeros((32, 32), np.int64), "wrong type of number"),
    "bool tensor": (torch.zeros(32, 32, dtype=torch.bool), "wrong type of number"),
    "0..255 as floats": (np.full((32, 32), 200.0), "values 200 to 200"),
    "normalised": (torch.full((3, 32, 32), -0.5), "before they are normalised"),
    "NaN": (np.full((32, 32), np.nan), "values NaN"),
    "infinite": (np.full((32, 32), np.inf), "values inf"),
    "too small": (np.zeros((4, 32, 3), np.uint8), "at least 8"),
    "a list": ([Image.fromarray(RGB)], "one at a time"),
    "a text": ("cat.png", "not an image"),
    "palette": (Image.new("P", (32, 32)), r"convert\('RGB'\)"),
    "32 bits": (Image.new("I", (32, 32)), "highest value of the scale"),
    "floats of Pillow": (Image.new("F", (32, 32)), "highest value of the scale"),
    "uint32 array": (np.zeros((32, 32), np.uint32), "highest value of the scale"),
}


@pytest.mark.parametrize(("x", "says"), ERRORS.values(), ids=ERRORS.keys())
def test_what_is_no_image_gets_an_error_that_says_what_to_do(x, says):
    with pytest.raises(DataError, match=f"(?s){says}"):
        corrupt(x, "contrast@3")


DEEP = RNG.integers(0, 65536, (24, 32), dtype=np.uint16)
SHIFTS_OF_IMAGES = [
    *(f"{name}@3" for family in ("common", "holdout", "bar") for name in shifts.names(family)),
    *("power_law[eps=8,center=4,alpha=1]", "fourier_basis[i=2,j=3]", "fouriermix", "pad_crop", "flip_crop", "augmix"),
    *("random_erase", "random_translate", "rotate=5", "contrast=0.8", "fog@3 + fog@2"),
]


@pytest.mark.parametrize("text", SHIFTS_OF_IMAGES)
def test_sixteen_bits_are_kept_or_refused(text):
    """Where they are kept, rounding to 8 bits afterwards is what 8 bits of the image would have given, nearly."""
    smooth = (np.linspace(0.05, 0.9, 64 * 64).reshape(64, 64) * 65535).astype(np.uint16)
    if not shifts.as_image_shift(text).keeps_depth:
        with pytest.raises(ConfigurationError, match=r"(?s)256 levels.*// 257"):
            corrupt(smooth, text)
        return
    made = corrupt(smooth, text, keys=3)
    assert (made.dtype.name, made.shape) == ("uint16", smooth.shape)
    assert len(np.unique(made)) > 300 or text == "shot_noise@3"  # which counts photons
    eight = corrupt((smooth / 65535).astype(np.float32), text, keys=3)
    assert np.abs(made / 65535 - eight).max() <= 1 / 255 + 1e-4


def test_sixteen_bits_in_every_form():
    made = corrupt(DEEP, "gaussian_noise@2", keys=7)
    image = Image.fromarray(DEEP)
    assert image.mode == "I;16"
    again = corrupt(image, "gaussian_noise@2", keys=7)
    assert (again.mode, again.size) == ("I;16", image.size)
    assert np.array_equal(np.asarray(again), made)
    assert np.array_equal(corrupt(DEEP.astype(">u2"), "gaussian_noise@2", keys=7), made)
    batch = np.stack([DEEP, DEEP])[..., None]
    assert np.array_equal(corrupt(batch, "gaussian_noise@2", keys=[7, 8])[0, ..., 0], made)
    assert np.array_equal(corrupt(DEEP, "fog@0"), DEEP)
    assert np.array_equal(corrupt(DEEP, "pad_crop[pad=0,flip=1]"), DEEP[:, ::-1])


PUBLISHED = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression"),
    *("speckle_noise", "gaussian_blur", "spatter", "saturate"),
)


@pytest.mark.parametrize("number", range(19))
def test_names_and_numbers_of_imagecorruptions(number):
    name = PUBLISHED[number]
    by_number = corrupt(RGB, corruption_number=number, severity=3)
    assert (by_number.dtype.name, by_number.shape) == ("uint8", RGB.shape)
    assert np.array_equal(by_number, corrupt(RGB, corruption_name=name, severity=3))
    assert np.array_equal(by_number, corrupt(RGB, f"{name}@3[preset=imagenet]"))
    assert corrupt(GREY, corruption_name=name, severity=2).shape == GREY.shape
    assert isinstance(corrupt(Image.fromarray(RGB), corruption_name=name), Image.Image)


def test_a_name_and_a_severity_apart():
    assert np.array_equal(corrupt(RGB, "shot_noise", 3), corrupt(RGB, "shot_noise@3"))
    assert np.array_equal(corrupt(RGB, "shot_noise", severity=2.5), corrupt(RGB, "shot_noise@2.5"))
    assert np.array_equal(corrupt(RGB, corruption_name="fog"), corrupt(RGB, corruption_name="fog", severity=1))
    assert corrupt("a long and tedious film", "typos", 3) == corrupt("a long and tedious film", "typos@3")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "got +none"),
        ({"shift": "fog@3", "corruption_name": "fog"}, "got +several"),
        ({"corruption_name": "fog", "corruption_number": 0}, "got +several"),
        ({"corruption_number": -1}, "got +none"),
        ({"corruption_number": 19}, "0 to 18"),
        ({"corruption_name": "fogg"}, "did you mean"),
        ({"corruption_name": "ripple"}, "no corruption"),
        ({"corruption_name": "fog", "severity": 9}, "from 0"),
        ({"shift": shifts.parse("fog@3"), "severity": 2}, "cannot be combined with a shift"),
        ({"shift": "fog@3", "severity": 2}, "no corruption"),
    ],
)
def test_ways_to_name_a_corruption_do_not_mix(given, says):
    with pytest.raises(ConfigurationError, match=f"(?s){says}"):
        corrupt(RGB, **given)


def test_alpha_moves_with_content():
    alpha = RNG.integers(0, 256, (24, 32), dtype=np.uint8)
    image = Image.fromarray(RGB)
    image.putalpha(Image.fromarray(alpha))
    assert np.array_equal(np.asarray(corrupt(image, "flip"))[..., 3], alpha[:, ::-1])
    assert np.array_equal(np.asarray(corrupt(image, "translate_x=0.25"))[:, :8, 3], np.zeros((24, 8)))
    with pytest.raises(ConfigurationError, match="where pixels come from"):
        corrupt(image, "augmix")


def test_other_mistakes():
    with pytest.raises(ConfigurationError, match="did you mean"):
        corrupt(RGB, "fogg@3")
    with pytest.raises(DataError, match="2 keys"):
        corrupt(np.stack([RGB, RGB]), "fog@3", keys=[1])


class Pipeline(Dataset[torch.Tensor]):
    """A data set as a user writes one: an image, then a transform."""

    def __init__(self, transform: Transform) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(tensor(np.roll(RGB, index)))


class TestTransform:
    def test_is_corrupt_with_its_settings(self):
        assert np.array_equal(Transform("snow@2", seed=4)(RGB), corrupt(RGB, "snow@2", seed=4))
        assert np.array_equal(replace(Transform("snow@2"), seed=4)(RGB), corrupt(RGB, "snow@2", seed=4))

    def test_is_a_frozen_value(self):
        transform = Transform("fog@3", seed=1)
        assert transform == Transform(shifts.parse("fog@3"), seed=1) == pickle.loads(pickle.dumps(transform))
        assert str(transform) == "fog@3"
        with pytest.raises(FrozenInstanceError):
            transform.seed = 2  # type: ignore[misc]
        with pytest.raises(ConfigurationError, match="did you mean"):
            Transform("fogg@3")

    def test_works_in_loader_workers_and_touches_no_global_state(self):
        state = torch.get_rng_state()
        data = Pipeline(Transform("gaussian_noise@3"))
        here = torch.stack([data[index] for index in range(4)])
        assert torch.equal(torch.get_rng_state(), state)
        loader = DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context="spawn")
        assert torch.equal(torch.cat(list(loader)), here)
