"""Results image by image: the rows, the files they go to and come back from, and copies of failures."""

import csv
from pathlib import Path

import numpy as np
import pytest

from shiftproof.errors import DataError
from shiftproof.slices import (
    AnswerCondition,
    Answered,
    ImageTable,
    copy_failures,
    failures,
    image_table,
    read_csv,
    result_files,
    write_table,
    write_tables,
)

HOSTILE = [
    "=cmd|' /C calc'!A0.png",
    "+1+1.png",
    "-2.png",
    "@SUM(A1).png",
    "\t=1.png",
    'quo"te, comma.png',
    "'=1.png",
    "a\nb.png",
]


def table():
    """Return rows of hostile files, clean and under fog at two severities."""
    count = len(HOSTILE)
    labels = np.arange(count) % 2
    rng = np.random.default_rng(0)
    answers = {
        AnswerCondition(): Answered.of(np.eye(2)[labels] * 3, labels),
        AnswerCondition("fog", 3.0): Answered.of(np.eye(2)[1 - labels] * 2, labels),
        AnswerCondition("fog", 1.0): Answered.of(np.eye(2)[np.where(np.arange(count) < 2, 1 - labels, labels)], labels),
    }
    return image_table(HOSTILE, answers, labels=labels, classes=["=cat", "dog"], columns={"iso": rng.random(count)})


def test_rows_say_what_the_model_said_and_where_it_breaks():
    made = table()
    count = len(HOSTILE)
    assert made["right"] == [True] * count + [False] * count + [False] * 2 + [True] * (count - 2)
    assert made["flipped"][:count] == [False] * count
    assert made["flipped"][count : 2 * count] == [True] * count
    assert made["breaks_at"][count : 2 * count] == [1.0] * 2 + [3.0] * (count - 2)
    assert made["breaks_at"][:count] == [None] * count
    assert made["label"][:2] == ["=cat", "dog"]
    assert made["confidence"][0] == pytest.approx(1 / (1 + np.exp(-3)))
    assert made["loss"][0] == pytest.approx(-np.log(made["label_probability"][0]))


def test_files_come_back_as_they_went(tmp_path):
    made = table()
    (path, *_) = write_table(made, tmp_path)
    assert read_csv(path) == made


def test_no_cell_of_text_can_be_a_formula(tmp_path):
    write_table(table(), tmp_path)
    with (tmp_path / "images.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    texts = [row[place] for row in rows for place in (1, 2, 3)]
    assert not [text for text in texts if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]
    numbers = [row[rows[0].index("loss")] for row in rows[1:]]
    assert all(float(number) >= 0 for number in numbers)


def test_a_table_that_a_spreadsheet_wrote_is_read(tmp_path):
    (tmp_path / "images.csv").write_text("\ufefffile,right,confidence,note\r\n007,TRUE,0.5,\r\n")
    assert read_csv(tmp_path / "images.csv") == {"file": ["007"], "right": [True], "confidence": [0.5], "note": [None]}


@pytest.mark.parametrize("text", ["", "a,b\n1\n"])
def test_what_is_no_table_is_refused(tmp_path, text):
    (tmp_path / "images.csv").write_text(text)
    with pytest.raises(DataError):
        read_csv(tmp_path / "images.csv")
    with pytest.raises(DataError):
        read_csv(tmp_path / "none.csv")


@pytest.mark.skipif(result_files.has_parquet(), reason="pyarrow itself is installed, and tested below")
def test_parquet_is_written_where_pyarrow_is(tmp_path, monkeypatch):
    monkeypatch.setattr(result_files, "has_parquet", lambda: True)
    monkeypatch.setattr(result_files, "write_parquet", lambda tables, file: file.write(repr(list(tables)).encode()))
    files = write_table(table(), tmp_path)
    assert [path.name for path in files] == ["images.csv", "images.parquet"]
    assert files[1].read_text() == repr([table()])


def test_parquet_comes_back_as_it_went(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    made = table()
    parts = [{name: values[start : start + 8] for name, values in made.items()} for start in (0, 8, 16)]
    files = write_tables(lambda: parts, tmp_path)  # the first part has no value of `breaks_at`
    assert parquet.read_table(files[1]).to_pydict() == made  # Parquet has types: text needs no mark there
    assert read_csv(files[0]) == made


def test_pandas_reads_the_files_and_names_stay_text(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    made = table()
    comma, parquet = write_table(made, tmp_path)
    whole = pandas.DataFrame(made)
    assert pandas.read_parquet(parquet).astype(whole.dtypes).equals(whole)
    assert pandas.DataFrame(read_csv(comma)).astype(whole.dtypes).equals(whole)
    marked = pandas.read_csv(comma)
    assert marked.shape == whole.shape
    assert not marked["file"].str.startswith(("=", "+", "-", "@", "\t", "\r", "\n")).any()
    assert marked["right"].tolist() == made["right"]
    assert np.allclose(marked["loss"], whole["loss"])


def test_nothing_is_left_of_a_table_that_could_not_be_written(tmp_path):
    write_table(table(), tmp_path)
    before = (tmp_path / "images.csv").read_bytes()

    def broken():
        yield table()
        raise KeyError("no more")

    with pytest.raises(KeyError):
        write_tables(broken, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if "parquet" not in path.name] == ["images.csv"]
    assert (tmp_path / "images.csv").read_bytes() == before


def test_failures_are_the_wrong_rows_the_surest_first():
    found = failures(table(), most=3)
    assert found["right"] == [False] * 5
    assert found["shift"] == ["fog"] * 5
    assert found["severity"] == [3.0] * 3 + [1.0] * 2
    sure = [float(str(value)) for value in failures(table())["confidence"]]
    assert sure == sorted(sure, reverse=True)


def test_copies_stay_in_their_folder(tmp_path):
    paths: list[Path | None] = []
    for number, name in enumerate(["..x.png", "a b.PNG", "-rf.png", *["p.png"] * 5]):
        path = tmp_path / str(number) / name
        path.parent.mkdir()
        path.write_bytes(bytes([number]))
        paths.append(path)
    paths[3] = None
    found = failures(table())
    copies = copy_failures(found, paths, tmp_path / "out")
    assert len(copies) == len(found["file"]) - found["index"].count(3)
    assert all(copy.resolve().is_relative_to(tmp_path / "out") for copy in copies)
    assert {copy.read_bytes() for copy in copies} == {bytes([number]) for number in range(8) if number != 3}


def test_a_link_in_the_way_is_left_alone(tmp_path):
    (tmp_path / "a.png").write_bytes(b"picture")
    (tmp_path / "other").write_bytes(b"kept")
    one: ImageTable = {
        "index": [0],
        "file": ["a.png"],
        "shift": ["clean"],
        "severity": [0.0],
        "prediction": ["x"],
        "label": ["y"],
    }
    (target,) = copy_failures(one, [tmp_path / "a.png"], tmp_path / "out")
    assert target.suffix == ".png"  # what opens it goes by that
    target.unlink()
    target.symlink_to(tmp_path / "other")
    assert copy_failures(one, [tmp_path / "a.png"], tmp_path / "out") == []
    assert (tmp_path / "other").read_bytes() == b"kept"
