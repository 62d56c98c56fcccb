"""Audits, estimates and copies of texts, end to end, from the functions and from the command line."""

import csv
import json
import random
from dataclasses import asdict

import pytest
import torch

from shiftproof import DataSpec, audit, estimate, load_data, load_model
from shiftproof.audits.sections import SECTIONS
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import logits
from shiftproof.training.text import train_text_cnn
from tests.processes import shiftproof
from tests.shifts.text import language_models


class Always(torch.nn.Module):
    """One answer to every text."""

    def forward(self, texts):
        return torch.tensor([[1.0, 0.0]]).expand(len(texts), 2)


GOOD, BAD = ["wonderful", "great", "superb", "lovely"], ["terrible", "awful", "dull", "lousy"]
FILLERS = ["film", "story", "the", "a", "very", "was", "book", "with", "scene", "actor", "plot", "and"]


def reviews(count, seed=0):
    rng = random.Random(seed)
    rows = []
    for number in range(count):
        words = rng.choices(FILLERS, k=rng.randint(6, 14))
        words.insert(rng.randrange(len(words)), rng.choice(GOOD if number % 2 else BAD))
        rows.append((" ".join(words) + ".", "good" if number % 2 else "bad"))
    return rows


def write(path, rows, columns=("review", "sentiment")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    write(folder / "source.csv", reviews(160, seed=1))
    write(folder / "target.csv", reviews(160, seed=2))
    data = load_data(folder / "source.csv")
    small = {"embedding": 12, "width": 8, "hidden": 8, "dropout": 0.0}
    train_text_cnn(data, epochs=12, lr=0.01, until=0.01, **small).save(folder / "net")  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def audited(place):
    return audit(str(place / "net"), str(place / "target.csv"), out=place / "audit", severities=[2, 5])


def test_an_audit_of_texts_runs_the_sections_that_apply(audited):
    assert [view.section for view in audited.views] == ["clean", "corruptions", "mistakes", "confidence", "label_free"]
    assert not audited.failed
    assert audited.numbers["clean_accuracy"] > 0.95
    assert audited.numbers["accuracy.typos"] < audited.numbers["clean_accuracy"]
    assert audited.numbers["accuracy.letter_case"] == audited.numbers["clean_accuracy"]  # it reads small letters
    assert "label_free_error" in audited.numbers


def test_its_report_speaks_of_texts_and_says_what_does_not_apply(audited):
    page = audited.report.read_text()
    assert "What the model reads under" in page
    left_out = [name for name in SECTIONS if name not in ("clean", "corruptions", "confidence", "label_free")]
    assert f"Sections that do not apply to texts: {', '.join(left_out)}." in page
    assert "Synonyms for eda come from a built-in list" in page
    assert "160 texts. Intervals are" in page


def words(part):
    """Yield every string of a view, those of its charts and code too; a picture's bytes are none."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        yield from (said for name, value in part.items() if name != "png" for said in (*words(name), *words(value)))
    elif isinstance(part, list | tuple):
        yield from (said for one in part for said in words(one))


def all_words(audit):
    return [said for view in audit.views for said in words(asdict(view))]


def test_no_view_of_texts_speaks_of_images(audited):
    said = all_words(audited)
    assert any("texts" in one for one in said)
    assert [one for one in said if "image" in one.lower()] == []


def test_no_caveat_on_texts_speaks_of_images(tmp_path):
    model, rows = Always(), reviews(40)
    data = ([text for text, _ in rows], [label for _, label in rows])
    found = audit(model, data, out=tmp_path, sections=["clean"])
    said = all_words(found)
    assert any("It predicts bad for all 40 texts" in one for one in said)
    assert [one for one in said if "image" in one.lower()] == []


def test_no_view_of_images_speaks_of_texts(tmp_path):
    sections = ["clean", "corruptions", "confidence", "label_free"]
    found = audit("demo", "demo", out=tmp_path, images=48, sections=sections, shifts=["contrast"], severities=[3])
    said = all_words(found)
    assert any("48 images" in one for one in said)
    assert [one for one in said if "text input" in one or "texts" in one] == []


def test_a_second_call_measures_nothing_anew_and_gives_the_same_numbers(audited, place):
    done = []
    again = audit(
        str(place / "net"),
        str(place / "target.csv"),
        out=place / "audit",
        severities=[2, 5],
        on_progress=lambda now, total, result: done.append(result),
    )
    assert done == [None]
    assert again.numbers == audited.numbers


def test_sections_of_images_and_data_without_labels_are_refused(place):
    with pytest.raises(ConfigurationError, match="does not apply to texts"):
        audit(str(place / "net"), str(place / "target.csv"), out=place / "a", sections=["spectrum"])
    (place / "plain.txt").write_text("one text\nanother text\n")
    with pytest.raises(DataError, match="no labels"):
        audit(str(place / "net"), str(place / "plain.txt"), out=place / "b")
    with pytest.raises(ConfigurationError):
        audit(str(place / "net"), str(place / "target.csv"), out=place / "c", shifts=["fog"])


def test_pairs_for_a_model_of_single_texts_are_refused(place):
    path = write(place / "pairs.csv", [("a", "b", "x"), ("c", "d", "y")], ("premise", "hypothesis", "label"))
    with pytest.raises(DataError, match="reads single texts"):
        audit(str(place / "net"), str(path), out=place / "d")


def test_estimates_of_texts_come_near_the_truth(place):
    result = estimate(str(place / "net"), str(place / "target.csv"), source=str(place / "source.csv"), views=3)
    assert result.low <= result.accuracy <= result.high
    model, data = load_model(str(place / "net")), load_data(place / "target.csv")
    assert data.labels is not None
    truth = float(logits(model, data.texts).argmax(1).eq(data.labels).double().mean())  # type: ignore[attr-defined]
    assert abs(result.accuracy - truth) < 0.1
    assert "invariance" in {result.method, *(one.method for one in result.others)}


def test_copies_from_the_command_line_read_back(place):
    options = ("write-corrupted", "target.csv", "copy", "-s", "typos@3", "-s", "eda@2")
    done = shiftproof(*options, "--format", "csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "inputs    160, under 2 shifts" in done.stdout
    shifted, source = load_data(place / "copy/typos@3.csv"), load_data(place / "target.csv")
    assert shifted.labels.tolist() == source.labels.tolist()  # type: ignore[union-attr]
    assert shifted.texts != source.texts  # type: ignore[attr-defined]
    manifest = json.loads((place / "copy/manifest.json").read_text())
    assert [one["shift"] for one in manifest["shifts"]] == ["typos@3", "eda@2"]
    before = (place / "copy/typos@3.csv").stat().st_mtime_ns
    assert shiftproof(*options, cwd=place).returncode == 0
    assert (place / "copy/typos@3.csv").stat().st_mtime_ns == before
    wrong = shiftproof("write-corrupted", "target.csv", "other", "-s", "fog@3", cwd=place)
    assert wrong.returncode == 1
    assert "text shifts" in wrong.stderr


def test_a_hugging_face_classifier_is_audited_from_the_command_line(place):
    language_models.bert(place / "bert", "BertForSequenceClassification")
    done = shiftproof(
        *("audit", "--model", "bert", "--data", "target.csv", "--images", 110, "--severities", "5"),
        *("--text-column", "review", "--label-column", "sentiment", "--shifts", "typos,spacing", "--out", "bert-audit"),
        cwd=place,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    assert "110 texts" in done.stdout
    assert (place / "bert-audit/report.html").is_file()
    numbers = json.loads((place / "bert-audit/results.json").read_text())["numbers"]
    assert {"clean_accuracy", "accuracy.typos", "ece.typos", "label_free_error"} <= set(numbers)


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (b"review,sentiment\n,good\n", (), "A text is empty"),
        (b"review,sentiment\ncaf\xe9,good\n", (), "not UTF-8"),
        (b"review,sentiment\nfine,good\n", ("--label-column", "stars"), "no column 'stars'"),
    ],
)
def test_bad_tables_end_with_one_paragraph(place, content, options, said):
    (place / "bad.csv").write_bytes(content)
    done = shiftproof("audit", "--model", "net", "--data", "bad.csv", "--out", "bad", *options, cwd=place)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_class_names_are_matched_or_refused(place, tmp_path):
    rows = reviews(40, seed=3)
    loose = [(text, label.upper()) for text, label in rows]
    made = audit(str(place / "net"), write(tmp_path / "a.csv", loose), out=tmp_path / "out", sections=["clean"])
    assert made.numbers["clean_accuracy"] > 0.9
    other = [(text, {"good": "POS", "bad": "NEG"}[label]) for text, label in rows]
    with pytest.raises(DataError, match="not those of the model"):
        audit(str(place / "net"), write(tmp_path / "b.csv", other), out=tmp_path / "other", sections=["clean"])
    listed = DataSpec(tmp_path / "b.csv", classes=["NEG", "POS"])
    made = audit(str(place / "net"), listed, out=tmp_path / "listed", sections=["clean"])
    assert made.numbers["clean_accuracy"] > 0.9
