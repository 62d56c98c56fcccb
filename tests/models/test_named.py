"""The networks that come with the package, and how new ones join them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks.reproduce.keep import keep
from shiftproof import models, train
from shiftproof.errors import ConfigurationError
from shiftproof.models import card, load_model, named
from shiftproof.models.loading import FORMS

LARGEST = 5_500_000
"""Bytes of all embedded weights together."""


def test_embedded_weights_are_small_and_have_cards() -> None:
    everything = Path(models.__file__).parent.rglob("*.safetensors")
    weights = sorted(path for path in everything if path.parent.name != "denoisers")  # test_denoising.py has those
    assert sum(path.stat().st_size for path in weights) < LARGEST
    assert {path.stem for path in weights} == {*named.cards(), "demo"}
    for name, facts in named.cards().items():
        assert {"network", "summary", "training", "measured", "use", "limits", "licence", "made"} <= facts.keys()
        assert facts["measured"], name
        assert FORMS[name] == facts["summary"]


@pytest.mark.parametrize("name", named.cards())
def test_every_name_loads(name: str) -> None:
    model = load_model(name)
    assert isinstance(model, torch.nn.Module)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_an_unknown_name_has_no_card() -> None:
    with pytest.raises(ConfigurationError, match="card"):
        card("no-such-network")


def test_a_trained_network_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `keep` writes loads by its name, and is the trained network but for rounding."""
    trained = train("convnet", "demo", recipe="gaussian", images=32, batch_size=16, epochs=1, out=tmp_path / "run")
    table = {"figures": {"clean": {"acr": 0.3, "images": 4}}, "commit": "abc", "device": "CPU", "torch": "2", "cut": []}
    keep(tmp_path / "run", table, tmp_path / "named", "cifar10-small")
    facts = json.loads((tmp_path / "named" / "cifar10-small.json").read_text())
    assert facts["measured"]["clean"] == {"acr": 0.3, "images": 4}
    assert facts["training"]["recipe"] == "gaussian"
    monkeypatch.setattr(named, "FOLDER", tmp_path / "named")
    named.cards.cache_clear()
    try:
        kept, images = load_model("cifar10-small"), torch.rand(4, 3, 32, 32)
        assert isinstance(kept, torch.nn.Module)
        assert card("cifar10-small") == facts
        torch.testing.assert_close(kept(images), trained.model(images), atol=0.02, rtol=0.02)
        for wrong in ({"mean": (0.5,), "std": (0.5,)}, {"weights": "other.safetensors"}):
            with pytest.raises(ConfigurationError):
                load_model("cifar10-small", **wrong)
    finally:
        named.cards.cache_clear()
