"""File names and the order of files decide no number: the same images in class folders under other names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import nn

import shiftproof
from shiftproof.adapters.priors import choose_prior
from shiftproof.audits.sections import SECTIONS_BY_TASK, certified, spectrum
from shiftproof.certificates import certify
from shiftproof.comparisons.methods import compare_methods
from shiftproof.data import load_data
from shiftproof.models import logits
from shiftproof.streams import Concatenated
from tests.label_maps import ColourNet, write_tree


def written(root: Path, names: str) -> Path:
    """Write 400 of the demo's images as class folders, named upwards or downwards."""
    data = load_data("demo").subset(range(400))
    (batch,) = data.batches(400)
    assert data.labels is not None
    for place, (image, label) in enumerate(zip(batch.inputs, data.labels.tolist(), strict=True)):
        folder = root / data.classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = (image * 255).round().byte().permute(1, 2, 0).numpy()
        Image.fromarray(pixels).save(folder / f"{place if names == 'up' else 999 - place:03}.png")
    return root


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("order")
    return written(root / "one", "up"), written(root / "two", "down")


@pytest.mark.parametrize("task", list(SECTIONS_BY_TASK))
def test_an_audit_has_the_same_numbers_in_every_section(
    folders: tuple[Path, Path], tmp_path: Path, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spectrum, "SIZES", {"quick": spectrum.SpectrumSize(40, 4)})
    few = certified.CertifiedSize(images=16, shifted=8, ranges=8, part=4, n0=10, n=100, alpha=0.01)
    monkeypatch.setattr(certified, "SIZES", {"quick": few})
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)
    model: nn.Module = nn.Sequential(*layers).eval()  # a small one: what it answers does not matter
    if task == "segmentation":
        model = ColourNet()
        folders = (
            write_tree(tmp_path / "one", count=24),
            write_tree(tmp_path / "two", count=24, names="{:03d}", order=reversed),
        )
    numbers = []
    for folder in folders:
        out = tmp_path / f"{folder.name} run"
        shiftproof.audit(model, folder, out=out, images=100, shifts=["contrast"], severities=[5], methods=["bn"])
        found = json.loads((out / "results.json").read_text())
        shared = {"confidence"} if task == "segmentation" else set()  # it reads what corruptions measure
        assert {cell["task"].partition(".")[0] for cell in found["cells"]} | shared == set(SECTIONS_BY_TASK[task].own)
        numbers.append(found["numbers"])
    assert len(numbers[0]) > 30
    assert numbers[0] == numbers[1]


def test_adaptation_helps_on_class_folders_as_it_does_on_an_array(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """In the order of class folders, batches of one class turned +32 points into -23."""
    gains = [
        compare_methods("demo", data, shifts=["contrast@5"], methods=["bn"], out=tmp_path / str(number)).gain("bn")
        for number, data in enumerate([folders[0], load_data("demo").subset(range(400))])
    ]
    assert gains[0] == pytest.approx(gains[1], abs=0.03)
    assert gains[0] is not None
    assert gains[0] > 0.3


def test_a_certificate_is_about_all_classes(folders: tuple[Path, Path]) -> None:
    found = [certify("demo", folder, sigma=0.03, images=12, n=50, n0=10) for folder in folders]
    assert len(set(found[0].labels or ())) > 4
    one, other = (dict(zip(each.keys, each.certificates, strict=True)) for each in found)
    assert one == other  # each in the order of its own files


def test_a_prior_is_chosen_on_mixed_batches(folders: tuple[Path, Path]) -> None:
    model: Any = shiftproof.load_model("demo")
    mixed = load_data(folders[0]).take(96)
    ordered = mixed.subset(torch.as_tensor(mixed.labels).argsort(stable=True))
    made: list[Any] = [
        choose_prior(model, data, batch=8, shifts_used=["gaussian_blur"], priors=[0, 16]) for data in (mixed, ordered)
    ]
    assert made[0].accuracies == made[1].accuracies


def test_a_stream_is_the_same(folders: tuple[Path, Path]) -> None:
    streams = [Concatenated(load_data(folder), shifts=["fog"], length=200, batch_size=50) for folder in folders]
    assert streams[0].fingerprint == streams[1].fingerprint
    for one, other in zip(*streams, strict=True):
        assert one.keys.tolist() == other.keys.tolist()
        assert one.inputs.equal(other.inputs)


def measured(source: object, out: Path) -> dict[str, float]:
    """Return the numbers of a small audit."""
    options: dict[str, Any] = {"shifts": ["contrast"], "severities": [5], "sections": ["clean", "corruptions"]}
    return dict(shiftproof.audit("demo", source, out=out, **options).numbers)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Image.Image, str]], dict[str, float]]:
    """Return 60 pictures with their classes, and the numbers of an audit of this list."""
    data = load_data("demo").subset(range(60))
    (batch,) = data.batches(60)
    assert batch.labels is not None
    pictures = [Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()) for image in batch.inputs]
    rows = list(zip(pictures, [data.classes[label] for label in batch.labels.tolist()], strict=True))
    return rows, measured(rows, tmp_path_factory.mktemp("listed"))


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(60)), st.randoms(use_true_random=False))
def test_any_order_and_any_names_of_files_give_the_same_numbers(
    listed: tuple[list[tuple[Image.Image, str]], dict[str, float]],
    tmp_path_factory: pytest.TempPathFactory,
    order: list[int],
    random: Any,
) -> None:
    """As a list in any order, and as files under any names in the folders of their classes."""
    rows, numbers = listed
    root = tmp_path_factory.mktemp("named")
    for row, (picture, name) in enumerate(rows):
        (root / "photos" / name).mkdir(parents=True, exist_ok=True)
        picture.save(root / "photos" / name / f"{random.randrange(10**9)} {row}.png")
    assert measured([rows[row] for row in order], root / "permuted") == numbers
    files = measured(root / "photos", root / "files")
    for number, value in numbers.items():  # of other bytes the order is another, and sums end in other bits
        assert files[number] == pytest.approx(value, abs=1e-6), number


def test_any_batch_size_gives_the_same_predictions() -> None:
    model = shiftproof.load_model("demo")
    data = load_data("demo").subset(range(300))
    answers = [
        torch.cat([logits(model, batch.inputs).argmax(1) for batch in data.batches(size)]) for size in (1, 7, 64, 1000)
    ]
    for one in answers[1:]:
        assert float((one == answers[0]).float().mean()) >= 0.999
