"""Work whose batches do not fit goes on in smaller ones, with the same numbers."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import shiftproof
from shiftproof.certificates import certify
from shiftproof.models import BatchFitter
from shiftproof.searchers import search

MOST = 16


class Bounded(nn.Module):
    """A linear classifier that asks the real allocator for too much when a batch is larger than `most`."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3 * 64, 3, generator=generator))

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > self.most:
            torch.empty(2**60, dtype=torch.uint8)
        return nn.functional.adaptive_avg_pool2d(images, 8).flatten(1) @ self.weight


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(40, 3, 16, 16, generator=generator), torch.arange(40) % 3


def test_an_audit_halves_its_batches(data, tmp_path):
    options: dict[str, Any] = {
        "sections": ["clean", "corruptions"],
        "shifts": ["gaussian_noise", "contrast"],
        "severities": [3],
    }
    found = {}
    for most in (MOST, 10**6):
        out = tmp_path / str(most)
        shiftproof.audit(Bounded(most), data, out=out, batch_size=64, **options)
        found[most] = json.loads((out / "results.json").read_text())
    cells = found[MOST]["cells"]
    assert cells == found[10**6]["cells"]
    assert not [cell for cell in cells if "error" in cell]


def test_a_certification_and_a_search_halve_their_batches(data):
    certificates = [
        certify(Bounded(most).eval(), data, sigma=0.25, n0=10, n=100, batch_size=64).certificates
        for most in (MOST, 10**6)
    ]
    assert certificates[0] == certificates[1]
    found = [
        search(Bounded(most), data, length=2, searcher="random", budget=3, batch_size=64) for most in (MOST, 10**6)
    ]
    assert found[0].trace == found[1].trace


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_that_is_full_goes_on_with_half():
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()
    images = torch.rand(256, 3, 224, 224)
    torch.cuda.set_per_process_memory_fraction(2**30 / torch.cuda.get_device_properties(0).total_memory)
    try:
        fit = BatchFitter(256)

        def work(size: int) -> Tensor:
            with torch.no_grad():
                return torch.cat([model(part.cuda()).cpu() for part in torch.split(images, size)])

        found = fit(work)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert fit.size < 256
    torch.testing.assert_close(found, work(256), rtol=1e-4, atol=1e-5)
