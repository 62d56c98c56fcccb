"""Corrupted copies on disk: layouts as published, contents as the shifts make them, and second runs that go on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from shiftproof import shifts
from shiftproof.data import DataSpec, load_data
from shiftproof.data.contents import content_keys
from shiftproof.data.images.decoding import IMAGE_SUFFIXES, Decoder
from shiftproof.errors import ConfigurationError, DataError, RunError, ShiftproofError
from shiftproof.exports.copies import slices
from shiftproof.exports.image_files import FilePixels, encode
from shiftproof.exports.suites import SUITES
from shiftproof.exports.writing import write_corrupted
from shiftproof.version import __version__

FILES = {"ant/a.png": (24, 16), "ant/deep/b.bmp": (16, 16), "bee/c.JPEG": (24, 16), "bee/d.png": (20, 12)}
COMMON = {*shifts.names("common"), *shifts.names("holdout")}
RUN = {"run.sqlite", "run.lock", "manifest.json"}


def photo(width: int, height: int, seed: int) -> NDArray[np.uint8]:
    """Make an image with smooth and rough parts."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(40, 200, width)[None, :, None] + np.zeros((height, 1, 3))
    return (ramp + rng.normal(0, 20, (height, width, 3))).clip(0, 255).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four images of three sizes and formats, in two classes."""
    root = tmp_path / "photos"
    for seed, (file, size) in enumerate(FILES.items()):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo(*size, seed)).save(root / file)
    (root / "readme.txt").write_text("not an image")
    return root


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Three labelled images of 40 pixels, between the presets, in an archive."""
    images = np.stack([photo(40, 40, seed) for seed in range(3)])
    np.savez(tmp_path / "images.npz", images=images, labels=[2, 0, 1])
    return tmp_path / "images.npz"


@pytest.fixture
def ice(tmp_path: Path) -> str:
    """Return a folder with a photograph of frost: growing textures by rule takes longer."""
    (tmp_path / "ice").mkdir()
    Image.fromarray(photo(64, 64, 0)).save(tmp_path / "ice/ice.png")
    return str(tmp_path / "ice")


def tree(root: Path) -> dict[str, bytes]:
    """Return every file but the run's own by its path."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in RUN - {"manifest.json"}}


def expected(image: Path, text: str, seed: int = 0) -> NDArray[np.uint8]:
    """Let the shift itself corrupt a file."""
    with Image.open(image) as opened:
        pixels = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)[None] / 255
    shifted = shifts.as_image_shift(text)(pixels, content_keys(pixels), seed=seed)
    return (shifted[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()


def pixels(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        return np.array(image)


class TestFolder:
    def test_one_shift_keeps_relative_paths_and_any_sizes(self, folder: Path, tmp_path: Path) -> None:
        written = write_corrupted(folder, tmp_path / "out", shifts=["gaussian_noise@3"], seed=5)
        assert tree(tmp_path / "out").keys() == FILES.keys() | {"manifest.json", "readme.txt"}
        assert (written.images, written.shifts, written.left_out) == (4, ("gaussian_noise@3",), ())
        assert (written.masks, written.beside) == (0, 1)
        for file in FILES:
            made, wanted = pixels(tmp_path / "out" / file), expected(folder / file, "gaussian_noise@3", seed=5)
            if file.endswith("JPEG"):
                Image.fromarray(wanted).save(tmp_path / "lossy.jpg", quality=95, subsampling=0)
                wanted = pixels(tmp_path / "lossy.jpg")
            assert np.array_equal(made, wanted)
        assert load_data(tmp_path / "out", size=16).classes == ("ant", "bee")

    def test_several_shifts_have_a_folder_each(self, folder: Path, tmp_path: Path) -> None:
        texts = ["fog@3", "fog@2.5", "contrast=0.8", "fog@1 + invert"]
        write_corrupted(folder, tmp_path / "out", shifts=texts)
        for place, text in zip(("fog/3", "fog/2.5", "contrast=0.8", "fog@1+invert"), texts, strict=True):
            made = pixels(tmp_path / "out" / place / "ant/a.png")
            assert np.array_equal(made, expected(folder / "ant/a.png", text))
        assert len(tree(tmp_path / "out")) == 4 * (4 + 1) + 1

    def test_png_loses_nothing(self, folder: Path, tmp_path: Path) -> None:
        write_corrupted(folder, tmp_path / "out", shifts=["gaussian_noise@3"], format="png")
        names = {"ant/a.png", "ant/deep/b.png", "bee/c.png", "bee/d.png"}
        assert tree(tmp_path / "out").keys() == names | {"manifest.json", "readme.txt"}
        for file in FILES:
            made = pixels((tmp_path / "out" / file).with_suffix(".png"))
            assert np.array_equal(made, expected(folder / file, "gaussian_noise@3"))

    @pytest.mark.parametrize("quality", [None, 60])
    def test_jpeg_at_a_quality(self, folder: Path, tmp_path: Path, quality: int | None) -> None:
        write_corrupted(folder, tmp_path / "out", shifts=["contrast@1"], format="jpg", quality=quality)
        assert {"ant/a.jpg", "bee/c.JPEG"} < tree(tmp_path / "out").keys()
        image = Image.fromarray(expected(folder / "ant/a.png", "contrast@1"))
        options: dict[str, Any] = {"quality": 95, "subsampling": 0} if quality is None else {"quality": quality}
        image.save(tmp_path / "plain.jpg", **options)
        assert np.array_equal(pixels(tmp_path / "out/ant/a.jpg"), pixels(tmp_path / "plain.jpg"))

    def test_every_format_is_kept(self, folder: Path, tmp_path: Path) -> None:
        write_corrupted(folder, tmp_path / "out", shifts=["contrast@1"])
        assert tree(tmp_path / "out").keys() == FILES.keys() | {"manifest.json", "readme.txt"}
        for file in FILES:
            with Image.open(folder / file) as source, Image.open(tmp_path / "out" / file) as made:
                assert (made.format, made.size) == (source.format, source.size)

    def test_size_and_preset(self, folder: Path, tmp_path: Path) -> None:
        write_corrupted(DataSpec(folder, size=12), tmp_path / "out", shifts=["gaussian_noise@3"], preset="imagenet")
        made = pixels(tmp_path / "out/bee/d.png")
        assert made.shape == (12, 12, 3)
        crop = torch.from_numpy(pixels(folder / "bee/d.png")[:, 4:16].copy()).permute(2, 0, 1)[None] / 255
        noisy = shifts.corruption("gaussian_noise", 3, "imagenet")(crop, content_keys(crop))
        assert np.array_equal(made, (noisy[0] * 255).round().permute(1, 2, 0).numpy())

    def test_the_manifest_says_what_was_made_of_what(self, folder: Path, tmp_path: Path) -> None:
        written = write_corrupted(folder, tmp_path / "out", shifts=["contrast@2"], seed=9, format="jpg", quality=70)
        manifest = json.loads(written.manifest.read_text())
        assert manifest["shiftproof"] == __version__
        assert manifest["shifts"] == [{"shift": "contrast@2", "path": "."}]
        assert {
            "seed": 9,
            "format": "jpg",
            "quality": 70,
            "source": "photos",
            "left_out": [],
        }.items() <= manifest.items()
        assert len(manifest["fingerprint"]) == 16
        assert manifest["files"][2] == {"path": "bee/c.JPEG", "source": "bee/c.JPEG"}
        assert len(manifest["files"]) == 4

    def test_labels_come_along(self, folder: Path, tmp_path: Path) -> None:
        (folder / "labels.csv").write_text("file,label\nant/a.png,x\nbee/c.JPEG,y\n")
        write_corrupted(DataSpec(folder, size=12), tmp_path / "out", shifts=["contrast@1", "contrast@2"])
        copy = load_data(tmp_path / "out/contrast/2")
        assert (copy.classes, len(copy)) == (("x", "y"), 2)

    def test_bad_files_fail_or_are_skipped_and_named(self, folder: Path, tmp_path: Path) -> None:
        (folder / "ant/broken.png").write_text("no image at all")
        Image.fromarray(photo(64, 64, 0)).save(folder / "bee/cut.jpg")
        (folder / "bee/cut.jpg").write_bytes((folder / "bee/cut.jpg").read_bytes()[:-200])
        Image.fromarray(photo(7, 9, 0)).save(folder / "bee/tiny.png")
        with pytest.raises(DataError, match=r"broken\.png"):
            write_corrupted(folder, tmp_path / "none", shifts=["contrast@1"])
        written = write_corrupted(
            DataSpec(folder, on_bad_file="skip"), tmp_path / "out", shifts=["contrast@1", "fog@1"]
        )
        assert written.images == 4
        assert [bad.file for bad in written.left_out] == ["ant/broken.png", "bee/tiny.png", "bee/cut.jpg"]
        manifest = json.loads(written.manifest.read_text())
        assert [entry["source"] for entry in manifest["files"]] == list(FILES)
        assert len(manifest["left_out"]) == 3
        (folder / "ant/broken.png").unlink()
        (folder / "bee/tiny.png").unlink()
        with pytest.raises(ShiftproofError, match=r"(?s)bee/cut\.jpg.*--on-bad-file skip"):
            write_corrupted(folder, tmp_path / "cut", shifts=["contrast@1"])
        assert not (tmp_path / "cut/manifest.json").exists()

    def test_several_processes_write_the_same_bytes(self, folder: Path, tmp_path: Path) -> None:
        texts = ["gaussian_noise@1", "snow@2", "glass_blur@3"]
        write_corrupted(folder, tmp_path / "one", shifts=texts)
        write_corrupted(folder, tmp_path / "two", shifts=texts, executor="processes:2")
        assert tree(tmp_path / "one") == tree(tmp_path / "two")


class TestArrays:
    def test_one_array_per_shift_with_labels(self, arrays: Path, tmp_path: Path) -> None:
        write_corrupted(arrays, tmp_path / "out", shifts=["shot_noise@3", "shot_noise@3 + invert"], seed=2)
        assert tree(tmp_path / "out").keys() - {"manifest.json"} == {
            "shot_noise@3.npy",
            "shot_noise@3+invert.npy",
            "labels.npy",
        }
        images = torch.from_numpy(np.load(arrays)["images"]).permute(0, 3, 1, 2) / 255
        made = np.load(tmp_path / "out/shot_noise@3.npy")
        noisy = shifts.parse("shot_noise@3")(images, content_keys(images), seed=2)
        assert (made.shape, made.dtype) == ((3, 40, 40, 3), np.uint8)
        assert np.array_equal(made, (noisy * 255).round().permute(0, 2, 3, 1).numpy())
        copy = load_data(tmp_path / "out/shot_noise@3.npy")
        assert copy.labels is not None
        assert copy.labels.tolist() == [2, 0, 1]

    def test_images_without_labels(self, tmp_path: Path) -> None:
        np.save(tmp_path / "images.npy", np.stack([photo(16, 16, 0)]))
        write_corrupted(tmp_path / "images.npy", tmp_path / "out", shifts=["contrast@3"])
        assert tree(tmp_path / "out").keys() == {"contrast@3.npy", "manifest.json"}

    @pytest.mark.parametrize("damage", ["gone", "zeroed", "cut", "other", "one value", "no array"])
    @pytest.mark.parametrize("suite", [False, True])
    def test_a_damaged_array_is_written_again(
        self, arrays: Path, tmp_path: Path, ice: str, damage: str, suite: bool
    ) -> None:
        options: dict[str, Any] = (
            {"suite": "cifar-c", "textures": ice} if suite else {"shifts": ["contrast@3", "fog@1"]}
        )
        write_corrupted(arrays, tmp_path / "out", **options)
        before = tree(tmp_path / "out")
        array = tmp_path / "out" / ("contrast.npy" if suite else "contrast@3.npy")
        content = np.load(array)
        if damage == "gone":
            array.unlink()
        elif damage == "zeroed":
            np.save(array, np.zeros_like(content))
        elif damage == "cut":
            array.write_bytes(array.read_bytes()[:-1])
        elif damage == "other":
            np.save(array, content[:, :8])
        elif damage == "one value":
            content[-1, -1, -1, -1] ^= 1
            np.save(array, content)
        else:
            array.write_text("something else")
        again: list[tuple[int, int]] = []
        write_corrupted(
            arrays, tmp_path / "out", **options, on_progress=lambda done, total, _: again.append((done, total))
        )
        assert tree(tmp_path / "out") == before
        blocks = 5 if suite else 1
        redone = 1 if damage == "one value" else blocks
        assert [done for done, _ in again] == list(range(again[0][1] - redone, again[0][1] + 1))


class TestSuites:
    def test_cifar_c_is_published_as_arrays_severity_by_severity(self, arrays: Path, ice: str, tmp_path: Path) -> None:
        written = write_corrupted(arrays, tmp_path / "out", suite="cifar-c", textures=ice)
        assert tree(tmp_path / "out").keys() - {"manifest.json"} == {"labels.npy", *(f"{name}.npy" for name in COMMON)}
        assert len(COMMON) == 19
        assert (written.images, len(written.shifts)) == (3, 95)
        labels = np.load(tmp_path / "out/labels.npy")
        assert (labels.dtype, labels.tolist()) == (np.uint8, [2, 0, 1] * 5)
        images = torch.from_numpy(np.load(arrays)["images"]).permute(0, 3, 1, 2) / 255
        for name in ("gaussian_noise", "fog", "pixelate"):
            made = np.load(tmp_path / f"out/{name}.npy")
            assert (made.shape, made.dtype) == ((15, 40, 40, 3), np.uint8)
            blocks = [
                shifts.corruption(name, severity, "cifar")(images, content_keys(images)) for severity in (1, 2, 3, 4, 5)
            ]
            assert np.array_equal(made, (torch.cat(blocks) * 255).round().permute(0, 2, 3, 1).numpy())

    def test_imagenet_c_is_published_as_folders_of_jpeg(self, folder: Path, ice: str, tmp_path: Path) -> None:
        shutil.rmtree(folder / "ant")
        write_corrupted(DataSpec(folder, size=16), tmp_path / "out", suite="imagenet-c", textures=ice)
        files = ("bee/c.JPEG", "bee/d.jpg")
        names = {f"{name}/{severity}/{file}" for name in COMMON for severity in range(1, 6) for file in files}
        assert tree(tmp_path / "out").keys() == names | {"manifest.json"}
        manifest = json.loads((tmp_path / "out/manifest.json").read_text())
        assert {"suite": "imagenet-c", "format": "jpg", "quality": 85, "size": 16}.items() <= manifest.items()
        fifth = {"shift": "gaussian_noise@5[preset=imagenet]", "preset": "imagenet", "path": "gaussian_noise/5"}
        assert manifest["shifts"][4] == fifth

    def test_imagenet_c_brings_images_to_the_published_size(self) -> None:
        assert SUITES["imagenet-c"].size == SUITES["imagenet-c-bar"].size == (256, 224)
        assert SUITES["cifar-c"].size is None

    @pytest.mark.parametrize(
        ("suite", "names", "paths"),
        [
            ("imagenet-c-bar", "caustic_refraction plasma_noise", {"sparkles/6.00", "perlin_noise/4.60"}),
            ("cifar-c-bar", "lines circular_motion_blur", {"sparkles.npy", "ripple.npy"}),
        ],
    )
    def test_the_bar_suites_have_ten_published_corruptions(self, suite: str, names: str, paths: set[str]) -> None:
        targets = SUITES[suite].targets()
        assert len({target.shift.name for target in targets}) == 10
        assert len(targets) == 50
        assert set(names.split()) < {target.shift.name for target in targets}
        assert paths < {target.path for target in targets}
        assert {target.preset for target in targets} == {suite.partition("-")[0]}

    def test_frost_takes_photographs(self, ice: str) -> None:
        labels = [target.shift.label for target in SUITES["cifar-c"].targets(textures=ice)]
        assert f"frost@3[textures={ice},preset=cifar]" in labels
        assert "fog@3[preset=cifar]" in labels


class TestSecondRuns:
    def test_the_same_call_does_nothing_again(self, folder: Path, tmp_path: Path) -> None:
        write_corrupted(folder, tmp_path / "out", shifts=["contrast@3"])
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")}
        heard: list[tuple[int, int]] = []
        again = write_corrupted(
            folder,
            tmp_path / "out",
            shifts=["contrast@3"],
            on_progress=lambda done, total, _: heard.append((done, total)),
        )
        assert heard == [(1, 1)]
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.png")} == before
        assert again.images == 4

    def test_an_interrupted_copy_is_finished_without_a_trace(self, folder: Path, tmp_path: Path) -> None:
        texts = [f"gaussian_noise@{severity}" for severity in (1, 2, 3, 4)]
        write_corrupted(folder, tmp_path / "whole", shifts=texts)

        def stop(done: int, total: int, result: Any) -> None:
            if done == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_corrupted(folder, tmp_path / "out", shifts=texts, on_progress=stop)
        assert not (tmp_path / "out/manifest.json").exists()
        (tmp_path / "out/gaussian_noise/2/ant/.a.png.k3x_91ab").write_bytes(b"half")
        heard: list[int] = []
        write_corrupted(folder, tmp_path / "out", shifts=texts, on_progress=lambda done, *_: heard.append(done))
        assert heard == [2, 3, 4]
        assert tree(tmp_path / "out") == tree(tmp_path / "whole")

    @pytest.mark.parametrize(
        "change", [{"shifts": ["fog@2"]}, {"seed": 1}, {"format": "jpg"}, {"data": 12}, {"preset": "cifar"}], ids=str
    )
    def test_another_copy_is_not_mixed_in(self, folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
        first: dict[str, Any] = {"shifts": ["fog@3"]}
        write_corrupted(folder, tmp_path / "out", **first)
        before = tree(tmp_path / "out")
        data = DataSpec(folder, size=change.pop("data", None))
        with pytest.raises(RunError, match="about another corruption"):
            write_corrupted(data, tmp_path / "out", **(first | change))
        assert tree(tmp_path / "out") == before

    def test_nor_are_other_images_or_other_files(self, folder: Path, tmp_path: Path) -> None:
        write_corrupted(folder, tmp_path / "out", shifts=["contrast@3"])
        Image.fromarray(photo(16, 16, 9)).save(folder / "ant/new.png")
        with pytest.raises(RunError, match="about another data"):
            write_corrupted(folder, tmp_path / "out", shifts=["contrast@3"])
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine/thesis.tex").write_text("")
        with pytest.raises(RunError, match=r"(?s)holds other files.*thesis\.tex"):
            write_corrupted(folder, tmp_path / "mine", shifts=["contrast@3"])

    @pytest.mark.parametrize("damage", ["gone", "cut", "empty", "overwritten"])
    def test_a_damaged_copy_is_repaired(self, folder: Path, tmp_path: Path, damage: str) -> None:
        texts = ["gaussian_noise@1", "contrast@3"]
        write_corrupted(folder, tmp_path / "out", shifts=texts)
        before = tree(tmp_path / "out")
        file = tmp_path / "out/contrast/3/ant/a.png"
        if damage == "gone":
            file.unlink()
        else:
            other = before["gaussian_noise/1/ant/a.png"]
            file.write_bytes({"cut": file.read_bytes()[:-9], "empty": b"", "overwritten": other}[damage])
        (tmp_path / "out/manifest.json").unlink()
        heard: list[int] = []
        written = write_corrupted(
            folder, tmp_path / "out", shifts=texts, on_progress=lambda done, *_: heard.append(done)
        )
        assert heard == [1, 2]  # one of the two cells is written again
        assert written.images == 4
        assert tree(tmp_path / "out") == before

    def test_files_that_were_left_out_are_not_missed(self, folder: Path, tmp_path: Path) -> None:
        Image.fromarray(photo(64, 64, 0)).save(folder / "bee/cut.jpg")
        (folder / "bee/cut.jpg").write_bytes((folder / "bee/cut.jpg").read_bytes()[:-200])
        heard: list[int] = []
        for _ in range(2):
            heard.clear()
            write_corrupted(
                DataSpec(folder, on_bad_file="skip"),
                tmp_path / "out",
                shifts=["contrast@3"],
                on_progress=lambda done, *_: heard.append(done),
            )
        assert heard == [1]

    def test_a_damaged_table_of_texts_is_written_again(self, tmp_path: Path) -> None:
        (tmp_path / "texts.csv").write_text("text,label\na good film,1\na very bad film,0\n")
        texts = ["typos@3", "typos@5"]
        write_corrupted(tmp_path / "texts.csv", tmp_path / "out", shifts=texts)
        before = tree(tmp_path / "out")
        kept = (tmp_path / "out/typos@5.csv").stat().st_mtime_ns
        (tmp_path / "out/typos@3.csv").write_text("text,label\n")
        write_corrupted(tmp_path / "texts.csv", tmp_path / "out", shifts=texts)
        assert tree(tmp_path / "out") == before
        assert (tmp_path / "out/typos@5.csv").stat().st_mtime_ns == kept


class TestMistakes:
    @pytest.mark.parametrize("out", [".", "copy", ".."])
    def test_the_copy_and_its_source_stay_apart(self, folder: Path, out: str) -> None:
        with pytest.raises(ConfigurationError, match="overlap"):
            write_corrupted(folder, folder / out, shifts=["fog@3"])

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({}, "neither"),
            ({"shifts": ["fog@3"], "suite": "cifar-c"}, "both"),
            ({"shifts": ["fogg@3"]}, "did you mean"),
            ({"shifts": ["fog@3", "fog@3"]}, "the same place"),
            ({"shifts": ["fog@3"], "format": "gif"}, "no format named"),
            ({"shifts": ["fog@3"], "quality": 0}, "Invalid quality 0"),
            ({"shifts": ["fog@3"], "preset": "mnist"}, "no preset"),
            ({"shifts": ["fog@3"], "textures": "ice"}, "frost of a suite"),
            ({"suite": "imagenetc"}, "did you mean"),
            ({"suite": "imagenet-c", "preset": "cifar"}, "fixes the preset"),
            ({"suite": "cifar-c", "format": "png"}, "cannot be used for arrays"),
        ],
    )
    def test_options_that_do_not_fit(self, folder: Path, tmp_path: Path, options: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigurationError, match=says):
            write_corrupted(folder, tmp_path / "out", **options)
        assert not (tmp_path / "out").exists()

    def test_sources_that_do_not_fit(self, arrays: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="needs a folder of image files"):
            write_corrupted(arrays, tmp_path / "out", suite="imagenet-c")
        with pytest.raises(DataError, match="no data at"):
            write_corrupted(tmp_path / "nowhere", tmp_path / "out", shifts=["fog@3"])
        (tmp_path / "empty").mkdir()
        with pytest.raises(DataError, match="no images in"):
            write_corrupted(tmp_path / "empty", tmp_path / "out", shifts=["fog@3"])

    def test_two_files_of_one_name(self, folder: Path, tmp_path: Path) -> None:
        Image.fromarray(photo(16, 16, 9)).save(folder / "ant/a.bmp")
        with pytest.raises(ConfigurationError, match=r"(?s)ant/a\.bmp and ant/a\.png.*without --format"):
            write_corrupted(folder, tmp_path / "out", shifts=["fog@3"], format="png")
        write_corrupted(folder, tmp_path / "out", shifts=["fog@3"])


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_every_format_that_is_read_is_written(tmp_path: Path, suffix: str) -> None:
    if Image.registered_extensions().get(suffix) not in Image.SAVE:
        pytest.skip(f"this Pillow does not write {suffix}")
    image = np.full((16, 24, 3), (200, 40, 90), np.uint8)
    (tmp_path / f"a{suffix}").write_bytes(encode(FilePixels(image), suffix, quality=90))
    found = Decoder("rgb")(str(tmp_path / f"a{suffix}"))
    assert found.shape == image.shape
    assert np.abs(found.astype(int) - image).max() <= 12


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names")
def test_names_that_are_not_text(folder: Path, tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.png")
    (folder / "ant/a.png").rename(folder / "ant" / odd)
    written = write_corrupted(folder, tmp_path / "out", shifts=["contrast@1"])
    assert (tmp_path / "out/ant" / odd).is_file()
    assert json.loads(written.manifest.read_text())["files"][0]["path"] == "ant/caf\\xe9.png"


def test_a_cell_holds_so_many_images_and_values() -> None:
    assert list(slices([1] * 130, most=64)) == [(0, 64), (64, 128), (128, 130)]
    assert list(slices([2**24, 2**24, 1, 2**26, 5], most=64)) == [(0, 2), (2, 3), (3, 4), (4, 5)]


def test_texts_are_written_anew_when_a_file_that_their_shift_reads_has_changed(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f"one two three four {i},{i % 2}\n" for i in range(8)))
    words, out = tmp_path / "words.txt", tmp_path / "out"
    shift = f"random_replacement@5[vocabulary={words}]"

    def written(word: str, folder: Path) -> str:
        words.write_text(f"{word}\n")
        write_corrupted(tmp_path / "texts.csv", folder, shifts=[shift, "typos@2"])
        (table,) = folder.glob("random*.csv")
        return table.read_text()

    first = written("alpha", out)
    kept = (out / "typos@2.csv").stat().st_mtime_ns
    assert "alpha" in first
    assert written("omega", out) == written("omega", tmp_path / "fresh") != first
    assert (out / "typos@2.csv").stat().st_mtime_ns == kept
