"""What every shift must hold, driven by one table: all corruptions, operations and policies, at several strengths.

Where there is a CUDA device, all of it must hold there too.
"""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof import shifts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts.catalogue import TABLED
from shiftproof.shifts.corruptions.corruption import Corruption

CORRUPTIONS = [name for family in TABLED for name in shifts.names(family)]
OTHERS = [
    *("autocontrast=2", "brightness=1.3", "color=0.2", "contrast=0.6", "sharpness=2", "solarize=128", "posterize=3"),
    *("equalize", "invert", "grayscale", "red_shift=-40", "green_shift=25", "blue_shift=90"),
    *("rotate=17", "translate_x=0.1", "translate_y=-0.2", "shear_x=0.3", "shear_y=-0.2", "scale=1.2", "flip"),
    *("rotate=17[fill=reflect]", "power_law[eps=8,center=4,alpha=1]", "fourier_basis[i=2,j=3]"),
    *("rand_augment", "auto_augment", "augmix", "random_translate", "random_erase", "flip_crop"),
    *("fouriermix", "fouriermix[branches=1,preset=imagenet]", "pad_crop", "occlude[x=0.3,size=0.4]"),
    *("prime", "prime[width=1,depth=3]", "coloured_noise"),
    *("random_blur[share=1]", "random_wave[share=1]", "veil[share=1]", "colour_cast[share=1]"),
    *("random_wave[share=1,down=0.2,across=-0.1,spread=0.1,least=0.5,grey=0.5]", "colour_cast[share=1,red=0.2]"),
    *("fog@3 + jpeg_compression@2", "gaussian_noise@2 + gaussian_noise@2", "ripple@2 + contrast=0.7 + augmix"),
]
STRENGTHS = [f"{name}@{severity:g}" for name in CORRUPTIONS for severity in (0.5, 2.5, 5)]
EVERY = pytest.mark.parametrize("text", [*STRENGTHS, *OTHERS])
EVERY_ONCE = pytest.mark.parametrize("text", [*(f"{name}@2.5" for name in CORRUPTIONS), *OTHERS])
EVERYWHERE = pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
DETERMINISTIC = {
    *("gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "contrast", "saturate", "jpeg_compression"),
    *("pixelate", "circular_motion_blur"),
}


def photographs(count=8, height=32, width=32, channels=3, device="cpu"):
    """Images with edges, gradients and texture, on the 256 levels of files."""
    generator = torch.Generator().manual_seed(0)
    y, x = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    waves = torch.rand(count, channels, 4, 1, 1, generator=generator) * 12
    smooth = (waves[:, :, 0] * x + waves[:, :, 1]).sin() * (waves[:, :, 2] * y + waves[:, :, 3]).cos()
    edges = (x + y > torch.rand(count, 1, 1, 1, generator=generator) * 2).float()
    texture = torch.rand(count, channels, height, width, generator=generator)
    images = (0.35 * (smooth + 1) / 2 + 0.45 * edges + 0.2 * texture).clamp(0, 1)
    return ((images * 255).floor() / 255).to(device)


KEYS = torch.tensor([3, 1, 4, 15, 9, 2, 6, 5])


@EVERYWHERE
@EVERY
def test_keeps_shape_dtype_device_range_levels_and_its_input(text, device):
    images = photographs(device=device)
    before = images.clone()
    shifted = shifts.parse(text)(images, KEYS)
    assert torch.equal(images, before)
    assert (shifted.shape, shifted.dtype, shifted.is_contiguous()) == (images.shape, torch.float32, True)
    assert shifted.device == images.device
    assert shifted.min() >= 0
    assert shifted.max() <= 1
    assert torch.allclose(shifted * 255, (shifted * 255).round(), atol=1e-3)
    assert text.endswith("@0.5") or not torch.equal(shifted, images)  # whole-number parameters may round to nothing
    assert shifted.data_ptr() != images.data_ptr()


@EVERYWHERE
@EVERY_ONCE
def test_same_bits_in_any_batch_and_order(text, device):
    images, keys = photographs(64, device=device), torch.arange(64) * 7919
    shift = shifts.parse(text)
    whole = shift(images, keys, seed=5)
    backwards = shift(images.flip(0), keys.flip(0), seed=5).flip(0)
    assert torch.equal(backwards, whole)
    sevens = torch.cat([shift(images[i : i + 7], keys[i : i + 7], seed=5) for i in range(0, 64, 7)])
    assert torch.equal(sevens, whole)
    for i in (0, 13, 63):
        assert torch.equal(shift(images[i : i + 1], keys[i : i + 1], seed=5), whole[i : i + 1])


@EVERYWHERE
@EVERY_ONCE
def test_stored_images_come_out_as_the_same_levels(text, device):
    images = photographs(device=device)
    stored = (images * 255).round().to(torch.uint8)
    before = stored.clone()
    shift = shifts.as_image_shift(text)
    made = shift.on_bytes(stored, KEYS, seed=2)
    assert torch.equal(stored, before)
    assert (made.shape, made.dtype, made.device) == (stored.shape, torch.uint8, stored.device)
    nearest = (stored.cpu().float() / 255).to(device)  # on CUDA, torch would multiply by the reciprocal of 255
    assert torch.equal(made, (shift(nearest, KEYS, seed=2) * 255).round().to(torch.uint8))


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_threads_do_not_change_the_bits_of_a_corruption(name):
    images, keys, threads = photographs(24, 64, 64), torch.arange(24), torch.get_num_threads()
    shifted = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        shifted.append(shifts.corruption(name, 2.5)(images, keys))
    torch.set_num_threads(threads)
    assert torch.equal(shifted[0], shifted[1])
    assert torch.equal(shifted[0], shifted[2])


@EVERYWHERE
@EVERY_ONCE
def test_memory_format_and_gradients_do_not_matter(text, device):
    images = photographs(2, device=device)
    shift = shifts.parse(text)
    expected = shift(images, KEYS[:2])
    assert torch.equal(shift(images.contiguous(memory_format=torch.channels_last), KEYS[:2]), expected)
    assert torch.equal(shift(images.transpose(2, 3).contiguous().transpose(2, 3), KEYS[:2]), expected)
    tracked = shift(images.clone().requires_grad_(), KEYS[:2])
    assert not tracked.requires_grad
    assert torch.equal(tracked, expected)


@EVERYWHERE
@EVERY_ONCE
@settings(max_examples=6)
@given(st.integers(1, 3), st.sampled_from([1, 3]), st.integers(8, 40), st.integers(8, 40), st.integers(0, 99))
def test_any_shape(text, device, count, channels, height, width, seed):
    images = photographs(count, height, width, channels, device)
    shifted = shifts.parse(text)(images, KEYS[:count], seed=seed)
    assert shifted.shape == images.shape
    assert shifted.isfinite().all()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_zero_is_the_identity_and_near_zero_is_near_it(name):
    images = photographs()
    same = shifts.corruption(name, 0)(images, KEYS)
    assert torch.equal(same, images)
    assert same.data_ptr() != images.data_ptr()
    near, far = ((shifts.corruption(name, severity)(images, KEYS) - images).abs().mean() for severity in (0.02, 1))
    assert near <= far + 1e-6


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if shifts.facts(name)["monotone"]])
@pytest.mark.parametrize("preset", ["cifar", "imagenet"])
def test_a_higher_severity_moves_further_where_the_table_says_so(name, preset):
    images, keys = photographs(16, 64, 64), torch.arange(16)
    distances = [
        (shifts.corruption(name, severity, preset)(images, keys) - images).square().mean().item()
        for severity in (0.5, 1, 2, 3, 4, 5)
    ]
    assert all(later >= 0.97 * earlier for earlier, later in pairwise(distances)), distances
    assert distances[-1] > distances[0]


@EVERYWHERE
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seed_and_key_matter_for_random_corruptions_alone(name, device):
    images = photographs(1, device=device).expand(8, -1, -1, -1)
    shift = shifts.corruption(name, 3)
    first, seeded = shift(images, KEYS), shift(images, KEYS, seed=1)
    assert torch.equal(first, shift(images, KEYS))
    assert torch.equal(first, seeded) == (name in DETERMINISTIC)
    assert torch.equal(first, first[:1].expand_as(first)) == (name in DETERMINISTIC)


@EVERY_ONCE
def test_the_label_reads_back(text):
    shift = shifts.parse(text)
    assert shifts.parse(shift.label) == shift


def test_a_recipe_takes_its_own_options_and_no_other(tmp_path):
    from PIL import Image

    Image.new("RGB", (64, 64), "white").save(tmp_path / "ice.png")
    frost = shifts.parse(f"frost@3[textures={tmp_path}]")
    assert shifts.parse(frost.label) == frost == shifts.corruption("frost", 3, textures=str(tmp_path))
    assert isinstance(frost, Corruption)
    images = photographs()
    factor, weight = frost.parameters(32, 32).image, frost.parameters(32, 32).frost
    assert torch.allclose(frost(images, KEYS), (images * factor + weight).clamp(max=1), atol=1.01 / 255)
    with pytest.raises(ConfigurationError, match="textures"):
        shifts.parse("frost@3[texture=x]")
    with pytest.raises(ConfigurationError, match="no option of 'fog'"):
        shifts.parse("fog@3[textures=x]")


BAD = {
    "NaN": (torch.full((1, 3, 8, 8), float("nan")), "NaN"),
    "above 1": (torch.full((1, 3, 8, 8), 1.5), "1.5"),
    "normalised": (torch.full((1, 3, 8, 8), -0.5), "Normalize"),
    "uint8": (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "divide by 255"),
    "float64": (torch.zeros(1, 3, 8, 8, dtype=torch.float64), "float32"),
    "two channels": (torch.zeros(1, 2, 8, 8), "1 or 3 channels"),
    "four channels": (torch.zeros(1, 4, 8, 8), "alpha"),
    "one image": (torch.zeros(3, 8, 8), "N x C x H x W"),
    "too small": (torch.zeros(1, 3, 7, 8), "at least 8"),
    "an array": ([[1]], "tensors"),
}


@pytest.mark.parametrize(("images", "says"), BAD.values(), ids=BAD.keys())
def test_bad_images_get_an_error_that_says_what_to_do(images, says):
    with pytest.raises(DataError, match=says):
        shifts.parse("contrast@3")(images, [0])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fog@7", "from 0"),
        ("fog@-1", "from 0"),
        ("fog@nan", "from 0"),
        ("fogg@3", "did you mean"),
        ("fog", "no severity"),
        ("fog@thick", "thick"),
        ("fog@3 + ", "Cannot read|no shift|no corruption"),
        ("contrats=0.5", "did you mean"),
        ("", "no shift"),
    ],
)
def test_bad_names_and_severities_get_an_error_that_says_what_to_do(text, says):
    with pytest.raises(ConfigurationError, match=says):
        shifts.parse(text)


def test_other_mistakes():
    with pytest.raises(DataError, match="2 keys"):
        shifts.parse("contrast@3")(torch.zeros(2, 3, 8, 8), [1])
    with pytest.raises(ConfigurationError, match="imagenet"):
        shifts.corruption("fog", 3, preset="mnist")
    with pytest.raises(ConfigurationError, match="did you mean"):
        shifts.names("comon")


def test_an_empty_batch_is_an_empty_batch():
    assert shifts.parse("fog@3")(torch.zeros(0, 3, 8, 8), []).shape == (0, 3, 8, 8)
