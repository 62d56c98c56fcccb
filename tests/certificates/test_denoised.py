"""Denoised smoothing: what is certified is the model behind its denoiser, and the file says so."""

from typing import Any

import pytest
import torch
from torch import nn

import shiftproof
from shiftproof.certificates import Smoothed, certify, load_certificate
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import fingerprint
from shiftproof.models.denoising import load_denoiser
from shiftproof.models.networks.denoiser import Denoiser

FEW: dict[str, Any] = {"n0": 20, "n": 100, "alpha": 0.01, "images": 4}


class Smoothing(nn.Module):
    """A denoiser of one's own: the mean of each channel, so that noise is nearly gone."""

    def forward(self, images):
        return images.mean((2, 3), keepdim=True).expand_as(images)


def test_a_denoiser_of_ones_own_is_part_of_what_is_certified():
    images = torch.eye(3)[:, :, None, None].expand(3, 3, 8, 8) * 0.2 + 0.4

    def corner(x):
        return x[:, :, 0, 0]

    plain = Smoothed(corner, 0.25).certify(images, n=400)
    behind = Smoothed(corner, 0.25, denoiser=Smoothing()).certify(images, n=400)
    assert max(each.radius for each in plain) < min(each.radius for each in behind)
    assert Smoothed(corner, 0.25, denoiser=Smoothing()).predict(images, n=100).tolist() == [0, 1, 2]


def test_the_certificate_names_both(tmp_path):
    denoiser = Denoiser(3, (0.02, 0.1)).eval()
    found = certify("demo", "demo", sigma=0.04, denoiser=denoiser, out=tmp_path, **FEW)
    content = load_certificate(tmp_path / "certificate.json")
    assert content["terms"]["denoiser"] == fingerprint(denoiser)
    assert f"behind the denoiser with fingerprint {fingerprint(denoiser)}" in content["guarantee"]
    assert (
        found.certificates == certify("demo", "demo", sigma=0.04, **FEW).certificates
    )  # untrained, it is the identity
    with pytest.raises(ConfigurationError, match="other noise"):
        certify("demo", "demo", sigma=0.5, denoiser=denoiser, **FEW)
    with pytest.raises(ConfigurationError, match="cannot be used against"):
        certify("demo", "demo", against="brightness", denoiser=denoiser, **FEW)


def test_another_denoiser_is_another_certificate(tmp_path):
    from shiftproof.errors import RunError

    first, second = (Denoiser(3, (0.02, 0.1)) for _ in range(2))
    certify("demo", "demo", sigma=0.04, denoiser=first, out=tmp_path, **FEW)
    with pytest.raises(RunError, match="with other settings"):
        certify("demo", "demo", sigma=0.04, denoiser=second, out=tmp_path, **FEW)


def test_a_model_in_training_mode_is_refused_behind_a_denoiser():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
    smoothed = Smoothed(network, 0.1, denoiser=Denoiser(3))
    smoothed.certify(torch.rand(2, 3, 8, 8), n=100)
    network.train()
    with pytest.raises(ModelError, match="training mode"):
        smoothed.certify(torch.rand(2, 3, 8, 8), n=100)


@pytest.mark.parametrize("target", ["mse", "stab"])
def test_training_lowers_the_loss_and_leaves_the_classifier_alone(tmp_path, target):
    demo = shiftproof.load_model("demo")
    before = fingerprint(demo)
    options: dict[str, Any] = {
        "recipe": "denoiser", "sigma": 0.1, "options": {"target": target, "low": 0.4}, "images": 12, "batch_size": 12,
        "epochs": 20, "log_every": 5, "framing": "", "ema": 0, "out": tmp_path, "device": "cpu",
    }  # fmt: skip
    made = shiftproof.train(demo, "demo", **options)
    losses = made.losses()
    assert losses[-1] < losses[0]
    assert fingerprint(demo) == before
    denoiser = load_denoiser(tmp_path)
    assert isinstance(denoiser, Denoiser)
    assert denoiser.range == (0.04, 0.1)
    images = torch.rand(1, 3, 32, 32)
    assert not torch.equal(denoiser(images, 0.1), images)
    inside: Any = made.model.classifier  # copied, and the same
    (batch,) = shiftproof.load_data("demo").subset(range(2)).batches(2)
    assert torch.allclose(inside(batch.inputs), demo(batch.inputs))
    assert shiftproof.train(demo, "demo", **options).losses() == losses  # resumed
    found = certify(demo, "demo", sigma=0.1, denoiser=tmp_path, device="cpu", **FEW)
    assert found.terms.denoiser == fingerprint(denoiser)
