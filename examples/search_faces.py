"""The worst case of a real detector: OpenCV's Haar cascade for faces, as a black box.

    pip install 'opencv-python-headless<5' scikit-image
    python examples/search_faces.py --budget 300 --out faces/

A hundred portraits of 25 x 25 pixels (Labeled Faces in the Wild, as they come with scikit-image) are enlarged to the
size at which the detector works. The fitness of a chain of transformations is the share of
faces that the detector still finds.
"""

from __future__ import annotations

import argparse
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from skimage.data import lfw_subset

from shiftproof.searchers import Search, Service, search

SIDE = 64
MARGIN = 16


def portraits() -> NDArray[np.uint8]:
    """Return the faces as RGB images, [100, 64, 64, 3]; the second half of the set shows none."""
    faces = (255 * lfw_subset()[:100]).astype(np.uint8)  # type: ignore[no-untyped-call]
    large = [Image.fromarray(face).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for face in faces]
    return np.stack([np.asarray(image.convert("RGB")) for image in large])


def haar_detector() -> Service:
    """Return OpenCV's frontal face detector: images [N, H, W, 3] to a list of boxes for each."""
    cascade = cv2.CascadeClassifier(cv2.data.haarcascades + "haarcascade_frontalface_default.xml")

    def boxes(images: NDArray[np.uint8]) -> list[Any]:
        found = []
        for image in images:
            grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
            framed = cv2.copyMakeBorder(grey, MARGIN, MARGIN, MARGIN, MARGIN, cv2.BORDER_REPLICATE)
            found.append(cascade.detectMultiScale(framed, scaleFactor=1.1, minNeighbors=3, minSize=(30, 30)))
        return found

    return Service(boxes, name="haar", fingerprint=f"OpenCV {cv2.__version__} frontalface_default")


def run(*, budget: int, length: int = 5, seed: int = 0, images: int | None = None, out: str | None = None) -> Search:
    """Search the space of faces for the chain under which the detector misses most."""
    return search(
        haar_detector(),
        portraits(),
        space="faces",
        length=length,
        budget=budget,
        seed=seed,
        images=images,
        fitness="detection_rate",
        similarity=0.5,
        out=out,
    )


def main() -> None:
    """Read the options and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="faces")
    given = parser.parse_args()
    found = run(budget=given.budget, length=given.length, seed=given.seed, out=given.out)
    words = found.trace.space.words
    print(f"faces found as they are  {found.clean:.2f}")
    print(f"under the worst chain    {found.worst:.2f}: {words(found.best.genes)}")
    if found.best_admissible is not None:
        kept = f"{found.worst_admissible:.2f}: {words(found.best_admissible.genes)}"
        print(f"keeping the content      {kept}")
    print(f"pictures                 {given.out}/worst.png")


if __name__ == "__main__":
    main()
