"""Segmenters and data sets of other packages: the same label maps as on the plain path, and an audit's mIoU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

for package in ("torchvision", "transformers", "onnxruntime", "datasets"):
    pytest.importorskip(package, reason="the packages of tests/ecosystem/requirements.txt: make ecosystem")

import datasets
import torchvision
import transformers

import shiftproof
from shiftproof.measures.overlap import Overlap, count_overlap
from shiftproof.models import ModelSpec
from tests.label_maps import load_masks, painted

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope="module")
def images():
    return painted(6, height=64, width=96)


def segformer(classes=4):
    torch.manual_seed(0)
    sizes = {"hidden_sizes": [8, 16, 24, 32], "decoder_hidden_size": 16, "depths": [1, 1, 1, 1]}
    config = transformers.SegformerConfig(num_labels=classes, num_attention_heads=[1, 1, 2, 2], **sizes)
    config.id2label = dict(enumerate(["ground", "red", "green", "blue"]))
    return transformers.SegformerForSemanticSegmentation(config).eval()


def fcn():
    torch.manual_seed(0)
    return torchvision.models.segmentation.fcn_resnet50(weights=None, weights_backbone=None, num_classes=4).eval()


def plain_miou(ask, images):
    """Return mIoU by upsampling logits to the label maps, as the packages' own evaluations do."""
    pictures, maps = images
    inputs = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        scores = ask((inputs - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1))
    scores = F.interpolate(scores, maps.shape[1:], mode="bilinear", align_corners=False)
    return Overlap(count_overlap(torch.from_numpy(maps), scores.argmax(1), 4, 255)).value


@pytest.mark.parametrize("form", ["object", "folder"])
def test_segformer(form, images, tmp_path):
    network = segformer()
    expected = plain_miou(lambda batch: network(pixel_values=batch).logits, images)
    model: Any = ModelSpec(network, mean=MEAN, std=STD)
    if form == "folder":
        network.save_pretrained(tmp_path / "net")
        transformers.SegformerImageProcessor(image_mean=MEAN, image_std=STD).save_pretrained(tmp_path / "net")
        model = str(tmp_path / "net")
    found = shiftproof.audit(model, images, sections=["clean"], out=tmp_path / "run", device="cpu")
    assert found.numbers["miou"] == pytest.approx(expected, abs=1e-4)


def test_segformer_under_corruption_and_adaptation(images, tmp_path):
    model = ModelSpec(segformer(), mean=MEAN, std=STD)
    options: dict[str, Any] = {
        "shifts": ["contrast", "fog"],
        "severities": [3],
        "device": "cpu",
        "methods": ["bn", "tent"],
    }
    found = shiftproof.audit(model, images, sections=["corruptions", "adaptation"], out=tmp_path, **options)
    assert not found.failed
    assert {"corruption_miou", "adaptation_gain.tent"} <= found.numbers.keys()


@pytest.mark.parametrize("form", ["object", "file of weights", "onnx"])
def test_fcn(form, images, tmp_path):
    network = fcn()
    expected = plain_miou(lambda batch: network(batch)["out"], images)
    model: Any = ModelSpec(network, mean=MEAN, std=STD)
    if form == "file of weights":
        torch.save(network.state_dict(), tmp_path / "fcn.pt")
        model = ModelSpec("torchvision:fcn_resnet50", weights=tmp_path / "fcn.pt", num_classes=4)
    elif form == "onnx":
        pytest.importorskip("onnx")
        whole = torch.nn.Sequential(shiftproof.models.Normalize(MEAN, STD), _Out(network)).eval()
        one = torch.rand(1, 3, 64, 96)
        torch.onnx.export(
            whole, (one,), tmp_path / "fcn.onnx", dynamo=False, dynamic_axes={"x": {0: "n"}}, input_names=["x"]
        )
        model = str(tmp_path / "fcn.onnx")
    found = shiftproof.audit(model, images, sections=["clean"], out=tmp_path / "run", device="cpu")
    assert found.numbers["miou"] == pytest.approx(expected, abs=1e-4)


class _Out(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images)["out"]


def test_mask2former_answers_by_queries(images, tmp_path):
    torch.manual_seed(0)
    backbone = transformers.SwinConfig(embed_dim=12, depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 2], window_size=2)
    backbone.out_features = ["stage1", "stage2", "stage3", "stage4"]
    sizes = {"hidden_dim": 32, "mask_feature_size": 32, "feature_size": 32, "num_attention_heads": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 2, "dim_feedforward": 32, "encoder_feedforward_dim": 32}
    config = transformers.Mask2FormerConfig(
        backbone_config=backbone, num_queries=5, num_labels=4, use_pretrained_backbone=False, **sizes, **layers
    )
    network = transformers.Mask2FormerForUniversalSegmentation(config).eval()

    def plain(batch):
        out = network(pixel_values=batch)
        shares = out.class_queries_logits.softmax(-1)[..., :-1]
        return torch.einsum("nqc,nqhw->nchw", shares, out.masks_queries_logits.sigmoid())

    model = ModelSpec(network, mean=MEAN, std=STD)
    found = shiftproof.audit(model, images, sections=["clean"], out=tmp_path, device="cpu")
    assert 0 <= found.numbers["miou"] <= 1
    assert found.numbers["miou"] == pytest.approx(plain_miou(plain, images), abs=0.05)  # logarithms are upsampled


def test_a_hugging_face_set_with_label_maps(images):
    pictures, maps = images
    made = datasets.Dataset.from_dict(
        {"image": [Image.fromarray(one) for one in pictures], "annotation": [Image.fromarray(one) for one in maps]},
        features=datasets.Features({"image": datasets.Image(), "annotation": datasets.Image()}),
    )
    data = load_masks(made)
    assert data.task == "segmentation"
    assert (data.labels.numpy() == maps).all()


def test_torchmetrics_has_the_same_overlap(images):
    metrics = pytest.importorskip("torchmetrics.classification")
    maps = torch.from_numpy(images[1])
    predicted = torch.from_numpy(np.roll(np.where(images[1] == 255, 0, images[1]), 2, axis=2)).long()
    theirs = metrics.MulticlassJaccardIndex(num_classes=4, average=None, ignore_index=255)(predicted, maps.long())
    found = Overlap(count_overlap(maps, predicted, 4, 255))
    np.testing.assert_allclose(found.by_class, theirs.double().numpy(), atol=1e-6)
