"""Compare the corruption robustness of several timm classifiers on the same photographs.

    pip install 'shiftproof[vision]'
    python examples/audit_timm.py photos/ resnet50.a1_in1k convnext_tiny.fb_in1k --out audits/

Every model gets a run directory in `--out`; an interrupted run resumes with the same command.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import shiftproof


def main() -> None:
    """Audit every model and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder with one sub-folder per class, in the order of the models' outputs")
    parser.add_argument("names", nargs="+", help="classifiers that timm.list_models(pretrained=True) lists")
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("audits"))
    options = parser.parse_args()
    print(f"{'model':<40} clean   corrupted")
    for name in options.names:
        try:
            result = shiftproof.audit(
                f"timm:{name}",
                shiftproof.DataSpec(options.data, size=options.size),
                images=options.images,
                sections=["clean", "corruptions"],
                out=options.out / name,
            )
        except shiftproof.ShiftproofError as error:  # not installed, no weights, no such folder
            sys.exit(str(error))
        found = result.numbers
        clean, corrupted = 100 * found["clean_accuracy"], 100 * found["corruption_accuracy"]
        print(f"{name:<40} {clean:5.1f}%  {corrupted:8.1f}%", flush=True)


if __name__ == "__main__":
    main()
