"""Audit an ONNX file as a black box: only its outputs are used.

    pip install 'shiftproof[onnx]'
    python examples/audit_onnx.py classifier.onnx photos/ --out audit-onnx/

The file's input is float images N x C x H x W in [0, 1], its output one row of scores per image. Sections that need
only outputs are measured; those that need the network (adaptation, long-stream stability) say why they are empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import shiftproof


def main(arguments: Sequence[str] | None = None) -> None:
    """Audit the file, and print the verdict and which sections could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("data", help="a folder with one sub-folder per class, an .npz file, or demo")
    parser.add_argument("--images", type=int)
    parser.add_argument("--shifts", nargs="*", help="corruptions or families; the common ones by default")
    parser.add_argument("--sections", nargs="*", help="all by default")
    parser.add_argument("--out", default="audit-onnx")
    options = parser.parse_args(arguments)
    result = shiftproof.audit(
        options.model,
        options.data,
        images=options.images,
        shifts=options.shifts,
        sections=options.sections,
        out=options.out,
    )
    print(result)
    for view in result.views:
        if not view.blocks:
            print(f"  {view.title}: {' '.join(view.notes)}")


if __name__ == "__main__":
    main()
