"""One front door: every verb with every common argument, and with every form of model, data, shift and method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import shiftproof
from shiftproof import DataSpec, ModelSpec, shifts
from shiftproof.adapters import method
from shiftproof.cli.commands import COMMANDS
from shiftproof.cli.derive import documented, options_for, textual
from shiftproof.errors import ModelError
from shiftproof.registry import imported

COUNT, SIDE = 24, 8
COMMON: Mapping[str, Any] = {
    "images": inspect.Parameter.empty,  # each verb says how many it uses by itself
    "seed": inspect.Parameter.empty,
    "device": "auto",
    "batch_size": inspect.Parameter.empty,
    "out": inspect.Parameter.empty,
    "executor": "inline",
    "on_progress": None,
}
"""The arguments that all verbs share, and their one default, where there is one."""
WITHOUT = {"estimate": {"executor"}, "train": {"executor", "seed", "batch_size"}}
"""Estimation is one pass; training's seed and batch size are settings of its loop, and its processes torchrun's."""

SOURCE = """
import torch
from torch import nn

def build():
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, 3))
    torch.nn.init.constant_(network[2].bias, 0.0)
    network[2].weight.data = torch.eye(3).repeat_interleave(64, dim=1) / 8
    return network.eval()
"""


def build() -> nn.Module:
    """Return the network that the file builds."""
    made: dict[str, Any] = {}
    exec(SOURCE, made)
    network = made["build"]()
    assert isinstance(network, nn.Module)
    return network


def pictures() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images of three classes, told apart by their brightest channel, and labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT) % 3
    images = rng.integers(0, 100, (COUNT, SIDE, SIDE, 3), dtype=np.uint8)
    images[np.arange(COUNT), :, :, labels] += 120
    return images, labels


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the model's file and the data as an array file and as class folders."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("forms")
    (folder / "net.py").write_text(SOURCE)
    images, labels = pictures()
    np.savez(folder / "data.npz", images=images, labels=labels)
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / "pictures" / str(label) / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return what a verb finds with the network and the arrays themselves, which is measured once."""
    known: dict[str, Any] = {}

    def found(name: str, **given: Any) -> Any:
        key = f"{name} {given}"
        if key not in known:
            known[key] = VERBS[name](build(), pictures(), tmp_path_factory.mktemp("plain"), **given)
        return known[key]

    return found


def _estimated(model: Any, data: Any, out: Path, **given: Any) -> Any:
    kinds = [f"{name}@5" for name in ("speckle_noise", "gaussian_blur", "spatter", "saturate")]
    found = shiftproof.estimate(model, data, source=data, views=2, shifts=given.pop("shifts", kinds), out=out, **given)
    return round(found.accuracy, 6)


def _audited(model: Any, data: Any, out: Path, **given: Any) -> Any:
    given = {"shifts": ["contrast@5"], "sections": ["clean", "corruptions", "adaptation"], "methods": ["bn"], **given}
    return dict(shiftproof.audit(model, data, out=out, **given).numbers)


VERBS: Mapping[str, Callable[..., Any]] = {
    "audit": _audited,
    "certify": lambda model, data, out, **given: shiftproof.certify(
        model, data, sigma=0.25, n0=10, n=100, out=out, **{"shift": "contrast@5", **given}
    ).radii.tolist(),
    "spectrum": lambda model, data, out, **given: (
        shiftproof.spectrum(
            model,
            data,
            out=out,
            **{"step": 4, "alphas": [], "strengths": [], "corruptions": ["fog"], "images": 9, **given},
        ).waves
    ),
    "search": lambda model, data, out, **given: (
        shiftproof.search(model, data, searcher="random", budget=3, length=2, out=out, **given).worst
    ),
    "estimate": _estimated,
    "diagnose": lambda model, data, out, **given: (
        shiftproof.diagnose(
            model, data, source=data, out=out, **{"kinds": ["contrast"], "pairs": False, **given}
        ).source_accuracy
    ),
    "find_failures": lambda model, data, out, **given: dict(
        shiftproof.find_failures(model, data, out=out, **{"shifts": ["contrast@5"], **given}).slices.accuracies
    ),
    "train": lambda model, data, out, **given: round(
        shiftproof.train(model, data, epochs=1, batch_size=8, framing="", out=out, **given).loss, 6
    ),
    "harden": lambda model, data, out, **given: [
        each.to_row()
        for each in shiftproof.harden(
            model, data, test=0.5, augment="veil", epochs=1, out=out, **{"batch_size": 4, **given}
        ).candidates
    ],
    "compare_methods": lambda model, data, out, **given: (
        shiftproof.compare_methods(
            model, data, out=out, **{"shifts": ["contrast@5"], "methods": ["bn"], **given}
        ).accuracies
    ),
    "compare_on_stream": lambda model, data, out, **given: [
        row["accuracy"]
        for row in shiftproof.compare_on_stream(
            model, data, out=out, **{"stream": "mixed", "shifts": ["contrast"], "methods": ["bn"], **given}
        ).to_rows()
    ],
    "run_protocol": lambda model, data, out, **given: shiftproof.run_protocol(
        model, data, out=out, **{"protocol": "mixed", "runs": 1, "shifts": ["contrast"], "methods": ["bn"], **given}
    ).to_rows(),
    "calibrate": lambda model, data, out, **given: sorted(
        shiftproof.calibrate(
            model, data, out=out, **{"images": 40, "speed": 20, "calibration_images": 10, "target": 0.5, **given}
        ).paths
    ),
}
"""Every verb that takes a model and data, as small as it goes, and what of its result must not depend on forms."""

MODELS: Mapping[str, Callable[[Path], Any]] = {
    "module": lambda place: build(),
    "text": lambda place: f"{place / 'net.py'}:build",
    "spec": lambda place: ModelSpec(f"{place / 'net.py'}:build"),
    "loaded": lambda place: shiftproof.load_model(f"{place / 'net.py'}:build"),
    "callable": lambda place: Scores(build()),
}
DATA: Mapping[str, Callable[[Path], Any]] = {
    "arrays": lambda place: pictures(),
    "text": lambda place: str(place / "data.npz"),
    "spec": lambda place: DataSpec(str(place / "data.npz"), color="rgb"),
    "loaded": lambda place: shiftproof.load_data(place / "data.npz"),
    "folder": lambda place: place / "pictures",
}


class Scores:
    """A function that is no module."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        with torch.no_grad():
            scores: torch.Tensor = self.network(images)
        return scores


def test_the_table_has_every_verb_of_a_model_and_data() -> None:
    verbs = {name: imported(command.verb) for name, command in COMMANDS.items()}
    both = {name.replace("-", "_") for name, verb in verbs.items() if {"model", "data"} <= {*_parameters(verb)}}
    assert both == VERBS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_the_public_function_of_its_name(name: str) -> None:
    if name != "list":
        assert getattr(shiftproof, name.replace("-", "_")) is imported(COMMANDS[name].verb)


@pytest.mark.parametrize("name", VERBS)
def test_common_arguments_have_one_name_and_one_default(name: str) -> None:
    parameters = _parameters(getattr(shiftproof, name))
    assert list(parameters)[:2] == ["model", "data"]
    for common, default in COMMON.items():
        if common not in WITHOUT.get(name, ()):
            assert parameters[common].kind is inspect.Parameter.KEYWORD_ONLY
            assert default is inspect.Parameter.empty or parameters[common].default == default


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_has_a_type_and_a_sentence(name: str) -> None:
    verb = imported(COMMANDS[name].verb)
    said = documented(verb)
    assert {*_parameters(verb)} == said.keys()
    assert all(text.rstrip().endswith(".") or "..." in text for text in said.values())
    assert all(each.annotation is not inspect.Parameter.empty for each in _parameters(verb).values())


def test_no_option_is_declared_twice() -> None:
    """A command has every option once, and one that several commands share has one meaning of its loader's."""
    for name, command in COMMANDS.items():
        options = [option.name for option in options_for(command)]
        assert len(options) == len(set(options)), name
    loading = {*_parameters(shiftproof.load_model), *_parameters(shiftproof.load_data)} - {"spec", "source", "device"}
    for name in VERBS:
        assert not loading & {*_parameters(getattr(shiftproof, name))}, name


@pytest.mark.parametrize(
    "given", [{"images": 12}, {"seed": 3}, {"device": "auto"}, {"device": "cpu"}, {"batch_size": 5}]
)
@pytest.mark.parametrize("name", VERBS)
def test_every_verb_takes_every_common_argument(name: str, given: dict[str, Any], place: Path, tmp_path: Path) -> None:
    if given.keys() & WITHOUT.get(name, set()):
        pytest.skip("training's own settings")
    heard: list[tuple[int, int]] = []
    VERBS[name](
        build(), pictures(), tmp_path / "run", on_progress=lambda done, total, _: heard.append((done, total)), **given
    )
    assert heard
    assert heard[-1][0] == heard[-1][1]
    assert any((tmp_path / "run").iterdir())


@pytest.mark.parametrize("name", [name for name in VERBS if "executor" not in WITHOUT.get(name, ())])
def test_processes_give_the_same_numbers(name: str, place: Path, tmp_path: Path) -> None:
    spec, data = MODELS["text"](place), DATA["text"](place)
    here = VERBS[name](spec, data, tmp_path / "here")
    assert VERBS[name](spec, data, tmp_path / "there", executor="processes:1") == here


@pytest.mark.parametrize("form", MODELS)
@pytest.mark.parametrize("name", VERBS)
def test_every_form_of_model_gives_the_same_numbers(
    name: str, form: str, place: Path, plain: Callable[..., Any], tmp_path: Path
) -> None:
    if name in ("train", "harden") and form == "callable":
        with pytest.raises(ModelError, match="black box"):
            VERBS[name](MODELS[form](place), pictures(), tmp_path / "run")
        return
    given: dict[str, Any] = {"device": "cpu"}  # on which a function's network is
    given |= (
        {"methods": ["source"]} if name.startswith(("compare", "run")) else {}
    )  # a function has no layers that adapt
    given |= {"sections": ["clean", "corruptions"]} if name == "audit" else {}
    found = VERBS[name](MODELS[form](place), pictures(), tmp_path / "run", **given)
    assert found == plain(name, **given)


@pytest.mark.parametrize("form", DATA)
@pytest.mark.parametrize("name", VERBS)
def test_every_form_of_data_gives_the_same_numbers(
    name: str, form: str, place: Path, plain: Callable[..., Any], tmp_path: Path
) -> None:
    # Files are put into an order of their own, by their bytes, so batches that are learnt from differ from an array's.
    own: dict[str, dict[str, Any]] = {
        "audit": {"sections": ["clean", "corruptions"]},
        "spectrum": {"images": COUNT},
    }
    given = own.get(name, {})
    found = VERBS[name](build(), DATA[form](place), tmp_path / "run", **given)
    if form != "folder" or name not in ("train", "harden", "compare_methods", "compare_on_stream", "run_protocol"):
        assert found == plain(name, **given)


@pytest.mark.parametrize("form", ["fog@3", shifts.corruption("fog", 3), "rotate=15", "fog@3 + contrast@2"])
@pytest.mark.parametrize("name", ["audit", "certify", "compare_methods", "estimate", "find_failures"])
def test_verbs_take_shifts_as_text_and_as_objects(name: str, form: Any, tmp_path: Path) -> None:
    def given(shift: Any) -> dict[str, Any]:
        if name == "certify":
            return {"shift": shift}
        others = [f"{other}@5" for other in ("speckle_noise", "gaussian_blur", "spatter")] if name == "estimate" else []
        return {"shifts": [shift, *others]}

    found = VERBS[name](build(), pictures(), tmp_path / "run", **given(form))
    other = shifts.as_shift(form) if isinstance(form, str) else form.label
    assert found == VERBS[name](build(), pictures(), tmp_path / "other", **given(other))


@pytest.mark.parametrize("name", ["audit", "compare_methods", "compare_on_stream"])
def test_verbs_take_methods_as_text_and_as_objects(name: str, tmp_path: Path) -> None:
    found = VERBS[name](build(), pictures(), tmp_path / "text", methods=["tent"])
    assert found == VERBS[name](build(), pictures(), tmp_path / "object", methods=[method("tent")])


def _parameters(verb: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(verb).parameters


def test_what_may_be_a_text_is_no_flag():
    assert textual(bool | str | Path | None) == (str, None)  # as numpy 2.0's ArrayLike, with a path
    assert textual(bool | None) == (bool, None)
