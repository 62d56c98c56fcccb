"""Image classifiers saved by transformers bring their processor's normalisation and size, and their class names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.data import DataSpec, as_images, load_data
from shiftproof.errors import ModelError
from shiftproof.models import InputSize, class_names, input_size, load_model, logits
from shiftproof.subjects import Subject

transformers = pytest.importorskip("transformers")

IMAGES = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
NAMES = ("cat", "dog", "fox")
PROCESSOR: dict[str, Any] = {
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [0.5, 0.6, 0.7],
    "size": {"height": 16, "width": 16},
}


@pytest.fixture
def network() -> Any:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=16,
        patch_size=8,
        id2label=dict(enumerate(NAMES)),
        label2id={name: number for number, name in enumerate(NAMES)},
    )
    return transformers.ViTForImageClassification(config).eval()


def saved(network: Any, folder: Path, **processor: Any) -> str:
    network.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **processor}))
    return str(folder)


def normalised(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(PROCESSOR[f"image_{name}"]).view(1, 3, 1, 1) for name in ("mean", "std"))
    return (images - mean) / std


@pytest.mark.parametrize(
    ("processor", "prepare"),
    [
        ({}, normalised),
        ({"do_normalize": False}, lambda images: images),
        ({"rescale_factor": 1 / 127.5, "rescale_offset": True}, lambda images: normalised(2 * images - 1)),
        ({"do_rescale": False}, lambda images: normalised(255 * images)),
    ],
)
def test_images_are_prepared_as_by_the_processor(network, processor, prepare, tmp_path):
    model = load_model(saved(network, tmp_path, **processor))
    with torch.no_grad():
        expected = network(prepare(IMAGES)).logits
    torch.testing.assert_close(logits(model, IMAGES), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model(IMAGES).detach(), expected, rtol=1e-4, atol=1e-4)  # a tensor, for who adapts it
    assert class_names(model) == NAMES


@pytest.mark.parametrize(
    ("processor", "size"),
    [
        ({}, InputSize(16, 16, stretched=True)),
        ({"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": 16}}, InputSize(20, 16)),
        ({"size": {"shortest_edge": 16}, "crop_pct": 0.8}, InputSize(20, 16)),
        ({"size": 16}, InputSize(16, 16)),
        ({"do_resize": False}, None),
    ],
)
def test_size_of_images(network, processor, size, tmp_path):
    assert input_size(load_model(saved(network, tmp_path, **processor))) == size


def test_a_folder_without_a_processor_needs_a_normalisation(network, tmp_path):
    network.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="does not say how its images are normalised"):
        load_model(str(tmp_path))
    model = load_model(str(tmp_path), mean=PROCESSOR["image_mean"], std=PROCESSOR["image_std"])
    with torch.no_grad():
        torch.testing.assert_close(logits(model, IMAGES), network(normalised(IMAGES)).logits)


def test_a_second_normalisation_is_refused(network, tmp_path):
    with pytest.raises(ModelError, match="its own normalisation"):
        load_model(saved(network, tmp_path), mean=[0.5] * 3, std=[0.5] * 3)


def test_a_set_of_another_size_is_told_the_models(network, tmp_path):
    with pytest.raises(ModelError, match="failed on a batch") as caught:
        logits(load_model(saved(network, tmp_path)), torch.rand(2, 3, 20, 20))
    assert "size=(16, 16)" in caught.value.facts["fix"]


def test_a_folder_of_timm_names_the_command(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet10t", "label_names": ["a", "b"]}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="is timm's") as caught:
        load_model(tmp_path)
    assert f"--model timm:resnet10t --weights {tmp_path / 'model.safetensors'}" in caught.value.facts["fix"]
    assert "label_names" in caught.value.facts["fix"]


def test_a_network_already_made(network):
    model = load_model(network, mean=PROCESSOR["image_mean"], std=PROCESSOR["image_std"])
    with torch.no_grad():
        torch.testing.assert_close(model(IMAGES), network(normalised(IMAGES)).logits)
    assert class_names(model) == NAMES
    assert not isinstance(network(IMAGES), torch.Tensor)  # the user's own stays as it is


class TestSizes:
    """Verbs bring images to the size of a model, which they never do to a set that is made."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for place, name in enumerate(NAMES):
            (tmp_path / "data" / name).mkdir(parents=True)
            for number in range(2):
                array = np.random.default_rng(number).integers(0, 256, (24, 20 + 4 * place, 3), dtype=np.uint8)
                Image.fromarray(array).save(tmp_path / "data" / name / f"{number}.png")
        return tmp_path / "data"

    def test_images_of_different_sizes(self, network, folder, tmp_path):
        subject = Subject.of(saved(network, tmp_path / "model"), str(folder))
        assert as_images(subject.data).shape == (3, 16, 16)
        assert "the central 16 x 16 were taken. Its own processor stretches" in " ".join(subject.data.notes)
        assert subject.model is subject.loaded_model

    def test_images_of_one_size(self, network, tmp_path):
        model = load_model(saved(network, tmp_path))
        for side, noted in ((20, True), (16, False)):
            subject = Subject.of(model, (torch.rand(4, 3, side, side), [0, 1, 2, 0]))
            assert as_images(subject.data).shape == (3, 16, 16)
            assert any("resized" in note for note in subject.data.notes) == noted

    def test_a_size_that_is_not_firm_leaves_images_of_one_size_alone(self, folder):
        network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        network.input_size = InputSize(16, 16, firm=False)  # type: ignore[assignment]
        arrays = (torch.rand(4, 3, 20, 20), [0, 1, 2, 0])
        for given in (arrays, load_data(arrays)):
            data = as_images(Subject.of(network, given).data)
            assert data.shape == (3, 20, 20)
            assert "their own size, 20 x 20 pixels" in " ".join(data.notes)
            assert "--size 16 " in " ".join(data.notes)
        assert as_images(Subject.of(network, str(folder)).data).shape == (3, 16, 16)
        for chosen in (DataSpec(folder, size=8), load_data(folder, size=8)):
            assert "own size" not in " ".join(Subject.of(network, chosen).data.notes)

    def test_a_set_that_is_made_stays_as_it_is_and_that_is_told(self):
        network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        network.input_size = InputSize(16, 16)  # type: ignore[assignment]
        data = as_images(Subject.of(network, load_data((torch.rand(4, 3, 20, 20), [0, 1, 2, 0]))).data)
        assert data.shape == (3, 20, 20)
        assert "their own size, 20 x 20 pixels" in " ".join(data.notes)

    def test_the_users_size_stands(self, folder):
        network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
        network.input_size = InputSize(16, 16)  # type: ignore[assignment]
        assert as_images(Subject.of(network, DataSpec(folder, size=8)).data).shape == (3, 8, 8)
