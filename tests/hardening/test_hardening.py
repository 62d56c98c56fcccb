"""From finding to fix: what is weak is chosen, what is trained is proven, and nothing costly is handed over."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import shiftproof
from shiftproof.data import DataSpec, load_images
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.hardening import harden
from shiftproof.hardening.between import Candidate, between, ranked
from shiftproof.hardening.proof_audits import fits
from shiftproof.hardening.remedies import GENERAL, REMEDIES
from shiftproof.hardening.request import ImagesByUse
from shiftproof.hardening.weaknesses import Weakness, audited_loss, policy, probe, weaknesses, worth_mending
from shiftproof.models import BlackBox, load_model
from shiftproof.shifts import as_image_shift, names
from shiftproof.subjects import Subject
from tests.training.samples import two_classes

QUICK: dict[str, Any] = {"epochs": 2, "batch_size": 20, "test": 0.4}
ASKED: dict[str, Any] = {**QUICK, "augment": "prime + random_blur + coloured_noise"}


class Bright(nn.Module):
    """Tells bright images from dark ones by their mean, with a weight that can learn, and a planted weakness."""

    def __init__(self, weak: str = "") -> None:
        super().__init__()
        self.weak = weak
        self.scale = nn.Parameter(torch.tensor(20.0))

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean((1, 2, 3)) - 0.5
        if self.weak == "noise":
            rough = (images[..., 1:] - images[..., :-1]).abs().mean((1, 2, 3))
            mean = torch.where(rough > 0.02, -mean, mean)
        if self.weak == "colour":
            spread = (images.mean((2, 3)).amax(1) - images.mean((2, 3)).amin(1)).abs()
            mean = torch.where(spread > 0.01, -mean, mean)
        if self.weak == "red":
            red, green, blue = images.mean((2, 3)).unbind(1)
            mean = torch.where(red - torch.maximum(green, blue) > 0.2, -mean, mean)
        return self.scale * torch.stack([-mean, mean], 1)


def grey(count: int = 120) -> Any:
    labels = torch.arange(count) % 2
    levels = 0.2 + 0.6 * labels + 0.05 * torch.rand(count, generator=torch.Generator().manual_seed(0))
    return load_images((levels[:, None, None, None].expand(-1, 3, 16, 16).contiguous(), labels))


@pytest.fixture(scope="module")
def hardened(tmp_path_factory):
    """Return a network that was trained on nothing but clean images, hardened."""
    folder = tmp_path_factory.mktemp("hardened")
    data = two_classes()
    start = shiftproof.train("convnet", data, epochs=8, batch_size=40, lr=0.05, schedule="cosine", out=folder / "start")
    found = harden(folder / "start", data, max_clean_loss=100, out=folder / "run", **ASKED)
    return data, start, found


def test_what_was_done_is_told_with_its_reasons(hardened):
    _, _, found = hardened
    assert [each.remedy for each in found.weaknesses] == [remedy.name for remedy in REMEDIES]
    assert all(each.chosen for each in found.weaknesses if each.remedy in GENERAL)
    assert all("points lost under it" in each.reason for each in found.weaknesses)
    assert as_image_shift(found.choice.augment).label
    assert found.images == (120, 32, 48)
    text = found.report.read_text()
    assert "What was weak, and what was chosen" in text
    row = json.loads((found.folder / "hardened.json").read_text())
    assert row["outcome"] == found.outcome
    assert row["candidates"][0]["share"] == 0.0
    spent = row["seconds"]
    assert 0 < spent["share in training or model passes"] <= 1
    assert spent["all"] == pytest.approx(sum(spent["stages"].values()), abs=0.1)
    assert {"before", "choosing", "training", "candidates"} <= spent["stages"].keys()


def test_changes_are_paired_and_on_images_that_nothing_else_saw(hardened):
    _, _, found = hardened
    assert found.clean is not None
    assert found.corruptions is not None
    assert {each.name for each in found.changes} >= {f"accuracy.{name}" for name in names("common")}
    before = shiftproof.gate(found.folder / "before").numbers
    assert found.corruptions.before == before["corruption_accuracy"]
    assert found.corruptions.low < found.corruptions.value < found.corruptions.high
    if found.model is not None:
        assert isinstance(load_model(found.model), nn.Module)
        assert {each.name for each in found.unseen} >= {f"accuracy.{name}" for name in names("bar")}


def test_the_same_call_resumes_and_another_is_refused(hardened):
    data, _, found = hardened
    start = found.folder.parent / "start"
    again = harden(start, data, max_clean_loss=100, out=found.folder, **ASKED)
    assert again.to_row() == found.to_row()
    with pytest.raises(RunError, match="about other epochs"):
        harden(start, data, out=found.folder, **{**ASKED, "epochs": 3})
    careful = harden(start, data, max_clean_loss=0.0, out=found.folder, **ASKED)  # which weights are kept is asked anew
    assert careful.candidates == found.candidates
    if careful.outcome == "hardened":
        assert careful.clean is not None
        assert careful.clean.value >= 0


def test_an_audit_on_the_terms_of_the_proof_is_the_first(hardened, tmp_path):
    data, _, found = hardened
    start, before = found.folder.parent / "start", found.folder / "before"
    again = harden(start, data, audit=before, max_clean_loss=100, out=tmp_path / "again", **ASKED)
    assert not (tmp_path / "again" / "before").exists()
    assert "before" not in again.spending.stages
    assert again.changes == found.changes
    given = shiftproof.gate(before)
    terms = Subject.of(start, load_images(data).take(48), device="cpu")
    assert not fits(given, terms, 0)  # other images
    assert not fits(given, Subject.of(start, data, device="cpu"), 1)


def test_a_robust_network_is_left_alone(tmp_path):
    found = harden(Bright(), grey(), out=tmp_path / "run", **QUICK)
    assert found.outcome == "nothing to mend"
    assert found.model is None
    assert not (tmp_path / "run" / "training").exists()
    assert "Nothing is worth changing" in found.report.read_text()


@pytest.mark.parametrize(
    ("weak", "remedy", "words"),
    [("noise", "noise", ""), ("colour", "filters, colours and warps", ""), ("red", "casts of colour", "red")],
)
def test_planted_weaknesses_are_found(weak, remedy, words):
    data = grey(60)
    found = {each.remedy: each for each in weaknesses(Bright(weak).eval(), data, {}, seed=0, size=30)}
    usual = {each.remedy: each for each in weaknesses(Bright().eval(), data, {}, seed=0, size=30)}
    assert found[remedy].loss > usual[remedy].loss + 0.3
    assert str(found[remedy].chosen) in policy(list(found.values()))
    assert found[remedy].words == words


def losing(share: float, **more: float) -> list[Weakness]:
    """Return the weaknesses of a network that loses a share of what is usual, and more of some."""
    firsts = {remedy.name: remedy.aims[0] for remedy in REMEDIES}
    return [
        Weakness(
            name,
            share * aim.usual + more.get(name, 0.0),
            None,
            aim.augment if name in GENERAL or more.get(name) else None,
            aim.usual,
            aim.probe,
        )
        for name, aim in firsts.items()
    ]


def test_a_wave_is_found_by_its_frequency():
    class Striped(Bright):
        """Takes the other class where there are stripes of six pixels across."""

        def forward(self, images: Tensor) -> Tensor:
            wave = torch.exp(2j * torch.pi * torch.arange(images.shape[3]) / 6)
            rows = images.mean(1) - images.mean((1, 3))[:, :, None]
            strength = (rows * wave).mean(2).abs().mean(1)
            return super().forward(images) * torch.where(strength > 0.02, -1.0, 1.0)[:, None]

    by_name = {each.remedy: each for each in weaknesses(Striped().eval(), grey(60), {}, seed=0, size=30)}
    found = by_name["waves of one frequency"]
    assert found.particular
    assert found.words == "around 0 periods a pixel down and 0.17 across"
    assert found.chosen is not None
    assert found.chosen.startswith("random_wave[down=0,across=0.17,")
    assert Weakness.from_row(found.to_row()) == found


@pytest.mark.parametrize(
    ("kind", "more", "chosen"),
    [
        ("veil", 0.09, []),
        ("veil", 0.11, ["veils"]),
        ("random_wave[share", 0.14, []),
        ("random_wave[share", 0.16, ["waves"]),
        ("random_wave[down", 0.19, []),
        ("random_wave[down", 0.21, ["waves of one frequency"]),
        ("coloured_noise", 0.16, ["noise"]),
        ("colour_cast", 0.21, ["casts of colour"]),
    ],
)
def test_particular_remedies_are_for_what_costs_more_than_is_usual(kind, more, chosen, monkeypatch):
    usual = {aim.probe: aim.usual for remedy in REMEDIES for aim in remedy.aims}

    def told(network, data, augments, **_):
        return [1.0 if text is None else 1.0 - usual[text] - more * text.startswith(kind) for text in augments]

    monkeypatch.setattr("shiftproof.hardening.weaknesses.probe", told)
    found = weaknesses(Bright().eval(), grey(4), {}, seed=0, size=4)
    assert [each.remedy for each in found if each.particular] == chosen
    assert {each.remedy for each in found if each.chosen} == {*GENERAL, *chosen}
    assert all(each.reason.startswith("chosen") == each.particular for each in found if each.chosen)


def test_optional_remedies_need_evidence():
    weak = losing(0.0)
    first = next(remedy.aims[0].augment for remedy in REMEDIES if remedy.name == "waves of one frequency")
    assert policy(weak) == f"prime + random_blur + coloured_noise + random_wave[share=0.3] + {first}"
    assert weak[3].reason == "left out: 0.0 points lost under it, 25 are usual; trained on from 35 on"
    numbers = {"clean_accuracy": 0.9, "accuracy.fog": 0.5, "accuracy.snow": 0.7, "accuracy.gaussian_noise": 0.1}
    assert audited_loss(numbers, ("weather",)) == pytest.approx(0.4)  # the worst of them
    assert audited_loss(numbers, ()) is None
    for aim in (aim for remedy in REMEDIES for aim in remedy.aims):
        assert len({as_image_shift(text).name for text in (aim.augment, aim.strong, aim.probe)}) == 1
    assert probe(Bright().eval(), grey(20), [None], seed=0, size=20) == [1.0]


def test_what_is_worth_mending():
    assert worth_mending(losing(1.0), {"corruption_loss": 0.2})
    assert not worth_mending(losing(1.0), {"corruption_loss": 0.04})  # corruption costs little
    assert not worth_mending(losing(0.4), {"corruption_loss": 0.2})  # robust already: what is left is not of this kind
    assert worth_mending(losing(0.4, veils=0.4), {"corruption_loss": 0.04})  # something particular


@pytest.mark.parametrize(("model", "worth"), [("demo", True), ("cifar10-augmix-jsd", False)])
def test_real_networks_that_are_robust_already_are_left_alone(model, worth):
    loaded = load_model(model)
    assert isinstance(loaded, nn.Module)
    found = weaknesses(loaded.eval(), load_images("demo").take(100, seed=1), {}, seed=0, size=100)
    assert worth_mending(found, {"corruption_loss": 0.07}) == worth


def test_candidates_within_the_limit_best_first():
    found = [
        Candidate(0.0, 0.9, 0.7),
        Candidate(1.0, 0.85, 0.8),
        Candidate(0.5, 0.895, 0.78),
        Candidate(0.2, 0.9, 0.75),
    ]
    assert [each.share for each in ranked(found, 0.01)] == [0.5, 0.2]
    assert [each.share for each in ranked(found, 0.1)] == [1.0, 0.5, 0.2]
    assert ranked(found[:1], 0.1) == []
    mended = [
        Candidate(0.0, 0.9, 0.7, 0.2),
        Candidate(1.0, 0.9, 0.8, 0.8),
        Candidate(0.5, 0.9, 0.85, 0.4),  # better under hold-out shifts, and still weak
    ]
    assert [each.share for each in ranked(mended, 0.01)] == [1.0, 0.5]
    assert [Candidate.from_row(each.to_row()) for each in mended] == mended
    old, new = nn.BatchNorm1d(2).state_dict(), nn.BatchNorm1d(2).state_dict()
    new["weight"] = torch.tensor([3.0, 3.0])
    new["num_batches_tracked"] = torch.tensor(7)
    made = between(old, new, 0.5)
    assert made["weight"].tolist() == [2.0, 2.0]
    assert made["num_batches_tracked"] == 7


def test_mistakes_are_told_before_anything_runs(tmp_path):
    data = two_classes(60)
    with pytest.raises(ModelError, match="black box"):
        harden(BlackBox(lambda images: images.mean((2, 3))), data, out=tmp_path / "a", **QUICK)
    with pytest.raises(DataError, match="no labels"):
        harden("demo", torch.rand(60, 3, 32, 32), out=tmp_path / "b", **QUICK)
    with pytest.raises(DataError, match="Too few test images"):
        harden(Bright(), data, out=tmp_path / "c", epochs=1, test=0.02)
    with pytest.raises(DataError, match="among the training images"):
        harden(Bright(), data, out=tmp_path / "d", epochs=1, test=data)
    with pytest.raises(ConfigurationError, match="minutes"):
        harden(Bright(), data, minutes=0, out=tmp_path / "e")
    with pytest.raises(ModelError, match="no trainable weights"):
        harden(nn.Flatten(), data, out=tmp_path / "f", **QUICK)
    assert not list(Path(tmp_path).iterdir())


def test_what_is_tested_on_is_another_split_or_images_of_ones_own_without_those_trained_on(tmp_path):
    for split, levels in (("train", range(40)), ("val", range(100, 120))):
        for level in levels:
            place = tmp_path / "pictures" / split / ("dark" if level % 2 else "bright")
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (level, level, 255 - level)).save(place / f"{level}.png")
    data = DataSpec(tmp_path / "pictures", split="train")
    parts = ImagesByUse.of(data, "split=val", images=None, proof=8, seed=0)
    assert (len(parts.training), len(parts.choosing), len(parts.proof)) == (40, 12, 8)

    whole = two_classes(60)
    training, copied = load_images(whole).subset(range(40)), load_images(whole).subset(range(38, 60))
    parts = ImagesByUse.of(training, copied, images=None, proof=10, seed=0)
    assert len(parts.choosing) + len(parts.proof) == 20
    assert "2 of 22 test images are among the training images and were left out." in parts.proof.notes
    assert not set(parts.training.keys.tolist()) & {*parts.proof.keys.tolist(), *parts.choosing.keys.tolist()}
    with pytest.raises(DataError, match="3 of 23 test images are in both"):
        ImagesByUse.of(training, load_images(whole).subset(range(37, 60)), images=None, proof=10, seed=0)
