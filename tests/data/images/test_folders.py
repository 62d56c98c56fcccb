from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof.data import ImageSet, load_data, load_images, match
from shiftproof.data.contents import content_keys
from shiftproof.errors import ConfigurationError, DataError

RNG = np.random.default_rng(0)


def picture(path: Path, value: int = 0, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> None:
    """Write an image of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value,) * 3).save(path)


def values(data: ImageSet, **options: Any) -> list[int]:
    """Return the colour of every image, in order."""
    return [round(255 * float(image[0, 0, 0])) for batch in data.batches(3, **options) for image in batch.inputs]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six images of three classes; the colours say which is which."""
    root = tmp_path / "photos"
    for value, file in enumerate(("ant/a.png", "ant/deep/b.PNG", "bee/a.png", "bee/c.png", "cat/a.png", "cat/b.bmp")):
        picture(root / file, value)
    return root


def truncated(path: Path) -> None:
    """Write a JPEG whose header is whole and whose pixels are not."""
    Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).resize((8, 8)).save(path, quality=100)
    path.write_bytes(path.read_bytes()[:-90])


class TestLinks:
    def test_circles_between_classes_count_each_image_once(self, folder: Path) -> None:
        (folder / "ant" / "to_bee").symlink_to("../bee")
        (folder / "bee" / "to_ant").symlink_to("../ant")
        data = load_images(folder)
        assert data.labels is not None
        assert (values(data), data.labels.tolist()) == ([0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2])

    def test_links_to_the_folder_and_above_it_are_left_alone(self, folder: Path) -> None:
        picture(folder.parent / "other.png", 9)
        for number, target in enumerate(("..", "../..", ".", "deep")):
            (folder / "ant" / f"link{number}").symlink_to(target)
        assert values(load_images(folder)) == [0, 1, 2, 3, 4, 5]

    def test_other_folders_are_read_through_links_once(self, folder: Path, tmp_path: Path) -> None:
        picture(tmp_path / "elsewhere" / "d.png", 6)
        picture(tmp_path / "elsewhere" / "inside" / "e.png", 7)
        (tmp_path / "elsewhere" / "back").symlink_to("../photos/bee")
        (folder / "dog").symlink_to("../elsewhere")
        (folder / "dog too").symlink_to("../elsewhere/inside")
        data = load_images(folder)
        assert data.labels is not None
        assert (values(data), data.labels.tolist()) == ([0, 1, 2, 3, 4, 5, 6, 7], [0, 0, 1, 1, 2, 2, 3, 3])
        assert any("without images: dog too" in note for note in data.notes)


class TestClasses:
    def test_sub_folders_are_classes(self, folder: Path) -> None:
        data = load_images(folder)
        assert data.name == "photos"
        assert data.classes == ("ant", "bee", "cat")
        assert data.labels is not None
        assert data.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert values(data) == [0, 1, 2, 3, 4, 5]
        assert data.shape == (3, 8, 8)
        assert data.notes == ()

    def test_keys_are_digests_of_pixels(self, folder: Path) -> None:
        data = load_images(folder)
        (batch,) = data.batches(9)
        assert data.keys.tolist() == content_keys(batch.inputs).tolist() == batch.keys.tolist()
        assert len(data.keys.unique()) == 6
        assert torch.equal(load_images((batch.inputs, data.labels)).keys, data.keys)

    def test_renaming_files_and_folders_changes_nothing(self, folder: Path) -> None:
        before = load_images(folder, classes=["ant", "bee", "cat"]).take().in_memory()
        for number, file in enumerate(sorted(file for file in folder.rglob("*") if file.is_file())):
            file.rename(file.parent / f"{999 - number}{file.suffix}")
        (folder / "ant" / "deep").rename(folder / "ant" / "a")
        after = load_images(folder, classes=["ant", "bee", "cat"]).take()
        assert after.fingerprint == before.fingerprint
        assert after.keys.tolist() == before.keys.tolist()
        assert load_images(folder).take(3).keys.tolist() == before.take(3).keys.tolist()

    def test_equal_files_are_told_apart_whatever_their_names(self, tmp_path: Path) -> None:
        for name in ("a/1", "a/2", "b/1", "b/4"):
            picture(tmp_path / f"{name}.png", int(name[-1]) // 2)
        data = load_images(tmp_path)
        assert data.keys[0] == data.keys[2]  # one of each class: nothing but the label tells them apart
        assert len(data.keys.unique()) == 3
        picture(tmp_path / "a" / "3.png", 0)
        assert len(load_images(tmp_path).keys.unique()) == 4
        parts = [load_images(tmp_path).subset([place]).keys for place in range(5)]
        assert torch.cat(parts).tolist() == load_images(tmp_path).keys.tolist()

    def test_the_middle_of_a_file_counts(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            picture(tmp_path / name / "1.bmp", 7, size=(96, 96))
        before = load_images(tmp_path).fingerprint
        content = bytearray((tmp_path / "b" / "1.bmp").read_bytes())
        content[len(content) // 2] ^= 255
        (tmp_path / "b" / "1.bmp").write_bytes(content)
        assert load_images(tmp_path).fingerprint != before

    def test_whole_numbers_are_indices(self, tmp_path: Path) -> None:
        for name in ("0", "2", "10"):
            picture(tmp_path / name / "a.png", int(name))
        data, torchvision = load_images(tmp_path), load_images(tmp_path, classes="sorted")
        assert data.labels is not None
        assert torchvision.labels is not None
        assert data.labels.tolist() == [0, 10, 2]
        assert values(data) == [0, 10, 2]
        assert torchvision.labels.tolist() == [0, 1, 2]
        assert any("output indices" in note for note in match(data, None, 11).notes)

    def test_a_given_order(self, folder: Path) -> None:
        data = load_images(folder, classes=["dog", "cat", "bee", "ant"])
        assert data.labels is not None
        assert data.labels.tolist() == [3, 3, 2, 2, 1, 1]
        assert data.classes == ("dog", "cat", "bee", "ant")

    def test_other_files_are_no_images(self, folder: Path) -> None:
        (folder / "ant" / "Thumbs.db").write_bytes(b"x")
        (folder / "ant" / ".hidden.png").write_bytes(b"x")
        (folder / ".git").mkdir()
        (folder / "README.txt").write_text("hello")
        assert len(load_images(folder)) == 6

    def test_what_archivers_and_python_leave_is_no_class(self, folder: Path) -> None:
        before = load_images(folder)
        for name in ("__MACOSX", "__pycache__", ".ipynb_checkpoints", "ant/__MACOSX"):
            (folder / name).mkdir()
            (folder / name / "._a.png").write_bytes(b"no image")
            picture(folder / name / "a.png", 9)
        after = load_images(folder)
        assert (after.classes, after.fingerprint, after.notes) == (before.classes, before.fingerprint, ())

    def test_classes_without_images_and_images_without_class_are_noted(self, folder: Path) -> None:
        (folder / "bat").mkdir()
        picture(folder / "stray.png")
        data = load_images(folder)
        assert data.classes == ("ant", "bat", "bee", "cat")
        assert data.labels is not None
        assert data.labels.tolist() == [0, 0, 2, 2, 3, 3]
        assert any("bat" in note for note in data.notes)
        assert any("1 images outside" in note for note in data.notes)

    def test_one_class_is_an_error(self, tmp_path: Path) -> None:
        picture(tmp_path / "ant" / "a.png")
        with pytest.raises(DataError, match="has one class"):
            load_images(tmp_path)
        picture(tmp_path / "ant" / "red" / "a.png")
        with pytest.raises(DataError, match="has one class") as caught:
            load_images(tmp_path)
        assert str(tmp_path / "ant") in caught.value.facts["fix"]

    def test_parts_of_a_data_set(self, folder: Path, tmp_path: Path) -> None:
        shutil.copytree(folder, tmp_path / "set" / "train")
        shutil.copytree(folder / "ant", tmp_path / "set" / "val" / "ant")
        shutil.copytree(folder / "bee", tmp_path / "set" / "val" / "bee")
        with pytest.raises(DataError, match="parts of a data set") as caught:
            load_images(tmp_path / "set")
        assert "split='val'" in caught.value.facts["fix"]
        assert len(load_images(tmp_path / "set", split="val")) == 4
        with pytest.raises(DataError, match="no split 'test'"):
            load_images(tmp_path / "set", split="test")


class TestTables:
    @pytest.fixture
    def table(self, folder: Path) -> Path:
        (folder / "labels.csv").write_text("file,label\ncat/a.png,night\nant/a.png,day\nbee/a.png,night\n")
        return folder / "labels.csv"

    def test_a_table_inside_decides(self, folder: Path, table: Path) -> None:
        data = load_images(folder)
        assert data.classes == ("day", "night")
        assert data.labels is not None
        assert data.labels.tolist() == [0, 1, 1]
        assert values(data) == [0, 2, 4]
        assert "3 images that labels.csv does not name were left out." in data.notes

    def test_a_table_elsewhere(self, folder: Path, table: Path, tmp_path: Path) -> None:
        inside = load_images(folder)
        table.rename(tmp_path / "elsewhere.csv")
        assert load_images(folder, labels=tmp_path / "elsewhere.csv").fingerprint == inside.fingerprint

    def test_numbers_are_indices(self, folder: Path, table: Path) -> None:
        table.write_text("file,label\nant/a.png,7\nbee/a.png,12\n")
        data = load_images(folder)
        assert data.labels is not None
        assert data.labels.tolist() == [7, 12]

    def test_missing_files_are_named(self, folder: Path, table: Path) -> None:
        table.write_text("file,label\nant/a.png,7\nant/z.png,12\n")
        with pytest.raises(DataError, match=r"1 of 2 files(?s:.*)ant/z.png(?s:.*)remove their rows"):
            load_images(folder)

    @pytest.mark.parametrize("how", ["resolved", "as it is"])
    def test_paths_may_be_absolute_within_the_folder(
        self, how: str, folder: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = load_images(folder).fingerprint
        rows = [line.split(",") for line in table.read_text().splitlines()]
        table.unlink()
        elsewhere = tmp_path / "elsewhere.csv"
        elsewhere.write_text("\n".join(["file,label", *(f"{folder / file},{label}" for file, label in rows[1:])]))
        monkeypatch.chdir(folder.parent)
        given = folder if how == "resolved" else Path(folder.name)
        assert load_images(given, labels=elsewhere).fingerprint == expected
        with pytest.raises(DataError, match=r"outside the folder(?s:.*)--data\s+FOLDER\s+--labels"):
            load_images(folder / "bee", labels=elsewhere)

    def test_a_column_of_splits_is_told(self, folder: Path, table: Path) -> None:
        table.write_text("file,label,Split\ncat/a.png,night,train\nant/a.png,day,test\nbee/a.png,night,train\n")
        assert any(
            "The column Split of labels.csv (test, train) was not used" in note for note in load_images(folder).notes
        )
        table.write_text(table.read_text().replace("train", "test"))
        assert not any("Split" in note for note in load_images(folder).notes)

    @pytest.mark.parametrize(
        ("rows", "fix"),
        [
            ("ant/a,7\nbee/a,12\n", "write names with their endings: ant/a.png"),
            ("set/ant/a.png,7\nset/bee/a.png,12\n", r"at\s+the\s+working\s+directory:\s+--data\s+\.\s+--labels"),
            (r"ant\a.png,7" "\n" r"bee\a.png,12" "\n", "write / between folders, as in ant/a.png"),
            ("x.png,7\ny.png,12\n", r"--data\s+FOLDER\s+--labels\s+TABLE"),
        ],
    )
    def test_what_would_let_files_be_found_is_told(
        self, rows: str, fix: str, folder: Path, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table.write_text(f"file,label\n{rows}")
        (folder.parent / "set").symlink_to(folder)
        monkeypatch.chdir(folder.parent)
        with pytest.raises(DataError, match=fix):
            load_images(folder)

    @pytest.mark.parametrize("mark", [";", "\t", ","])
    def test_fields_may_be_separated_by_other_marks(self, mark: str, folder: Path, table: Path) -> None:
        expected = load_images(folder).fingerprint
        table.write_text(table.read_text().replace(",", mark))
        assert load_images(folder).fingerprint == expected
        assert load_data(table).fingerprint == expected

    @pytest.mark.parametrize("header", ["file;label;city, country", 'file;label;"a, b, c, d"'])
    def test_names_of_columns_may_have_other_marks(self, header: str, folder: Path, table: Path) -> None:
        expected = load_images(folder).fingerprint
        _, *rows = table.read_text().splitlines()
        table.write_text("\n".join([header, *(row.replace(",", ";") + ";x" for row in rows)]))
        assert load_images(folder).fingerprint == expected

    def test_columns_of_other_names_are_asked_for(self, folder: Path, table: Path) -> None:
        expected = load_images(folder).fingerprint
        table.write_text(table.read_text().replace("file,label", "Image Id,Target Class"))
        with pytest.raises(DataError, match="--image-column NAME and --label-column NAME"):
            load_data(table)
        assert load_data(table, image_column="Image Id", label_column="Target Class").fingerprint == expected
        table.write_text("ID,species\na,ant\n")  # it may be a table of texts
        with pytest.raises(DataError, match=r"--image-column\s+NAME where it names images"):
            load_data(table)

    def test_names_without_endings_or_with_blanks(self, folder: Path, table: Path) -> None:
        expected = load_images(folder).fingerprint
        header, *rows = table.read_text().splitlines()
        table.write_text("\n".join([header, *(row.replace(",", " , ") for row in rows)]))
        assert load_data(table).fingerprint == expected
        table.write_text("\n".join([header, *(row.replace(".png", "") for row in rows)]))
        with pytest.raises(DataError, match=r"--image-column\s+file if that names images, with their endings"):
            load_data(table)
        with pytest.raises(DataError, match="write names with their endings"):
            load_data(table, image_column="file")

    def test_one_class_is_an_error(self, folder: Path, table: Path) -> None:
        table.write_text("file,label\nant/a.png,7\nbee/a.png,7\n")
        with pytest.raises(DataError, match="all of one class"):
            load_images(folder)

    def test_labels_are_no_array(self, folder: Path) -> None:
        with pytest.raises(ConfigurationError, match="come from a table"):
            load_images(folder, labels=[1, 2, 3])


class TestWhatIsChanged:
    """Where pixels are not those that torchvision's ImageFolder reads, a note says so."""

    def test_turned_and_transparent_images_are_counted(self, folder: Path) -> None:
        assert load_images(folder).notes == ()
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (8, 8)).save(folder / "ant" / "turned.jpg", exif=exif)
        Image.new("RGBA", (8, 8)).save(folder / "bee" / "clear.png")
        Image.new("RGBA", (8, 8)).save(folder / "bee" / "clear.gif")
        turned, clear = load_images(folder).notes
        assert "EXIF data of 1 of 9 images turn them" in turned
        assert "2 of 9 images may have transparent pixels" in clear


class TestWithoutLabels:
    def test_a_flat_folder(self, tmp_path: Path) -> None:
        for value in range(4):
            picture(tmp_path / f"{value}.png", value)
        data = load_images(tmp_path)
        assert data.labels is None
        assert values(data) == [0, 1, 2, 3]
        assert any("no labels" in note for note in data.notes)

    @pytest.mark.parametrize("inside", [None, "notes.txt", "empty"])
    def test_no_images(self, inside: str | None, tmp_path: Path) -> None:
        if inside == "empty":
            (tmp_path / inside).mkdir()
        elif inside is not None:
            (tmp_path / inside).write_text("hello")
        with pytest.raises(DataError, match="There are no images"):
            load_images(tmp_path)


class TestColours:
    def test_are_three_channels_unless_asked(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            picture(tmp_path / name / "a.png", 7, mode="L")
        assert load_images(tmp_path).shape == (3, 8, 8)
        grey = load_images(tmp_path, color="gray")
        assert grey.shape == (1, 8, 8)
        assert values(grey) == [7, 7]
        assert grey.fingerprint != load_images(tmp_path).fingerprint

    def test_grey_needs_all_images_grey(self, tmp_path: Path) -> None:
        picture(tmp_path / "a" / "a.png", mode="L")
        picture(tmp_path / "b" / "b.png")
        with pytest.raises(DataError, match=r"b/b.png' has colours(?s:.*)leave out --color gray"):
            load_images(tmp_path, color="gray")


class TestSizes:
    def test_different_sizes_name_two_files_and_the_fix(self, folder: Path) -> None:
        picture(folder / "bee" / "b.png", size=(10, 12))
        with pytest.raises(DataError, match="different sizes") as caught:
            load_images(folder)
        assert caught.value.facts["got"] == "ant/a.png is 8 x 8, bee/b.png is 10 x 12 pixels"
        assert "size=224" in caught.value.facts["fix"]

    def test_are_brought_to_one(self, folder: Path) -> None:
        picture(folder / "bee" / "b.png", 9, size=(10, 12))
        data = load_images(folder, size=4)
        assert data.shape == (3, 4, 4)
        assert values(data) == [0, 1, 2, 9, 3, 4, 5]

    def test_rotation_counts(self, tmp_path: Path) -> None:
        exif = Image.Exif()
        exif[0x0112] = 6
        for name, size, options in (("a", (8, 6), {}), ("b", (6, 8), {"exif": exif})):
            (tmp_path / name).mkdir()
            Image.new("RGB", size).save(tmp_path / name / "a.jpg", **options)  # type: ignore[arg-type]
        data = load_images(tmp_path)
        assert data.shape == (3, 6, 8)
        assert next(data.batches(2)).inputs.shape == (2, 3, 6, 8)

    def test_a_size_that_shows_only_when_decoded(self, tmp_path: Path) -> None:
        """A PNG may keep its rotation behind its pixels, where its header does not show it."""
        picture(tmp_path / "a" / "a.png", size=(8, 6))
        exif = Image.Exif()
        exif[0x0112] = 6
        (tmp_path / "b").mkdir()
        Image.new("RGB", (8, 6)).save(tmp_path / "b" / "b.png", exif=exif)
        with pytest.raises(DataError, match="different sizes") as caught:
            list(load_images(tmp_path).batches(2))
        assert caught.value.facts["got"] == "a/a.png is 8 x 6, b/b.png is 6 x 8 pixels"


class TestBadFiles:
    def test_what_is_no_image_fails_by_name(self, folder: Path) -> None:
        (folder / "bee" / "b.png").write_text("hello")
        with pytest.raises(DataError, match=r"bee/b.png") as caught:
            load_images(folder)
        assert "--on-bad-file skip" in caught.value.facts["fix"]

    def test_what_is_no_image_is_skipped_and_listed(self, folder: Path) -> None:
        (folder / "bee" / "b.png").write_text("hello")
        (folder / "bee" / "empty.png").write_bytes(b"")
        data = load_images(folder, on_bad_file="skip")
        assert values(data) == [0, 1, 2, 3, 4, 5]
        assert [bad.file for bad in data.bad_files] == ["bee/b.png", "bee/empty.png"]
        assert "cannot identify" in data.bad_files[0].reason
        assert data.notes == ("2 unreadable files were left out: bee/b.png, bee/empty.png.",)

    @pytest.mark.parametrize("workers", [0, 1])
    def test_what_is_cut_fails_when_decoded(self, workers: int, folder: Path) -> None:
        truncated(folder / "bee" / "b.jpg")
        data = load_images(folder)
        with pytest.raises(DataError, match=r"bee/b.jpg(?s:.*)truncated"):
            list(data.batches(2, workers=workers))

    @pytest.mark.parametrize("workers", [0, 1])
    def test_what_is_cut_is_skipped_when_decoded(self, workers: int, folder: Path) -> None:
        truncated(folder / "bee" / "b.jpg")
        data = load_images(folder, on_bad_file="skip")
        assert len(data) == 7
        batches = list(data.batches(2, workers=workers))
        assert [len(batch) for batch in batches] == [2, 1, 2, 1]
        assert [batch.labels.tolist() for batch in batches if batch.labels is not None] == [[0, 0], [1], [1, 2], [2]]
        assert torch.equal(
            torch.cat([batch.keys for batch in batches]), torch.cat([content_keys(batch.inputs) for batch in batches])
        )
        assert [bad.file for bad in data.bad_files] == ["bee/b.jpg"]
        assert data.notes == ("1 file that cannot be read was left out: bee/b.jpg.",)

    def test_a_batch_of_nothing_is_left_out(self, folder: Path) -> None:
        truncated(folder / "bee" / "b.jpg")
        data = load_images(folder, on_bad_file="skip")
        assert [len(batch) for batch in data.batches(1)] == [1] * 6

    def test_memory_holds_the_others(self, folder: Path) -> None:
        truncated(folder / "bee" / "b.jpg")
        data = load_images(folder, on_bad_file="skip")
        held = data.in_memory()
        assert len(held) == 6
        assert values(held) == [0, 1, 2, 3, 4, 5]
        assert held.labels is not None
        assert held.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert held.bad_files == data.bad_files != ()
        with pytest.raises(DataError, match=r"bee/b.jpg"):
            load_images(folder).in_memory()

    def test_nothing_but_bad_files_is_an_error(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.png").write_text("hello")
        with pytest.raises(DataError, match="None of the 2 images"):
            load_images(tmp_path, on_bad_file="skip")

    def test_there_are_two_ways(self, folder: Path) -> None:
        with pytest.raises(ConfigurationError, match="'fail' or 'skip'"):
            load_images(folder, on_bad_file="ignore")


class TestFingerprint:
    def test_does_not_depend_on_where_the_folder_is(self, folder: Path, tmp_path: Path) -> None:
        shutil.copytree(folder, tmp_path / "copy")
        assert load_images(tmp_path / "copy").fingerprint == load_images(folder).fingerprint

    def test_changes_with_names_content_labels_and_size(self, folder: Path) -> None:
        found = [load_images(folder).fingerprint]
        found.append(load_images(folder, size=4).fingerprint)
        found.append(load_images(folder, classes=["cat", "bee", "ant"]).fingerprint)
        (folder / "ant" / "a.png").rename(folder / "ant" / "z.png")
        found.append(load_images(folder).fingerprint)
        picture(folder / "ant" / "z.png", 77)
        found.append(load_images(folder).fingerprint)
        assert len(set(found)) == 5

    def test_covers_both_ends_of_large_files(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            Image.fromarray(RNG.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / name / "a.bmp")
        before = load_images(tmp_path).fingerprint
        content = bytearray((tmp_path / "b" / "a.bmp").read_bytes())
        content[-1] ^= 1
        (tmp_path / "b" / "a.bmp").write_bytes(content)
        assert load_images(tmp_path).fingerprint != before


def test_names_that_are_no_utf_8(folder: Path) -> None:
    strange = Path(str(folder / "bee") + "/\udcff.png")
    try:
        picture(strange, 6)
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system only takes UTF-8")
    data = load_images(folder)
    assert 6 in values(data)
    assert len(data.keys.unique()) == 7
    assert len(data.fingerprint) == 16


@pytest.mark.parametrize("workers", [1, 2])
def test_worker_processes_give_the_same_batches(workers: int, folder: Path) -> None:
    data = load_images(folder)
    state = torch.get_rng_state()
    assert values(data, workers=workers) == [0, 1, 2, 3, 4, 5]
    assert torch.equal(torch.get_rng_state(), state)
    (batch,) = data.subset([4, 0]).batches(8, workers=workers)
    assert batch.keys.tolist() == data.keys[[4, 0]].tolist()
