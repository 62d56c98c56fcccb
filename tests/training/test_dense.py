"""Training of segmenters: labels follow the framing, ignored pixels do not count, and recipes that do not apply."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from shiftproof import load_model, train
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError
from shiftproof.models import build_network, class_names
from shiftproof.training.dense import labelled
from shiftproof.training.feed import Feed
from shiftproof.training.recipes import recipe
from shiftproof.training.settings import TrainingSettings
from tests.label_maps import load_masks, painted


@pytest.fixture(scope="module")
def data():
    return load_data(painted(12), classes=["ground", "red", "green", "blue"])


def test_labels_move_with_the_framing(data):
    """Pictures whose red channel is the label map stay equal to it under every framing, and are black outside."""
    maps = painted(12)[1]
    maps[maps == 255] = 0
    pictures = np.repeat(maps[..., None] * 60 + 20, 3, axis=3).astype(np.uint8)
    source = load_masks((pictures, maps), ignore_label=-1)
    settings = TrainingSettings(batch_size=12, epochs=1, framing="pad_crop")
    feed = Feed(source, recipe("erm"), settings, device=torch.device("cpu"))
    (batch,) = feed.batches(0, 1)
    red = (batch.inputs[0, :, 0] * 255).round()
    expected = torch.where(batch.labels == 255, 0, batch.labels.long() * 60 + 20)
    assert (batch.labels == 255).any()
    assert torch.equal(red.long(), expected)


def test_loss_is_the_mean_over_labelled_pixels(data):
    from shiftproof.training.mixed_targets import Targets
    from shiftproof.training.objectives import CrossEntropy, Moment

    network = build_network("unet", classes=4).eval()
    (batch,) = data.batches(12)
    labels, pixels = labelled(batch.labels)
    moment = Moment(network, network, batch.inputs[None], Targets(labels), None, 0.0, 0.0, pixels=pixels)
    expected = F.cross_entropy(network(batch.inputs), batch.labels.long(), ignore_index=255)
    assert CrossEntropy().loss(moment).mean().item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_trained_segmenter_is_loaded_with_its_classes(data, tmp_path):
    options: dict[str, Any] = {"epochs": 2, "batch_size": 6, "optimizer": "adam", "lr": 0.003, "device": "cpu"}
    trained = train("unet", data, validation=data, out=tmp_path, **options)
    assert {"miou", "accuracy"} <= trained.log[-1].keys()
    loaded = load_model(tmp_path)
    assert class_names(loaded) == data.classes
    (batch,) = data.batches(12)
    assert torch.equal(loaded(batch.inputs), trained.model(batch.inputs))
    again = train("unet", data, validation=data, out=tmp_path, **options)
    assert again.log == trained.log


@pytest.mark.parametrize("name", ["augmix", "augmix+jsd", "autoaugment+jsd", "macer", "smoothadv", "esda", "denoiser"])
def test_recipes_that_do_not_apply_are_refused(name, data):
    with pytest.raises(ConfigurationError, match="Not available for segmentation"):
        train("unet", data, recipe=name, epochs=1, device="cpu")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gaussian+jsd", {}),
        ("autoaugment", {}),
        ("rda", {}),
        ("augmix+jsd", {"augment": "augmix[geometric=false]"}),
    ],
)
def test_recipes_that_apply(name, options, data):
    trained = train("unet", data, recipe=name, options=options, epochs=1, batch_size=6, lr=0.01, device="cpu")
    assert np.isfinite(trained.loss)


def test_augmix_without_geometric_operations_moves_nothing():
    from shiftproof.shifts import as_image_shift

    still = as_image_shift("augmix[geometric=false]")
    assert (still.moves, as_image_shift("augmix").moves) == (False, True)
    images = torch.full((64, 3, 8, 8), 0.2)
    images[:, :, 2:6, 2:6] = 0.8
    made = still(images, torch.arange(64))
    flat = made[:, :, 2:6, 2:6].flatten(2)
    sharp = (flat.amax(2) - flat.amin(2)).amax(1)  # sharpness is no operation of AugMix's: plain areas stay plain
    assert sharp.max() <= 1 / 255 + 1e-6
