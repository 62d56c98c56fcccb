"""The device of every verb: `auto` is known to all of them, and is their default."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import shiftproof
from shiftproof.certificates import spectrum
from shiftproof.comparisons.along_streams import compare_on_stream
from shiftproof.comparisons.methods import compare_methods
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError
from shiftproof.exports.writing import write_corrupted
from shiftproof.models import choose_device, device_of
from shiftproof.streams import Gradual, calibrate
from shiftproof.training.text import train_text_cnn

FEW: dict[str, Any] = {"images": 16}
TWO = ["contrast", "brightness"]
VERBS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "audit": (
        shiftproof.audit,
        lambda verb, out, **given: verb("demo", "demo", out=out, sections=["clean"], **FEW, **given),
    ),
    "calibrate": (
        calibrate,
        lambda verb, out, **given: verb(
            "demo",
            "demo",
            out=out,
            images=4,
            speed=2,
            target=0.5,
            shifts=TWO,
            steady=None,
            calibration_images=16,
            **given,
        ),
    ),
    "certify": (
        shiftproof.certify,
        lambda verb, out, **given: verb("demo", "demo", sigma=0.1, n=50, n0=10, images=2, **given),
    ),
    "compare_methods": (
        compare_methods,
        lambda verb, out, **given: verb(shifts=["contrast@5"], methods=["bn"], out=out, **FEW, **given),
    ),
    "compare_on_stream": (
        compare_on_stream,
        lambda verb, out, **given: verb(
            stream="gradual", shifts=["contrast"], methods=["bn"], images=32, speed=16, out=out, **given
        ),
    ),
    "diagnose": (
        shiftproof.diagnose,
        lambda verb, out, **given: verb("demo", "demo", kinds=["contrast"], pairs=False, out=out, **FEW, **given),
    ),
    "estimate": (
        shiftproof.estimate,
        lambda verb, out, **given: verb("demo", "demo", views=1, shifts=[f"{name}@5" for name in TWO], **FEW, **given),
    ),
    "find_failures": (
        shiftproof.find_failures,
        lambda verb, out, **given: verb("demo", "demo", out=out, **FEW, **given),
    ),
    "search": (
        shiftproof.search,
        lambda verb, out, **given: verb("demo", "demo", length=1, searcher="random", budget=2, **FEW, **given),
    ),
    "spectrum": (
        spectrum,
        lambda verb, out, **given: verb("demo", "demo", step=16, images=2, **given),
    ),
    "train": (
        shiftproof.train,
        lambda verb, out, **given: verb("convnet", "demo", batch_size=8, epochs=1, **FEW, **given),
    ),
    "train_text_cnn": (
        train_text_cnn,
        lambda verb, out, **given: verb(
            load_data((["good film", "bad film"] * 4, ["good", "bad"] * 4)), embedding=4, width=4, hidden=4, **given
        ),
    ),
}
CHOOSING: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "load_model": (shiftproof.load_model, lambda verb, out, **given: verb("demo", **given)),
    "write_corrupted": (
        write_corrupted,
        lambda verb, out, **given: verb("demo", out, shifts=["contrast@5"], **given),
    ),
    "stream": (
        Gradual,
        lambda verb, out, **given: next(iter(verb(load_data("demo").take(4), shifts=["contrast"], length=4, **given))),
    ),
}
"""Those whose default is not `auto`, for a reason that they tell, and that know it all the same."""


@pytest.mark.parametrize("name", [*VERBS, *CHOOSING])
def test_every_verb_knows_auto(name: str, tmp_path: Path) -> None:
    verb, call = {**VERBS, **CHOOSING}[name]
    assert call(verb, tmp_path / "run", device="auto") is not None


@pytest.mark.parametrize("name", VERBS)
def test_auto_is_the_default(name: str) -> None:
    assert inspect.signature(VERBS[name][0]).parameters["device"].default == "auto"


@pytest.mark.parametrize("name", [*VERBS, *CHOOSING])
def test_a_device_that_is_not_there_is_told_in_words(name: str, tmp_path: Path) -> None:
    verb, call = {**VERBS, **CHOOSING}[name]
    with pytest.raises(ConfigurationError, match="The device 'gpu' cannot be used"):
        call(verb, tmp_path / "run", device="gpu")


def test_auto_takes_cuda_where_there_is_one_and_leaves_a_module_on_its_accelerator(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("auto") == choose_device("auto", nn.Linear(1, 1)) == "cuda"
    assert choose_device("auto", nn.Linear(1, 1, device="meta")) == "meta"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == "cpu"
    model = shiftproof.load_model("demo", device="auto")
    assert device_of(model) == torch.device("cpu")
