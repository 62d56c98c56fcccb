"""Audit a pretrained torchvision classifier on your own photographs.

    pip install 'shiftproof[vision]'
    python examples/audit_torchvision.py photos/ --name resnet50 --out audit-resnet50/

`photos/` has one sub-folder per class, whose names sort in the order of the classifier's outputs: for ImageNet, the
WordNet identifiers. The mean and std of the weights become a layer of the model; photographs are resized and cropped.
"""

from __future__ import annotations

import argparse
import sys

import shiftproof


def main() -> None:
    """Load, audit, and print the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder with one sub-folder per class")
    parser.add_argument("--name", default="resnet50", help="a classifier that torchvision.models.list_models() lists")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--images", type=int, help="how many to use; all that the budget allows")
    parser.add_argument("--out", default="audit-torchvision")
    options = parser.parse_args()
    try:
        data = shiftproof.load_data(options.data, size=options.size)
        result = shiftproof.audit(f"torchvision:{options.name}", data, images=options.images, out=options.out)
    except shiftproof.ShiftproofError as error:  # not installed, built for another torch, no weights, no such folder
        sys.exit(str(error))
    print(result)


if __name__ == "__main__":
    main()
