"""The denoiser: small, an identity before it is trained, told the noise, and kept with what it was trained for."""

from typing import Any

import pytest
import torch
from torch import nn

from shiftproof import load_model
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import fingerprint
from shiftproof.models.denoising import (
    FOLDER,
    check_noise,
    denoiser_names,
    fitting_denoiser,
    load_denoiser,
    save_denoiser,
)
from shiftproof.models.networks.denoiser import Denoised, Denoiser
from shiftproof.subjects import Subject


def trained(channels=3):
    torch.manual_seed(0)
    made = Denoiser(channels, (0.1, 0.25))
    nn.init.normal_(made.end.weight, std=0.01)
    return made.eval()


def test_it_is_small_and_starts_as_the_identity(tmp_path):
    made = Denoiser()
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(made(images, 0.25), images)
    save_denoiser(tmp_path / "denoiser.safetensors", made, {})
    assert (tmp_path / "denoiser.safetensors").stat().st_size < 1.2e6


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 13, 18), (3, 9, 8)])
def test_sizes_of_any_kind_and_noise_of_each_image(shape):
    made, images = trained(shape[0]), torch.rand(3, *shape)
    whole = made(images, torch.tensor([0.1, 0.2, 0.25]))
    assert whole.shape == images.shape
    assert torch.allclose(made(images[1:2], 0.2), whole[1:2], atol=1e-5)
    assert not torch.allclose(made(images[1:2], 0.1), whole[1:2], atol=1e-5)


def test_it_is_kept_with_its_noise(tmp_path):
    made, images = trained(), torch.rand(2, 3, 16, 16)
    save_denoiser(tmp_path / "denoiser.safetensors", made, {"target": "stab"})
    for given in (tmp_path, tmp_path / "denoiser.safetensors", str(tmp_path)):
        again = load_denoiser(given)
        assert isinstance(again, Denoiser)
        assert again.range == (0.1, 0.25)
        assert torch.allclose(again(images, 0.2), made(images, 0.2), atol=1e-3)  # half precision
        assert not again.training
    check_noise(made, 0.25)
    check_noise(nn.Identity(), 7.0)
    with pytest.raises(ConfigurationError, match="other noise"):
        check_noise(made, 0.5)


def test_a_classifier_behind_it():
    made, images = trained(), torch.rand(2, 3, 16, 16)
    pair = Denoised(made, lambda x: x.mean((2, 3)), 0.2)
    assert torch.equal(pair(images), made(images, 0.2).mean((2, 3)))
    assert torch.equal(Denoised(nn.Identity(), lambda x: x.mean((2, 3)), 0.2)(images), images.mean((2, 3)))


def test_what_is_no_denoiser_is_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "empty.safetensors", {"format": "shiftproof-denoiser/1"})
    for name in ("other.safetensors", "empty.safetensors", "none.safetensors"):
        with pytest.raises(ModelError):
            load_denoiser(tmp_path / name)
    with pytest.raises(ModelError, match="no denoiser 'nobody'"):
        load_denoiser("nobody")


def test_denoisers_that_come_with_the_package_fit_and_are_small():
    assert denoiser_names() == ("cifar10", "cifar10-demo")
    for name in denoiser_names():
        assert isinstance(load_denoiser(name), Denoiser)
        assert len((FOLDER / f"{name}.safetensors").read_bytes()) <= 1_200_000
    demo = fingerprint(load_model("demo"))
    assert fitting_denoiser(demo, (3, 32, 32), 0.25) == "cifar10-demo"
    assert fitting_denoiser("another model", (3, 32, 32), 0.25) == "cifar10"
    assert fitting_denoiser("another model", (3, 32, 32), 0.2) == "cifar10"


def test_the_demo_is_right_behind_its_denoiser_where_it_is_not_without():
    subject = Subject.of("demo", "demo", images=50, device="cpu", batch_size=50)
    (batch,) = subject.data.batches(50)
    noisy = batch.inputs + 0.25 * torch.randn(batch.inputs.shape, generator=torch.Generator().manual_seed(0))
    model: Any = subject.model
    behind = Denoised(load_denoiser("cifar10-demo"), model, 0.25)
    with torch.no_grad():
        alone, helped = (float((each(noisy).argmax(1) == batch.labels).float().mean()) for each in (model, behind))
    assert alone < 0.3
    assert helped > 0.6  # 74% of 500 test images
