from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import BlackBox, fingerprint, load_model, logits
from shiftproof.models.dense_outputs import pixel_logits
from shiftproof.models.input_size import input_size
from shiftproof.models.onnx_files import external_files

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

IMAGES = torch.rand(7, 3, 8, 8)
WEIGHT = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)


def save(
    path: Path,
    *,
    shape: tuple[Any, ...] = ("N", 3, 8, 8),
    weight: np.ndarray[Any, Any] = WEIGHT,
    inputs: int = 1,
    outputs: int = 1,
    element: int = onnx.TensorProto.FLOAT,
    axes: tuple[int, int] = (2, 3),
) -> Path:
    """Write a model: the mean colour of an image times a matrix, in the second output times twice it."""
    helper = onnx.helper
    dtype = helper.tensor_dtype_to_np_dtype(element)
    levels = element == onnx.TensorProto.UINT8
    images = [helper.make_tensor_value_info(f"images{number}", element, shape) for number in range(inputs)]
    scores = [helper.make_tensor_value_info(f"scores{number}", element, [shape[0], 4]) for number in range(outputs)]
    if levels:
        dtype = np.dtype(np.float32)
        for each in scores:
            each.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Cast", ["images0"], ["numbers"], to=helper.np_dtype_to_tensor_dtype(dtype)),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["colour"], keepdims=0),
        *(helper.make_node("MatMul", ["colour", f"weight{number}"], [f"scores{number}"]) for number in range(outputs)),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array(axes), "axes"),
        *(
            onnx.numpy_helper.from_array(((number + 1) * weight).astype(dtype), f"weight{number}")
            for number in range(outputs)
        ),
    ]
    graph = helper.make_graph(nodes, "colours", images, scores, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def expected(images: torch.Tensor = IMAGES) -> torch.Tensor:
    return images.mean((2, 3)) @ torch.from_numpy(WEIGHT)


def test_is_a_black_box_that_answers_as_the_graph_does(tmp_path: Path) -> None:
    model = load_model(save(tmp_path / "model.onnx"))
    assert isinstance(model, BlackBox)
    assert model.name == "model.onnx"
    torch.testing.assert_close(logits(model, IMAGES), expected())


def test_is_known_by_its_content(tmp_path: Path) -> None:
    torch.testing.assert_close(logits(load_model(save(tmp_path / "model")), IMAGES), expected())


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_a_fixed_batch_is_filled_up(batch: int, tmp_path: Path) -> None:
    model = load_model(save(tmp_path / "model.onnx", shape=(batch, 3, 8, 8)))
    torch.testing.assert_close(logits(model, IMAGES), expected())


def test_half_precision(tmp_path: Path) -> None:
    model = load_model(save(tmp_path / "model.onnx", element=onnx.TensorProto.FLOAT16))
    torch.testing.assert_close(logits(model, IMAGES), expected(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("batch", ["N", 1])
def test_channels_may_come_last(batch: str | int, tmp_path: Path) -> None:
    model = load_model(save(tmp_path / "model.onnx", shape=(batch, 8, 8, 3), axes=(1, 2)))
    torch.testing.assert_close(logits(model, IMAGES), expected())
    with pytest.raises(ModelError, match=r"3 x 8 x 8 \(channels, height, width\)") as caught:
        logits(model, torch.rand(1, 3, 16, 16))
    assert "--size 8" in caught.value.facts["fix"]


LAYOUTS: dict[str, tuple[list[Any], list[Any], list[int]]] = {
    "first": (["N", 3, 8, 8], ["N", 3, 8, 8], [0, 1, 2, 3]),
    "last": (["N", 8, 8, 3], ["N", 8, 8, 3], [0, 1, 2, 3]),
    "last, of any size": (["N", "H", "W", 3], ["N", "H", "W", 3], [0, 1, 2, 3]),
    "last, of no declared shape": ([None, None, None, 3], [None, None, None, None], [0, 1, 2, 3]),
    "last, then first": (["N", 8, 8, 3], ["N", 3, 8, 8], [0, 3, 1, 2]),
    "first, then last": (["N", 3, 8, 8], ["N", 8, 8, 3], [0, 2, 3, 1]),
}


@pytest.mark.parametrize(("shape", "scores", "turned"), LAYOUTS.values(), ids=LAYOUTS)
def test_classes_of_pixels_may_come_last(
    shape: list[Any], scores: list[Any], turned: list[int], tmp_path: Path
) -> None:
    helper, number = onnx.helper, onnx.TensorProto.FLOAT
    given, said = (helper.make_tensor_value_info(*each) for each in (("x", number, shape), ("y", number, scores)))
    graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["y"], perm=turned)], "turned", [given], [said])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, tmp_path / "model.onnx")
    torch.testing.assert_close(pixel_logits(load_model(tmp_path / "model.onnx"), IMAGES), IMAGES)


def test_levels_of_0_to_255(tmp_path: Path) -> None:
    model = load_model(save(tmp_path / "model.onnx", element=onnx.TensorProto.UINT8))
    levels = (IMAGES * 255).round()
    torch.testing.assert_close(logits(model, levels / 255), expected(levels))
    torch.testing.assert_close(logits(model, IMAGES * 3 - 1), expected((IMAGES * 3 - 1).clamp(0, 1).mul(255).round()))


@pytest.mark.parametrize(("shape", "side"), [(("N", 3, 8, 8), 8), (("N", 3, 8, 6), None), (("N", 3, "H", "W"), None)])
def test_the_size_of_its_images_is_known(shape: tuple[Any, ...], side: int | None, tmp_path: Path) -> None:
    found = input_size(load_model(save(tmp_path / "model.onnx", shape=shape), mean=[0.0] * 3, std=[1.0] * 3))
    assert (found and found.size) == (side and (side, side))


def test_a_normalisation_can_go_in_front(tmp_path: Path) -> None:
    save(tmp_path / "model.onnx")
    model = load_model(tmp_path / "model.onnx", mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.1))
    by_hand = (IMAGES - 0.5) / torch.tensor([0.5, 0.25, 0.1])[:, None, None]
    torch.testing.assert_close(logits(model, IMAGES), expected(by_hand))
    assert fingerprint(model) != fingerprint(load_model(tmp_path / "model.onnx"))
    other = load_model(tmp_path / "model.onnx", mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 0.2))
    assert fingerprint(model) != fingerprint(other)


def test_the_fingerprint_is_the_files(tmp_path: Path) -> None:
    first, copy = save(tmp_path / "a.onnx"), save(tmp_path / "b.onnx")
    other = save(tmp_path / "c.onnx", weight=np.nextafter(WEIGHT, np.float32(9)))
    assert fingerprint(load_model(first)) == fingerprint(load_model(copy)) != fingerprint(load_model(other))


@pytest.mark.parametrize("location", ["a.onnx.data", "weights.bin"])
def test_the_fingerprint_counts_the_external_data_that_the_graph_names(location: str, tmp_path: Path) -> None:
    model = onnx.load(save(tmp_path / "a.onnx"))
    onnx.save(model, tmp_path / "a.onnx", save_as_external_data=True, location=location, size_threshold=64)
    assert external_files(tmp_path / "a.onnx") == [location]
    before = fingerprint(load_model(tmp_path / "a.onnx"))
    (tmp_path / "a.onnx.log").write_text("no part of the model")
    assert fingerprint(load_model(tmp_path / "a.onnx")) == before
    content = (tmp_path / location).read_bytes()
    (tmp_path / location).write_bytes(content[:-1] + b"?")
    assert fingerprint(load_model(tmp_path / "a.onnx")) != before


def test_external_data_is_found_in_graphs_inside_the_graph(tmp_path: Path) -> None:
    helper, tensor = onnx.helper, onnx.numpy_helper.from_array(np.zeros(4, np.float32), "inner")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value="inner.bin")
    constant = helper.make_node("Constant", [], ["out"], value=tensor)
    branch = helper.make_graph([constant], "branch", [], [])
    node = helper.make_node("If", ["condition"], ["out"], then_branch=branch, else_branch=branch)
    model = helper.make_model(helper.make_graph([node], "outer", [], []))
    (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
    assert external_files(tmp_path / "a.onnx") == ["inner.bin"]


def test_travels_to_another_process(tmp_path: Path) -> None:
    model = pickle.loads(pickle.dumps(load_model(save(tmp_path / "model.onnx"))))
    torch.testing.assert_close(logits(model, IMAGES), expected())


@pytest.mark.parametrize("output", ["scores1", 1, "1", -1])
def test_one_of_several_outputs_is_chosen_by_its_name_or_number(output: str | int, tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", outputs=2)
    model = pickle.loads(pickle.dumps(load_model(path, output=output)))
    torch.testing.assert_close(logits(model, IMAGES), expected() * 2)
    first = load_model(path, output="scores0", mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    torch.testing.assert_close(logits(first, IMAGES), expected((IMAGES - 0.5) / 0.5))
    assert fingerprint(model) != fingerprint(load_model(path, output="scores0"))
    with pytest.raises(ModelError, match="no output 'probabilities'") as caught:
        load_model(path, output="probabilities")
    assert "scores1" in caught.value.facts["got"]


def test_images_of_another_size_name_the_fix(tmp_path: Path) -> None:
    model = load_model(save(tmp_path / "model.onnx"))
    with pytest.raises(ModelError, match="3 x 8 x 8") as caught:
        logits(model, torch.rand(1, 3, 16, 16))
    assert "--size 8" in caught.value.facts["fix"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": 2}, "does not take a batch of images"),
        ({"element": onnx.TensorProto.INT32}, "does not take a batch of images"),
        ({"outputs": 2}, "which output is the logits"),
    ],
)
def test_refuses_graphs_that_are_no_image_classifier(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        load_model(save(tmp_path / "model.onnx", **options))


def test_refuses_a_broken_file(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ModelError, match="Cannot open the ONNX model"):
        load_model(path)


def test_without_onnxruntime_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelError, match=r"shiftproof\[onnx\]"):
        load_model(path)


def test_levels_leave_no_room_for_a_normalisation(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", element=onnx.TensorProto.UINT8)
    with pytest.raises(ConfigurationError, match="leave out --mean"):
        load_model(path, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
