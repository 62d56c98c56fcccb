"""The reference networks' errors under these corruptions against their errors under the released generators.

Both sides drew once for each image and severity, so that equal generators differ by the luck of the draw: by about a
point over the 2,000 small images, by a few over the 100 large ones. Differences are in points, ours less theirs;
`pytest --log-cli-level=INFO` shows them all. Under xdist, `--dist loadfile` measures every cell once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from shiftproof.models import Model, logits
from shiftproof.shifts import corruption, facts, names
from tests.parity.conftest import Rows

pytestmark = [pytest.mark.parity, pytest.mark.slow]

SEVERITIES = (1, 2, 3, 4, 5)
SIZES = ("cifar", "imagenet")
COMMON = [name for name in (*names("common"), *names("holdout")) if name != "frost"]
BAR = [name for name in names("bar") if "cifar" in facts(name)["published"]]
PER_CELL = {"cifar": 2.5, "imagenet": 8.0, "bar": 4.0}
ON_AVERAGE = {"cifar": 0.5, "imagenet": 1.5, "bar": 1.0}
PART = 50

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Suite:
    """A network, uint8 images with their labels, and the network's errors under the released generators."""

    network: Model
    images: Tensor
    labels: Tensor
    released: Rows
    measured: dict[tuple[str, str | None], list[float]] = field(default_factory=dict)

    def error(self, images: Tensor) -> float:
        """Return the share of images in [0, 1] that the network gets wrong."""
        parts = images.contiguous(memory_format=torch.channels_last).split(PART)
        answers = torch.cat([logits(self.network, part).argmax(1) for part in parts])
        return (answers != self.labels).double().mean().item()

    def differences(self, name: str, textures: str | None = None) -> list[float]:
        """Return by how many points the error under a corruption is above the released one, at severities 1..5."""
        if (name, textures) not in self.measured:
            differences = [self._difference(name, severity, textures) for severity in SEVERITIES]
            log.info("%s %s: %s", name, textures or "", " ".join(f"{points:+.2f}" for points in differences))
            self.measured[name, textures] = differences
        return self.measured[name, textures]

    def _difference(self, name: str, severity: int, textures: str | None) -> float:
        shift = corruption(name, severity, **({} if textures is None else {"textures": textures}))
        # The released draws of two severities are independent; a seed for each makes ours so.
        shifted = shift(self.images.float() / 255, torch.arange(len(self.images)), seed=severity)
        return round(100 * (self.error(shifted) - float(self.released[name, severity]["error"])), 6)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one core: threads that wait for each other on a busy machine cost more than they save."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def cifar(cifar_network: Model, cifar_images: Tensor, cifar_labels: Tensor, cifar_c_errors: Rows) -> Suite:
    return Suite(cifar_network, cifar_images[:2000], cifar_labels[:2000], cifar_c_errors)


@pytest.fixture(scope="module")
def imagenet(
    imagenet_network: Model, imagenet_images: Tensor, imagenet_labels: Tensor, imagenet_c_errors: Rows
) -> Suite:
    return Suite(imagenet_network, imagenet_images, imagenet_labels, imagenet_c_errors)


@pytest.fixture(scope="module")
def bar(cifar_network: Model, cifar_images: Tensor, cifar_labels: Tensor, cifar_bar_errors: Rows) -> Suite:
    return Suite(cifar_network, cifar_images[:1000], cifar_labels[:1000], cifar_bar_errors)


@pytest.mark.parametrize("which", ["cifar", "imagenet", "bar"])
def test_the_clean_error_is_the_reference_one(which: str, request: pytest.FixtureRequest) -> None:
    suite: Suite = request.getfixturevalue(which)
    assert suite.error(suite.images.float() / 255) == pytest.approx(suite.released["clean", 0]["error"], abs=1e-9)


@pytest.mark.parametrize(
    ("which", "name"), [*((size, name) for size in SIZES for name in COMMON), *(("bar", name) for name in BAR)]
)
def test_errors_are_the_released_ones(which: str, name: str, request: pytest.FixtureRequest) -> None:
    suite: Suite = request.getfixturevalue(which)
    differences = suite.differences(name)
    assert max(map(abs, differences)) <= PER_CELL[which], differences


@pytest.mark.parametrize("which", SIZES)
def test_errors_under_frost_from_photographs_are_the_released_ones(
    which: str, frost_photographs: Path, request: pytest.FixtureRequest
) -> None:
    suite: Suite = request.getfixturevalue(which)
    differences = suite.differences("frost", str(frost_photographs))
    assert max(map(abs, differences)) <= PER_CELL[which], differences


@pytest.mark.parametrize("which", SIZES)
def test_errors_under_frost_by_rule_are_near_the_released_ones(which: str, request: pytest.FixtureRequest) -> None:
    suite: Suite = request.getfixturevalue(which)
    differences = suite.differences("frost")
    assert max(map(abs, differences)) <= 2 * PER_CELL[which], differences


@pytest.mark.parametrize("frost", ["photographs", "rule"])
@pytest.mark.parametrize("which", SIZES)
def test_the_mean_error_is_the_released_one(
    which: str, frost: str, frost_photographs: Path, request: pytest.FixtureRequest
) -> None:
    suite: Suite = request.getfixturevalue(which)
    cells = [points for name in COMMON for points in suite.differences(name)]
    cells += suite.differences("frost", str(frost_photographs) if frost == "photographs" else None)
    assert abs(sum(cells)) / len(cells) <= ON_AVERAGE[which]


def test_the_mean_error_under_the_bar_family_is_the_released_one(bar: Suite) -> None:
    cells = [points for name in BAR for points in bar.differences(name)]
    assert abs(sum(cells)) / len(cells) <= ON_AVERAGE["bar"]
