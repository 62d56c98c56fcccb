"""A downloaded suite is audited as such: every corruption and severity on its own files, and mCE as published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import shiftproof
from shiftproof.audits.conclusion import Audit
from shiftproof.audits.sections import measuring
from shiftproof.audits.suite_subjects import as_suite
from shiftproof.cli import app
from shiftproof.data import DataSpec
from shiftproof.errors import ConfigurationError, DataError, RunError
from shiftproof.measures import ALEXNET, Accuracy
from shiftproof.models import imagenet
from shiftproof.reports.view import Table
from shiftproof.shifts import names
from tests.audits.suite_files import CATEGORY, COMMON, Reads, error_at, picture, write_arrays, write_folders, write_part

WNIDS = imagenet.wordnet_ids()[:10]
THREE = ("brightness", "fog", "my_smudge")


def invoke(*arguments: object) -> Any:
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "140"})


def cells(result: Audit, task: str = "corruptions") -> list[tuple[str, int, int]]:
    """Return what was measured, by cell: label, images, right."""
    rows = json.loads((result.folder / "results.json").read_text())["cells"]
    return [(row["shift"], row["images"], row["right"]) for row in rows if row["task"] == task]


class Counted:
    """Counts the tasks that are measured, and interrupts after some."""

    def __init__(self, stop: int | None = None) -> None:
        self.tasks: list[str] = []
        self.stop = stop

    def __call__(self, done: int, total: int, result: Any) -> None:
        """Count one."""
        if result is not None:
            self.tasks.append(str(result.task.parameters().get("shift", result.task.kind)))
            if len(self.tasks) == self.stop:
                raise KeyboardInterrupt


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Return three corruptions of twenty images of ten classes in CIFAR-10-C's layout, one of them somebody's own."""
    return write_arrays(tmp_path / "CIFAR-10-C", 10, THREE, images=20)


def test_every_corruption_and_severity_is_measured_on_its_own_files(suite: Path, tmp_path: Path) -> None:
    result = shiftproof.audit(Reads(10), suite, out=tmp_path / "run")
    expected = [(f"{name}@{s}", 20, round(20 * (1 - error_at(name, s)))) for name in THREE for s in range(1, 6)]
    assert cells(result) == expected
    assert result.numbers["accuracy.fog"] == pytest.approx(0.4)
    assert result.numbers["accuracy.my_smudge"] == pytest.approx(0.7)
    assert result.numbers["corruption_accuracy"] == pytest.approx((0.7 + 0.4 + 0.7) / 3)
    assert result.numbers["worst_corruption_accuracy"] == pytest.approx(0.4)
    assert not {"mce", "clean_accuracy", "corruption_loss"} & result.numbers.keys()
    view, mistakes = result.views
    assert mistakes.section == "mistakes"
    assert "Clean accuracy was not measured" in view.verdict[0].text
    assert view.notes[0].startswith("20 images per cell, as the suite's files have them; the same images in every")
    (listed,) = [block for block in view.blocks if isinstance(block, Table) and block.title.startswith("Every")]
    assert len(listed.rows) == 15
    assert listed.rows[5][:4] == ("fog", 1.0, 20, 0.8)
    assert listed.rows[5][4:] == pytest.approx(Accuracy(16, 20).interval())
    assert (
        "sections that need clean images were left out: clean, failures, worst_case" in result.masthead.method["data"]
    )
    assert (result.masthead.facts["cells"], result.masthead.facts["images"]) == ("15", "20")
    assert "shifts" not in result.masthead.method
    assert "my smudge" in result.report.read_text()


def test_mce_is_the_published_one_computed_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SMALL_SIDE", 4)  # a suite of 224 pixels a side would be large
    place = write_arrays(tmp_path / "ImageNet-C", imagenet.CLASSES)
    data = DataSpec(place, classes=imagenet.wordnet_ids())
    result = shiftproof.audit(Reads(imagenet.CLASSES), data, out=tmp_path / "run", require=["mce < 100"])
    by_hand = np.mean([(0.6 if name == "fog" else 0.3) / ALEXNET[name] for name in COMMON])
    assert result.numbers["mce"] == pytest.approx(100 * by_hand)
    assert result.passed
    assert f"mCE {100 * by_hand:.1f}" in result.views[0].tiles[0].interval
    shutil.rmtree(place)
    assert shiftproof.gate(tmp_path / "run", require=["mce < 1"]).passed is False


@pytest.mark.parametrize("lacks", ["a corruption", "a severity"])
def test_mce_needs_all_of_imagenet_c(lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "SMALL_SIDE", 4)
    place = write_arrays(tmp_path / "ImageNet-C", imagenet.CLASSES, COMMON[:-1] if lacks == "a corruption" else COMMON)
    only: dict[str, Any] = {"severities": [1, 2, 3, 4]} if lacks == "a severity" else {}
    data = DataSpec(place, classes=imagenet.wordnet_ids())
    result = shiftproof.audit(
        Reads(imagenet.CLASSES), data, out=tmp_path / "run", images=50, require=["mce < 100"], **only
    )
    assert "mce" not in result.numbers
    assert "it is given on ImageNet's 1,000 classes" in str(result.checks[0])


@pytest.mark.parametrize("grouped", [False, True])
def test_folders_by_wordnet_id_are_read_with_and_without_the_archives_folders(grouped: bool, tmp_path: Path) -> None:
    corruptions = ("snow", "contrast", "brightness", "speckle_noise")
    place = write_folders(tmp_path / "ImageNet-C", WNIDS, corruptions, grouped=grouped, side=72)
    result = shiftproof.audit(Reads(1000), place, out=tmp_path / "run")
    expected = [(f"{name}@{s}", 10, 10 - s) for name in sorted(corruptions) for s in range(1, 6)]
    assert cells(result) == expected  # in the order of the alphabet, whatever archive they came in
    assert "mce" not in result.numbers  # ten classes are not ImageNet's thousand
    assert "The data has 10 of the model's 1,000 classes" in result.masthead.method["data"]


def test_strengths_are_severities_in_their_order(tmp_path: Path) -> None:
    for place, strength in enumerate(("10.00", "2.00", "4.00", "6.00", "8.00")):
        write_part(tmp_path / "C-bar" / "sparkles" / strength, WNIDS, 0.1 * ((place - 1) % 5))
    result = shiftproof.audit(Reads(1000), tmp_path / "C-bar", out=tmp_path / "run")
    assert cells(result) == [(f"sparkles@{s}", 10, 11 - s) for s in range(1, 6)]


def test_what_write_corrupted_writes_gives_the_numbers_of_the_shifts_themselves(tmp_path: Path) -> None:
    demo: Any = shiftproof.load_data("demo").take(40)
    shiftproof.write_corrupted(demo, tmp_path / "suite", suite="cifar-c")
    chosen: dict[str, Any] = {"shifts": ["fog", "contrast"], "severities": [3, 5], "sections": ["clean", "corruptions"]}
    stored = shiftproof.audit("demo", tmp_path / "suite", clean=demo, out=tmp_path / "stored", **chosen)
    made = shiftproof.audit("demo", demo, out=tmp_path / "made", **chosen)
    assert stored.numbers == made.numbers
    assert stored.views[1].verdict == made.views[1].verdict
    assert stored.views[1].tiles == made.views[1].tiles  # with the interval, and the level


def test_files_that_write_corrupted_writes_are_a_suite(tmp_path: Path) -> None:
    write_part(tmp_path / "val", WNIDS, 0.0, side=32)
    shiftproof.write_corrupted(DataSpec(tmp_path / "val", size=32), tmp_path / "suite", suite="imagenet-c")
    found = as_suite(tmp_path / "suite")
    assert found is not None
    assert [part.name for part in found.parts.values()][::5] == sorted((*COMMON, *names("holdout")))
    result = shiftproof.audit(
        Reads(1000),
        tmp_path / "suite",
        shifts=["fog@2", "snow"],
        clean=tmp_path / "val",
        out=tmp_path / "run",
        sections=["corruptions"],
    )
    assert [label for label, *_ in cells(result)] == ["fog@2", *(f"snow@{s}" for s in range(1, 6))]


class TestCleanSet:
    def test_the_same_images_are_paired_by_name(self, tmp_path: Path) -> None:
        place = write_folders(tmp_path / "suite", WNIDS, ["fog", "snow"])
        write_part(tmp_path / "val", WNIDS, 0.1)
        result = shiftproof.audit(
            Reads(1000),
            place,
            clean=tmp_path / "val",
            out=tmp_path / "run",
            sections=["clean", "corruptions"],
        )
        assert result.numbers["corruption_loss"] == pytest.approx(
            result.numbers["clean_accuracy"] - result.numbers["corruption_accuracy"]
        )
        other = shiftproof.audit(
            Reads(1000), place, clean=tmp_path / "val", out=tmp_path / "other", sections=["corruptions"]
        )
        found = shiftproof.compare(result.folder, other.folder, out=tmp_path / "compared")
        (loss,) = [one for one in found.differences["other"] if one.name == "corruption_loss"]
        assert loss.low is not None

    def test_clean_images_of_another_size_are_told(self, tmp_path: Path) -> None:
        place = write_folders(tmp_path / "suite", WNIDS, ["fog"])
        write_part(tmp_path / "val", WNIDS, 0.1, side=40)
        chosen: dict[str, Any] = {"clean": tmp_path / "val", "sections": ["clean", "corruptions"]}
        told = shiftproof.audit(Reads(1000), place, out=tmp_path / "run", **chosen).views[0]
        assert any(one.text.startswith("The clean images are 40 x 40 pixels") for one in told.verdict)
        alike = shiftproof.audit(Reads(1000), DataSpec(place, size=40), out=tmp_path / "alike", **chosen)
        assert not any("clean images are" in one.text for view in alike.views for one in view.verdict)

    def test_other_images_have_no_interval_of_the_loss(self, suite: Path, tmp_path: Path) -> None:
        np.savez(
            tmp_path / "clean.npz",
            images=np.stack([picture(n, False) for n in range(10)] * 2)[::-1],
            labels=np.array([*range(10)] * 2)[::-1],
        )
        result = shiftproof.audit(
            Reads(10), suite, clean=tmp_path / "clean.npz", out=tmp_path / "run", sections=["clean", "corruptions"]
        )
        assert result.numbers["clean_accuracy"] == 1.0
        assert result.numbers["corruption_loss"] == pytest.approx(0.4)
        assert "other images than the suite" in " ".join(result.views[-2].notes)
        found = shiftproof.compare(result.folder, result.folder, out=tmp_path / "compared")
        (some,) = found.differences.values()
        assert {one.name for one in some if one.low is not None} >= {"clean_accuracy", "accuracy.fog"}
        assert all(one.low is None for one in some if one.name == "corruption_loss")

    def test_a_section_of_clean_images_is_refused_without_them(self, suite: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="'worst_case' needs clean images") as caught:
            shiftproof.audit(Reads(10), suite, sections=["worst_case"], out=tmp_path / "run")
        assert "--clean" in caught.value.facts["fix"]

    def test_other_data_has_no_clean_set(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="only for a suite"):
            shiftproof.audit("demo", "demo", clean="demo", out=tmp_path / "run")


class TestResuming:
    def test_an_interrupted_audit_resumes(self, suite: Path, tmp_path: Path) -> None:
        first, second, whole = Counted(stop=7), Counted(), Counted()
        with pytest.raises(KeyboardInterrupt):
            shiftproof.audit(Reads(10), suite, out=tmp_path / "run", on_progress=first)
        unfinished = shiftproof.report(tmp_path / "run")
        assert isinstance(unfinished, Audit)
        assert unfinished.missing
        assert "corruption_accuracy" not in unfinished.numbers
        resumed = shiftproof.audit(Reads(10), suite, out=tmp_path / "run", on_progress=second)
        fresh = shiftproof.audit(Reads(10), suite, out=tmp_path / "fresh", on_progress=whole)
        assert resumed.numbers == fresh.numbers
        assert first.tasks + second.tasks == whole.tasks

    @pytest.mark.parametrize("part", ["fog/2", "brightness/1"])  # also of the part whose images are drawn
    def test_a_changed_file_is_measured_again_and_nothing_else(self, part: str, tmp_path: Path) -> None:
        place = write_folders(tmp_path / "suite", WNIDS, ["brightness", "fog"])
        before = cells(shiftproof.audit(Reads(1000), place, out=tmp_path / "run"))
        image = place / part / WNIDS[9] / "ILSVRC2012_val_00000009.png"
        Image.fromarray(picture(9, True)).save(image)
        again = Counted()
        second = shiftproof.audit(Reads(1000), place, out=tmp_path / "run", on_progress=again)
        label = part.replace("/", "@")
        assert cells(second) == [(name, count, right - (name == label)) for name, count, right in before]
        fresh = shiftproof.audit(Reads(1000), place, out=tmp_path / "fresh")
        assert second.numbers == fresh.numbers
        if part == "fog/2":
            assert set(again.tasks) == {label}

    def test_a_change_of_labels_is_a_change(self, suite: Path, tmp_path: Path) -> None:
        shiftproof.audit(Reads(10), suite, out=tmp_path / "run")
        np.save(suite / "labels.npy", (np.load(suite / "labels.npy") + 1) % 10)
        assert shiftproof.audit(Reads(10), suite, out=tmp_path / "run").numbers["accuracy.fog"] < 0.7

    def test_another_corruption_is_added_to_what_there_is(self, suite: Path, tmp_path: Path) -> None:
        shiftproof.audit(Reads(10), suite, out=tmp_path / "run", shifts=["fog"])
        seen = Counted()
        shiftproof.audit(Reads(10), suite, out=tmp_path / "run", on_progress=seen)
        assert not {task for task in seen.tasks if task.startswith("fog")}
        assert {task.partition("@")[0] for task in seen.tasks} == {"brightness", "my_smudge"}

    def test_another_model_is_refused(self, suite: Path, tmp_path: Path) -> None:
        shiftproof.audit(Reads(10), suite, out=tmp_path / "run")
        with pytest.raises(RunError, match="another model"):
            shiftproof.audit(Reads(11), suite, out=tmp_path / "run")

    def test_the_store_alone_gives_the_report(self, suite: Path, tmp_path: Path) -> None:
        result = shiftproof.audit(Reads(10), suite, out=tmp_path / "run")
        shutil.rmtree(suite)
        again = shiftproof.report(tmp_path / "run")
        assert isinstance(again, Audit)
        assert again.numbers == result.numbers
        assert again.views == result.views
        checked = shiftproof.gate(tmp_path / "run", require=["accuracy.fog > 0.39", "accuracy.my_smudge > 0.9"])
        assert [one.passed for one in checked.checks] == [True, False]

    def test_processes_measure_the_same(self, suite: Path, tmp_path: Path) -> None:
        alone = shiftproof.audit("demo", suite, out=tmp_path / "alone", shifts=["fog"])
        spread = shiftproof.audit("demo", suite, out=tmp_path / "spread", shifts=["fog"], executor="processes:2")
        assert not spread.failed
        assert spread.numbers == alone.numbers


class TestComparing:
    def test_models_are_compared_image_by_image_without_a_clean_set(self, suite: Path, tmp_path: Path) -> None:
        class Blinder(Reads):
            def forward(self, images: Any) -> Any:
                seen = images.clone()
                seen[:, 2] = (images[:, 1] * 255).round() % 2 * images[:, 2] + images[:, 1].sign()  # wrong but for 0
                return super().forward(seen)

        one = shiftproof.audit(Reads(10), suite, out=tmp_path / "one")
        other = shiftproof.audit(Blinder(10), suite, out=tmp_path / "other", shifts=["fog", "my_smudge"])
        found = shiftproof.compare(one.folder, other.folder, out=tmp_path / "compared").differences["other"]
        by_name = {difference.name: difference for difference in found}
        assert by_name["accuracy.my_smudge"].verdict == "worse"
        assert by_name["accuracy.my_smudge"].low is not None
        assert "accuracy.brightness" not in by_name  # not both measured it

    def test_other_suites_have_nothing_in_common(self, suite: Path, tmp_path: Path) -> None:
        other = write_arrays(tmp_path / "other", 10, ["fog"], images=30)
        runs = [
            shiftproof.audit(Reads(10), place, out=tmp_path / f"run-{place.name}").folder for place in (suite, other)
        ]
        with pytest.raises(ConfigurationError, match="nothing in common"):
            shiftproof.compare(*runs, out=tmp_path / "compared")


class TestParts:
    def test_parts_with_other_images_draw_their_own(self, tmp_path: Path) -> None:
        place = write_folders(tmp_path / "suite", WNIDS, ["brightness", "fog"])
        for level in range(1, 6):
            extra = place / "fog" / str(level) / WNIDS[0] / "another.png"
            Image.fromarray(picture(0, False, own=9)).save(extra)
        result = shiftproof.audit(Reads(1000), place, out=tmp_path / "run")
        assert cells(result)[:1] + cells(result)[5:6] == [("brightness@1", 10, 9), ("fog@1", 11, 9)]
        assert "10 to 11 images per cell" in result.views[0].notes[0]
        assert "not the same images" in result.views[0].notes[0]
        assert result.views[0].tiles[0].interval == ""  # no interval where images cannot be paired

    def test_the_same_images_are_drawn_of_every_part(self, tmp_path: Path) -> None:
        place = write_folders(tmp_path / "suite", WNIDS, ["brightness", "fog"])
        result = shiftproof.audit(Reads(1000), place, out=tmp_path / "run", images=6)
        right = {label: right for label, _, right in cells(result)}
        # Errors grow with severity over the same files, so on the same six the counts can only fall.
        assert [right[f"brightness@{s}"] for s in range(1, 6)] == sorted(
            (right[f"brightness@{s}"] for s in range(1, 6)), reverse=True
        )
        assert all(right[f"fog@{s}"] <= right[f"brightness@{s}"] for s in range(1, 6))
        assert "the same images in every cell" in result.views[0].notes[0]

    @pytest.mark.parametrize(
        ("asked", "says"), [({"shifts": ["snow"]}, "corruption of the suite"), ({"severities": [7]}, "severity of the")]
    )
    def test_what_a_suite_does_not_have_is_refused(self, suite: Path, asked: Any, says: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=says):
            shiftproof.audit(Reads(10), suite, out=tmp_path / "run", **asked)

    def test_a_model_at_chance_is_told_without_a_clean_set(self, suite: Path, tmp_path: Path) -> None:
        class Same(Reads):
            def forward(self, images: Any) -> Any:
                return super().forward(images * 0)

        result = shiftproof.audit(Same(10), suite, out=tmp_path / "run")
        assert result.views[0].section == "caveats"
        assert "for all 20 images of brightness@1" in result.views[0].verdict[0].text

    def test_an_array_of_another_shape_is_left_out_and_told(self, suite: Path, tmp_path: Path) -> None:
        np.save(suite / "features.npy", np.zeros((20, 3)))
        result = shiftproof.audit(Reads(10), suite, out=tmp_path / "run")
        assert "left out: features.npy" in result.masthead.method["data"]
        assert "accuracy.features" not in result.numbers

    def test_one_part_is_data_as_any_other(self, suite: Path, tmp_path: Path) -> None:
        result = shiftproof.audit(Reads(10), DataSpec(suite, split="fog@2"), out=tmp_path / "run", sections=["clean"])
        assert result.numbers["clean_accuracy"] == pytest.approx(0.6)


@pytest.mark.slow
def test_imagenet_c_as_published_has_the_published_mce(tmp_path: Path) -> None:
    """All 75 parts of all 1,000 classes, in the archives' folders; files are links to two images of each class."""
    labels = imagenet.wordnet_ids()
    (tmp_path / "images").mkdir()
    for label in range(len(labels)):
        for wrong in (False, True):
            Image.fromarray(picture(label, wrong, side=72)).save(tmp_path / "images" / f"{label}-{wrong}.png")
    for name in COMMON:
        for severity in range(1, 6):
            bad = round(1000 * error_at(name, severity))
            for label, wnid in enumerate(labels):
                path = tmp_path / "ImageNet-C" / CATEGORY[name] / name / str(severity) / wnid / f"{label}.png"
                path.parent.mkdir(parents=True)
                path.hardlink_to(tmp_path / "images" / f"{label}-{label < bad}.png")
    result = shiftproof.audit(Reads(1000), tmp_path / "ImageNet-C", out=tmp_path / "run", images=1000)
    by_hand = np.mean([(0.6 if name == "fog" else 0.3) / ALEXNET[name] for name in COMMON])
    assert result.numbers["mce"] == pytest.approx(100 * by_hand)
    assert len(cells(result)) == 75 * 10


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a suite of the demo's images and the clean ones as class folders and as an array."""
    folder = tmp_path_factory.mktemp("command")
    demo: Any = shiftproof.load_data("demo").take(30)
    shiftproof.write_corrupted(demo, folder / "CIFAR-10-C", suite="cifar-c")
    (batch,) = demo.batches(30)
    images = (batch.inputs.permute(0, 2, 3, 1) * 255).round().byte().numpy()
    np.savez(folder / "clean.npz", images=images, labels=batch.labels.numpy())
    return folder


class TestCommandLine:
    def test_a_suite_is_audited_and_gated(self, place: Path, tmp_path: Path) -> None:
        given = ["--data", place / "CIFAR-10-C", "--shifts", "fog,contrast", "--out", tmp_path / "run"]
        junit = ["--junit", tmp_path / "junit.xml"]
        done = invoke("audit", *given, "--require", "accuracy.fog > 10%", "-r", "accuracy.contrast > 99%", *junit)
        assert done.exit_code == 3, done.output
        assert "demo on CIFAR-10-C, 10 cells of 30 images" in done.stdout
        assert "No clean set was given" in done.stdout
        assert "holds  accuracy.fog > 0.1" in done.stdout
        assert 'name="accuracy.contrast &gt; 0.99"' in (tmp_path / "junit.xml").read_text()
        assert invoke("gate", tmp_path / "run", "-r", "mce < 100").exit_code == 3
        shown = invoke("report", tmp_path / "run")
        assert shown.exit_code == 0

    def test_the_clean_set_is_named(self, place: Path, tmp_path: Path) -> None:
        given = ["--data", place / "CIFAR-10-C", "--shifts", "fog@5", "--clean", place / "clean.npz"]
        done = invoke("audit", *given, "--sections", "clean,corruptions", "--out", tmp_path / "run")
        assert done.exit_code == 0, done.output
        numbers = json.loads((tmp_path / "run" / "results.json").read_text())["numbers"]
        assert {"clean_accuracy", "corruption_loss", "accuracy.fog"} <= numbers.keys()

    def test_help_says_it_in_one_line(self) -> None:
        said = invoke("audit", "--help").stdout
        assert "A downloaded suite (ImageNet-C, CIFAR-10-C) is audited from its own files" in said
        assert "--clean" in said

    def test_other_commands_take_a_part(self, place: Path, tmp_path: Path) -> None:
        done = invoke("certify", "--sigma", 0.25, "--data", place / "CIFAR-10-C", "--out", tmp_path / "run")
        assert isinstance(done.exception, DataError)
        assert "split" in done.exception.facts["expected"]
        assert "audit takes a suite" in done.exception.facts["fix"]
