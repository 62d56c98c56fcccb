from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftproof.errors import INTERRUPTIONS, DataError, ModelError
from shiftproof.models import BlackBox, build_network, device_of, logits
from shiftproof.models.outputs import check_finite, check_logits, device_logits

IMAGES = torch.rand(4, 3, 16, 16)


def test_calls_the_model_without_gradients() -> None:
    network = build_network("convnet", classes=5).eval()
    scores = logits(network, IMAGES)
    assert scores.shape == (4, 5)
    assert scores.dtype == torch.float32
    assert not scores.requires_grad
    assert torch.equal(scores, network(IMAGES).detach())


def test_leaves_room_for_models_that_need_gradients_inside() -> None:
    """An adapter is a model that learns while it answers."""
    weight = nn.Parameter(torch.ones(3))

    def model(images: Tensor) -> Tensor:
        with torch.enable_grad():
            out = images.mean((2, 3)) * weight
            out.sum().backward()
        return out

    logits(model, IMAGES)
    assert weight.grad is not None


@pytest.mark.parametrize("ask", [logits, device_logits, partial(device_logits, wait=False)])
def test_keeps_answers_of_a_model_that_writes_all_into_the_same_memory(ask: Callable[..., Tensor]) -> None:
    held = torch.empty(4, 3)

    def engine(images: Tensor) -> Tensor:
        return torch.mean(images, (2, 3), out=held)

    others = 1 - IMAGES
    answers = [ask(engine, images) for images in (IMAGES, others)]
    assert torch.equal(answers[0], IMAGES.mean((2, 3)))
    assert torch.equal(answers[1], others.mean((2, 3)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gives_images_in_the_precision_of_the_model(dtype: torch.dtype) -> None:
    network = build_network("convnet").eval()
    expected = logits(network, IMAGES)
    scores = logits(network.to(dtype), IMAGES)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x: "cat", "does not return a tensor"),
        (lambda x: {"features": x, "head": x.mean((2, 3))}, "several values"),
        (lambda x: x.mean((1, 2, 3)), "binary model"),
        (lambda x: x.mean((2, 3))[:, :1], "binary model"),
        (lambda x: x.mean((2, 3))[:2], r"shape \(2, 3\) for 4 images"),
        (lambda x: x, "wrong shape"),
        (lambda x: x.mean((2, 3)).argmax(1, keepdim=True).expand(-1, 2), "does not return scores"),
        (lambda x: x.mean((2, 3)) * float("nan"), "returns NaN"),
        (lambda x: x.mean((2, 3)).log() * 0 - torch.inf, "returns infinity"),
        (lambda x: x.view(4, -1) @ torch.rand(7, 2), "failed on a batch"),
    ],
)
def test_refuses_what_is_not_logits(model: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        logits(model, IMAGES)


def test_counts_the_images_without_finite_scores() -> None:
    def model(images: Tensor) -> Tensor:
        scores = images.mean((2, 3)).clone()
        scores[1, 2] = torch.nan
        return scores

    with pytest.raises(ModelError, match="1 of 4 images"):
        logits(model, IMAGES)


def test_finite_scores_can_be_asked_for_later() -> None:
    images = torch.rand(4, 3, 8, 8)

    def model(some: Tensor) -> Tensor:
        return some.mean((2, 3)) / (some.mean((1, 2, 3), keepdim=True)[:, :, 0, 0] > images[0].mean())

    scores = [device_logits(model, some, wait=False) for some in images.split(2)]
    assert not all(bool(each.isfinite().all()) for each in scores)
    with pytest.raises(ModelError, match=r"infinity for \d of 4 images"):
        check_finite(*scores)
    with pytest.raises(ModelError, match="infinity"):
        device_logits(model, images)
    check_finite()


def test_says_which_channels_the_model_got() -> None:
    with pytest.raises(ModelError, match=r"\(4, 1, 16, 16\)"):
        logits(build_network("convnet").eval(), IMAGES[:, :1])


def test_errors_of_our_own_pass_through() -> None:
    def model(images: Tensor) -> Tensor:
        raise DataError("The images are upside down.")

    with pytest.raises(DataError, match="upside down"):
        logits(model, IMAGES)


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit])
def test_a_model_that_wants_to_end_the_program_has_failed(kind: type[BaseException]) -> None:
    def model(images: Tensor) -> Tensor:
        raise kind

    with pytest.raises(ModelError, match=kind.__name__):
        logits(model, IMAGES)


@pytest.mark.parametrize("kind", INTERRUPTIONS)
def test_interruptions_pass_through(kind: type[BaseException]) -> None:
    def model(images: Tensor) -> Tensor:
        raise kind

    with pytest.raises(kind):
        logits(model, IMAGES)


def test_device_of() -> None:
    assert device_of(build_network("convnet").to("meta")) == torch.device("meta")
    assert device_of(nn.ReLU()) == torch.device("cpu")
    assert device_of(lambda x: x) == torch.device("cpu")
    assert device_of(BlackBox(lambda x: x, device="meta")) == torch.device("meta")


def test_black_boxes_may_answer_with_arrays() -> None:
    def service(images: Tensor) -> Any:
        return images.numpy().mean((2, 3), dtype=np.float64)

    box = BlackBox(service)
    assert box.name == "service"
    torch.testing.assert_close(logits(box, IMAGES), IMAGES.mean((2, 3)))


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ([0.2, 0.9], "with one probability s, after a sigmoid: return torch.cat([1 - s, s], dim=1)"),
        ([0.2, 0.9], "with one logit s"),
        ([-1.0, 2.0], "torch.cat([-s, s], dim=1) / 2, the same probabilities"),
        ([0, 2], "class numbers"),
    ],
)
def test_advice_for_one_number_per_image_fits_what_it_is(
    shape: tuple[int, ...], values: list[float], advice: str
) -> None:
    """A class number, a probability or a logit: each is helped by another line."""
    with pytest.raises(ModelError) as caught:
        check_logits(torch.tensor(values).reshape(shape), 2)
    assert advice in caught.value.facts["fix"]
