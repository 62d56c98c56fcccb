"""Whether methods learn whatever the number of classes, and say so where they do not."""

from __future__ import annotations

import warnings

import pytest
import torch

from shiftproof import load_data, load_model, shifts
from shiftproof.adapters import Counts, adapt, diagnose, every, method, never
from shiftproof.adapters.parts import largest_cosine
from shiftproof.adapters.sharpness import smallest_loss
from tests.adapters.networks import convolutional, small, stream


@pytest.fixture(scope="module")
def noisy() -> list[torch.Tensor]:
    """Eight batches of the demo's images under strong noise."""
    shift = shifts.parse("gaussian_noise@5")
    return [shift(batch.inputs, batch.keys) for batch in load_data("demo").take(256).batches(32)]


@pytest.mark.parametrize("name", ["eta", "eata", "rdumb", "guard"])
def test_filters_leave_images_whatever_the_number_of_classes(name: str, noisy: list[torch.Tensor]) -> None:
    model = load_model("demo")
    assert isinstance(model, torch.nn.Module)
    adapter = adapt(model, name)
    for images in noisy:
        adapter(images)
    assert adapter.updates == len(noisy)
    assert adapter.diagnosis == ()


def test_thresholds_are_the_published_ones_where_there_are_any() -> None:
    assert largest_cosine(10) == 0.4
    assert largest_cosine(1000) == 0.05
    for classes in (2, 3, 10, 37, 100, 365, 1000, 21_841):
        assert largest_cosine(classes) > classes**-0.5  # the cosine of a sure answer with a uniform mean
    assert smallest_loss(1000) == pytest.approx(0.2)
    assert smallest_loss(10) == pytest.approx(0.2 / 3)


def test_sar_does_not_recover_from_a_mild_shift() -> None:
    model, shift = load_model("demo"), shifts.parse("fog@3")
    assert isinstance(model, torch.nn.Module)
    adapter, published = adapt(model, "sar"), adapt(model, "sar", recover_below=0.2)
    for batch in load_data("demo").take(512).batches(64):
        images = shift(batch.inputs, batch.keys)
        adapter(images), published(images)
    assert adapter.resets == 0
    assert published.resets > 4
    assert "went back to its start" in published.diagnosis[0]


def test_a_method_that_hardly_updates_warns_once() -> None:
    adapter = small("eta", convolutional(classes=10), similarity=0.0)
    batch = stream(1)[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(120):
            adapter(batch)
    (said,) = [str(warning.message) for warning in caught]
    assert "eta updated in 1 of 100 batches" in said
    assert "1 of 120" in adapter.diagnosis[0]


@pytest.mark.parametrize("name", ["rotta", "petta", "note"])
def test_a_memory_that_never_filled_is_told(name: str) -> None:
    adapter = small(name, update_every=32)
    for batch in stream(2)[:2]:
        adapter(batch[:8])
    (said,) = adapter.diagnosis
    assert f"{name} made no update in 2 batches" in said
    for batch in stream(2):
        adapter(torch.cat([batch] * 4))
    assert adapter.updates
    assert adapter.diagnosis == ()


def test_what_is_meant_so_is_no_concern() -> None:
    assert not diagnose(method("tent"), never, Counts(100, 100, 0))
    assert not diagnose(method("rdumb"), every(5), Counts(100, 100, 20))
    assert not diagnose(method("rotta"), never, Counts(100, 25, 0))
    assert not diagnose(method("rotta"), never, Counts(0, 0, 0))
    assert not diagnose(method("bn"), never, Counts(100, 0, 0))
    assert diagnose(method("sar"), never, Counts(100, 100, 90))
