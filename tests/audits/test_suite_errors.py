"""A published suite is measured per corruption and severity, and its mean corruption error is the published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

from shiftproof.audits.sections import corruptions
from shiftproof.audits.suite_errors import suite_errors
from shiftproof.errors import DataError
from shiftproof.measures import mce
from shiftproof.models import imagenet
from shiftproof.shifts import names


class Reads(nn.Module):
    """Reads the label from two values of an image, and is wrong where a third says so."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        high, low, wrong = ((images[:, channel, 0, 0] * 255).round().long() for channel in range(3))
        return nn.functional.one_hot((high * 256 + low + wrong.sign()) % self.classes, self.classes).float() * 9


def pictures(labels: np.ndarray[Any, Any], error: float) -> np.ndarray[Any, Any]:
    """Return images of labels, of which a share is answered wrongly."""
    made = np.zeros((len(labels), 8, 8, 3), np.uint8)
    made[..., 0], made[..., 1] = (labels // 256)[:, None, None], (labels % 256)[:, None, None]
    made[: round(error * len(labels)), ..., 2] = 255
    return made


def arrays(folder: Path, classes: int) -> Path:
    """Write CIFAR-10-C's layout: at severity s a tenth of s images is answered wrongly; under fog two tenths."""
    folder.mkdir()
    labels = np.arange(classes)
    for name in names("common"):
        scale = 0.2 if name == "fog" else 0.1
        np.save(folder / f"{name}.npy", np.concatenate([pictures(labels, scale * s) for s in range(1, 6)]))
    np.save(folder / "labels.npy", np.tile(labels, 5))
    return folder


def test_mce_of_imagenet_s_classes_is_the_published_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruptions, "SMALL_SIDE", 0)  # a suite of 224 pixels a side would be large
    suite = arrays(tmp_path / "ImageNet-C", imagenet.CLASSES)
    found = suite_errors(Reads(imagenet.CLASSES), suite, classes=imagenet.wordnet_ids())
    assert found.errors["fog"] == pytest.approx({"1": 0.2, "2": 0.4, "3": 0.6, "4": 0.8, "5": 1.0})
    assert found.errors["snow"] == pytest.approx({"1": 0.1, "2": 0.2, "3": 0.3, "4": 0.4, "5": 0.5})
    assert found.mce == pytest.approx(mce({name: 0.6 if name == "fog" else 0.3 for name in names("common")}))


def test_ten_classes_have_errors_and_no_mce(tmp_path: Path) -> None:
    found = suite_errors(Reads(10), arrays(tmp_path / "CIFAR-10-C", 10))
    assert found.errors["fog"]["3"] == pytest.approx(0.6)
    assert len(found.errors) == 15
    assert found.mce is None


def test_folders_as_published(tmp_path: Path) -> None:
    for severity in range(1, 6):
        for label, image in enumerate(pictures(np.arange(10), severity / 10)):
            path = tmp_path / "ImageNet-C" / "weather" / "fog" / str(severity) / str(label) / "a.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(image).save(path)
    found = suite_errors(Reads(10), tmp_path / "ImageNet-C")
    assert found.errors == {"fog": pytest.approx({str(s): s / 10 for s in range(1, 6)})}
    with pytest.raises(DataError, match="not a suite"):
        suite_errors(Reads(10), tmp_path)
