"""The worst case of an ONNX model, which is a black box: outputs only.

    pip install 'shiftproof[onnx]' onnx
    python examples/search_onnx.py --model classifier.onnx --data photos/ --out worst/

Without `--model` a small ONNX classifier is written first: it tells the demo's images by their mean colours, fitted by
least squares. Any file whose input is float images N x C x H x W in [0, 1] and whose output is one row of scores per
image will do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shiftproof.data import load_data
from shiftproof.searchers import Search, search


def write_classifier(path: Path) -> Path:
    """Write an ONNX classifier of the demo's classes: mean colours on a 4 x 4 grid, then a linear layer."""
    batch = next(load_data("demo-source").batches(500))
    cells = batch.inputs.unfold(2, 8, 8).unfold(3, 8, 8).mean((4, 5)).flatten(1).numpy()
    features = np.column_stack([cells, np.ones(len(cells))])
    targets = np.eye(10)[np.asarray(batch.labels)]
    fitted = np.linalg.lstsq(features.T @ features + np.eye(features.shape[1]), features.T @ targets, rcond=None)[0]
    graph = helper.make_graph(
        [
            helper.make_node("AveragePool", ["images"], ["pooled"], kernel_shape=[8, 8], strides=[8, 8]),
            helper.make_node("Flatten", ["pooled"], ["cells"]),
            helper.make_node("Gemm", ["cells", "weight", "bias"], ["scores"]),
        ],
        "colours",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 10])],
        [
            numpy_helper.from_array(fitted[:-1].astype(np.float32), "weight"),
            numpy_helper.from_array(fitted[-1].astype(np.float32), "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def run(model: Path, data: str = "demo", *, budget: int, out: str | None = None, images: int | None = None) -> Search:
    """Search the space of small colour changes."""
    return search(str(model), data, space="cifar", length=3, budget=budget, images=images, similarity=0.8, out=out)


def main() -> None:
    """Read the options and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", default="demo")
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--out", default="worst")
    given = parser.parse_args()
    Path(given.out).mkdir(parents=True, exist_ok=True)
    model = given.model or write_classifier(Path(given.out) / "colours.onnx")
    found = run(model, given.data, budget=given.budget, out=given.out)
    print(f"accuracy as they are   {found.clean:.3f}")
    print(f"under the worst chain  {found.worst:.3f}: {found.trace.space.words(found.best.genes)}")
    print(f"pictures               {given.out}/worst.png")


if __name__ == "__main__":
    main()
