"""Labels and outputs are matched by class name; what does not match is refused."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from shiftproof.data import Dataset, load_data, match, matched
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import BlackBox, class_names, imagenet, label_numbers, load_model
from shiftproof.models.class_names import CIFAR10, with_class_names
from shiftproof.models.precision import reduced

ALPHABET = sorted(map(str, range(12)))
"""Numbers in the order of the alphabet: 0, 1, 10, 11, 2, ..."""


def folder(root: Path, *names: str) -> Path:
    """Write a class folder of one image for each name; an image's grey level is its place in the arguments."""
    for place, name in enumerate(names):
        (root / name).mkdir(parents=True)
        Image.fromarray(np.full((4, 4, 3), place % 256, np.uint8)).save(root / name / "0.png")
    return root


def labels(data: Dataset) -> dict[str, int]:
    """Return the number of every class that occurs."""
    assert data.labels is not None
    return {data.classes[label]: label for label in data.labels.tolist()}


class TestNames:
    def test_a_subset_gets_the_indices_of_its_names(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "cat", "dog", "ship")), CIFAR10, 10)
        assert labels(found) == {"cat": 3, "dog": 5, "ship": 8}
        assert "3 of the model's 10 classes" in " ".join(found.notes)
        assert match(found, CIFAR10, 10) is found  # once is enough

    def test_all_of_them_need_no_note(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, *CIFAR10)), CIFAR10, 10)
        assert found.labels is not None
        assert found.labels.tolist() == list(range(10))
        assert found.notes == ()

    def test_the_model_may_have_any_order(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "a", "b", "c")), ["c", "a", "b"], 3)
        assert labels(found) == {"a": 1, "b": 2, "c": 0}

    def test_case_and_separators_are_told(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "Air-Plane", "SHIP")), CIFAR10, 10)
        assert labels(found) == {"Air-Plane": 0, "SHIP": 8}
        assert "Air-Plane is airplane" in " ".join(found.notes)

    @pytest.mark.parametrize("form", ["NFC", "NFD"])
    def test_letters_may_be_written_as_several_characters(self, form: Any, tmp_path: Path) -> None:
        """As the folders of a Mac are: `é` is an e and an accent."""
        own = [unicodedata.normalize("NFC", name) for name in ("thé", "résumé", "Äpfel")]
        data = load_data(folder(tmp_path, *(unicodedata.normalize(form, name) for name in own)))
        found = {unicodedata.normalize("NFC", name): place for name, place in labels(match(data, own, 3)).items()}
        assert found == {name: place for place, name in enumerate(own)}

    @pytest.mark.parametrize(("name", "other"), [("re\u0301sume\u0301", "resume"), ("\u0915\u0940", "\u0915\u093f")])
    def test_marks_on_letters_are_not_punctuation(self, name: str, other: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="not those of the model"):
            match(load_data(folder(tmp_path, name, "dog")), [other, "dog"], 2)

    def test_an_exact_name_goes_before_a_similar_one(self, tmp_path: Path) -> None:
        assert labels(match(load_data(folder(tmp_path, "a b", "ab")), ["ab", "a b"], 2)) == {"a b": 1, "ab": 0}

    def test_a_class_folder_without_images_matters_to_nobody(self, tmp_path: Path) -> None:
        (folder(tmp_path, "cat", "dog") / "unicorn").mkdir()
        assert labels(match(load_data(tmp_path), CIFAR10, 10)) == {"cat": 3, "dog": 5}

    @pytest.mark.parametrize("names", [("cat", "unicorn"), ("POS", "NEG"), tuple("abcdefghij")])
    def test_other_names_are_refused_with_both_lists(self, names: tuple[str, ...], tmp_path: Path) -> None:
        with pytest.raises(DataError, match="not those of the model") as caught:
            match(load_data(folder(tmp_path, *names)), CIFAR10, 10)
        assert "airplane, automobile" in caught.value.facts["expected"]
        assert sorted(names)[-1] in caught.value.facts["got"]
        assert "--classes" in caught.value.facts["fix"]

    def test_a_name_of_two_outputs_is_refused(self, tmp_path: Path) -> None:
        data = load_data(folder(tmp_path, "crane", "tench"))
        with pytest.raises(DataError, match="several classes named 'crane'"):
            match(data, ["crane", "tench", "crane"], 3)

    def test_two_names_of_one_output_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="one output"):
            match(load_data(folder(tmp_path, "Cat", "cat")), CIFAR10, 10)

    def test_texts_are_matched_too(self) -> None:
        data = load_data((["good", "bad"], ["positive", "negative"]))
        assert labels(match(data, ["positive", "negative"], 2)) == {"positive": 0, "negative": 1}
        with pytest.raises(DataError, match="not those of the model"):
            match(load_data((["good", "bad"], ["POS", "NEG"])), ["negative", "positive"], 2)


class TestWithoutNames:
    def test_as_many_classes_as_outputs_stand_in_the_alphabet_and_a_note_says_so(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "b", "a")), None, 2)
        assert labels(found) == {"a": 0, "b": 1}
        assert "order of the alphabet" in " ".join(found.notes)

    @pytest.mark.parametrize("names", [("cat", "dog"), tuple("abcd")])
    def test_any_other_number_is_refused(self, names: tuple[str, ...], tmp_path: Path) -> None:
        with pytest.raises(DataError, match="do not fit") as caught:
            match(load_data(folder(tmp_path, *names)), None, 3)
        assert names[0] in caught.value.facts["got"]

    def test_folders_without_images_are_named_where_they_make_one_class_too_many(self, tmp_path: Path) -> None:
        (folder(tmp_path, "cat", "dog", "ship") / "masks").mkdir()
        with pytest.raises(DataError, match="as many as the model has outputs") as caught:
            match(load_data(tmp_path), None, 3)
        assert caught.value.facts["got"] == "4 class names: cat, dog, masks, ship; 1 of them without images: masks"

    def test_names_of_another_number_of_outputs_are_none(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "a", "b")), CIFAR10, 2)  # a body trained on ten, a head of two
        assert "names 10 classes and has 2 outputs" in " ".join(found.notes)
        assert "does not say" not in " ".join(found.notes)
        with pytest.raises(DataError, match="not as many as the 10 that it names"):
            match(load_data(folder(tmp_path / "more", "a", "b")), CIFAR10, 3)
        assert labels(found) == {"a": 0, "b": 1}

    def test_the_numbers_of_a_data_set_of_its_own_stay(self) -> None:
        demo = load_data("demo")
        assert match(demo, None, 10).notes == ()
        with pytest.raises(DataError, match="do not fit"):
            match(demo, None, 1000)


class TestImageNet:
    def test_all_wordnet_ids_are_its_outputs_whatever_the_model_calls_them(self, tmp_path: Path) -> None:
        data = load_data(folder(tmp_path, *imagenet.wordnet_ids()))
        for names in (None, [f"word {number}" for number in range(1000)]):
            found = match(data, names, 1000)
            assert found.labels is not None
            assert found.labels.tolist() == list(range(1000))
            assert "WordNet" in " ".join(found.notes)

    @pytest.mark.parametrize(
        "names",
        [
            ("n01440764", "n02110341", "n03126707"),
            ("tench", "dalmatian", "n03126707"),
            ("Tinca tinca", "coach_dog", "n03126707"),
            ("tench, Tinca tinca", "Carriage Dog", "n03126707"),
        ],
    )
    @pytest.mark.parametrize("known", ["none", "English", "ids", "entries"])
    def test_ids_and_synonyms_of_some_classes(self, names: tuple[str, ...], known: str, tmp_path: Path) -> None:
        entries = list(imagenet._entries().values())  # as `id2label` has them, two of them "crane"
        model = {"none": None, "English": imagenet.names(), "ids": imagenet.wordnet_ids(), "entries": entries}[known]
        found = match(load_data(folder(tmp_path, *names)), model, 1000)
        assert list(labels(found).values()) == [labels(found)[name] for name in sorted(names)]
        assert {labels(found)[name] for name in names} == {0, 251, 517}
        assert "3 of the model's 1,000 classes" in " ".join(found.notes)

    def test_english_names_with_another_model_of_the_same_words(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "n02123045", "n02085620")), ["Chihuahua", "fox", "tabby cat"], 3)
        assert labels(found) == {"n02085620": 0, "n02123045": 2}
        assert "n02085620 is Chihuahua" in " ".join(found.notes)

    def test_the_name_of_two_classes_is_refused_unless_the_other_is_there(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="several classes named 'crane'"):
            match(load_data(folder(tmp_path / "one", "crane", "tench")), None, 1000)
        found = match(load_data(folder(tmp_path / "two", "crane", "crane bird")), None, 1000)
        assert labels(found) == {"crane": 517, "crane bird": 134}

    @pytest.mark.parametrize("names", [("tench", "unicorn"), ("n00000001", "n01440764"), ("cat", "dog")])
    def test_other_names_are_refused(self, names: tuple[str, ...], tmp_path: Path) -> None:
        with pytest.raises(DataError, match="do not fit"):
            match(load_data(folder(tmp_path / "a", *names)), None, 1000)
        with pytest.raises(DataError, match="not those of the model"):
            match(load_data(folder(tmp_path / "b", *names)), imagenet.names(), 1000)

    def test_its_names_are_unique_and_mean_themselves(self) -> None:
        for names in (imagenet.names(), imagenet.wordnet_ids()):
            assert len(set(names)) == 1000
            assert imagenet.meanings(names) == [(place,) for place in range(1000)]
            assert imagenet.in_order(names)
        assert not imagenet.in_order(imagenet.names()[::-1])


class TestLabelsOfOutputs:
    def test_labels_are_those_that_outputs_stand_for(self) -> None:
        box = BlackBox(lambda images: images.mean((2, 3)))
        box.label_numbers = (3, 5, 8)  # type: ignore[attr-defined]
        found = matched(load_data((torch.rand(3, 3, 4, 4), [8, 3, 5])), box)
        assert found.labels is not None
        assert found.labels.tolist() == [2, 0, 1]
        assert found.classes == ("3", "5", "8")
        with pytest.raises(DataError, match="do not fit") as caught:
            matched(load_data((torch.rand(2, 3, 4, 4), [3, 4])), box)
        assert caught.value.facts["got"] == "4"


class TestIndices:
    def test_whole_numbers_are_indices(self, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "3", "5", "8")), CIFAR10, 10)
        assert found.labels is not None
        assert found.labels.tolist() == [3, 5, 8]

    def test_numbers_of_arrays_are_indices(self) -> None:
        for names in (CIFAR10, ALPHABET):
            found = match(load_data((torch.rand(2, 3, 4, 4), [3, 5])), names, len(names))
            assert found.labels is not None
            assert found.labels.tolist() == [3, 5]

    @pytest.mark.parametrize("how", ["id2label", "classes"])
    def test_numbers_are_names_where_the_model_has_them_in_another_order(self, how: str, tmp_path: Path) -> None:
        """As a network trained on folders named 0 to 11 has, by way of the alphabet."""
        network: Any = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
        if how == "id2label":
            network.config = SimpleNamespace(id2label=dict(enumerate(ALPHABET)))
        model = load_model(network, classes=ALPHABET if how == "classes" else None)
        found = matched(load_data(folder(tmp_path, "2", "10", "11")), model)
        assert labels(found) == {"10": 2, "11": 3, "2": 4}
        assert "not the place of an output" in " ".join(found.notes)
        assert "output indices" not in " ".join(found.notes)

    def test_a_model_is_restricted_to_numbers_as_it_names_them(self, tmp_path: Path) -> None:
        data = load_data(folder(tmp_path, "2", "10"))
        named = load_model(nn.Sequential(nn.Flatten(), nn.Linear(48, 12)), classes=ALPHABET, only_classes=["10", "2"])
        assert label_numbers(named) == (2, 4)
        assert labels(matched(data, named)) == {"10": 0, "2": 1}
        unnamed = load_model(nn.Sequential(nn.Flatten(), nn.Linear(48, 12)), only_classes=["10", "2"])
        assert label_numbers(unnamed) == (2, 10)
        assert labels(matched(data, unnamed)) == {"2": 0, "10": 1}

    def test_leading_zeros_do_not_matter(self, tmp_path: Path) -> None:
        assert labels(match(load_data(folder(tmp_path, "01", "03")), ["01", "02", "03"], 3)) == {"1": 0, "3": 2}

    def test_names_of_a_data_set_of_its_own_too(self) -> None:
        data = load_data((list(torch.rand(12, 3, 4, 4)), [str(number) for number in range(12)]))
        data.numbering = "own"  # as `ClassLabel` has them
        assert labels(match(data, ALPHABET, 12)) == {name: place for place, name in enumerate(ALPHABET)}

    @pytest.mark.parametrize("names", [None, ["LABEL_0", "LABEL_1", "LABEL_2"], ["0", "1", "2"], ["5", "6", "7"]])
    def test_other_names_leave_them_indices(self, names: list[str] | None, tmp_path: Path) -> None:
        found = match(load_data(folder(tmp_path, "0", "2")), names, 3)
        assert labels(found) == {"0": 0, "2": 2}
        assert "output indices" in " ".join(found.notes)


class TestPlaceholders:
    def test_names_that_count_are_used_where_the_data_has_them(self, tmp_path: Path) -> None:
        names = ["class_2", "class_1", "class_3"]
        data = load_data(folder(tmp_path, "class_1", "class_2"))
        assert labels(match(data, names, 3)) == {"class_1": 1, "class_2": 0}
        with pytest.raises(DataError, match="do not fit"):
            match(load_data(folder(tmp_path / "other", "cat", "dog")), names, 3)

    def test_those_that_a_user_listed_are_names(self, tmp_path: Path) -> None:
        model = load_model(lambda images: images.mean((2, 3)), classes=["class_2", "class_1", "class_3"])
        assert labels(matched(load_data(folder(tmp_path, "class_1", "class_2", "class_3")), model)) == {
            **{"class_1": 1, "class_2": 0, "class_3": 2}
        }
        with pytest.raises(DataError, match="not those of the model"):
            matched(load_data(folder(tmp_path / "other", "cat", "dog", "fox")), model)


class TestListedForTheModel:
    def test_names_come_from_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("dog\n cat \n\nfox\n")
        (tmp_path / "b.json").write_text('{"0": "dog", "1": "cat", "2": "fox"}')
        (tmp_path / "c.json").write_text('["dog", "cat", "fox"]')
        data = load_data(folder(tmp_path / "data", "cat", "fox"))
        for name in ("a.txt", "b.json", "c.json"):
            model = load_model(lambda images: images.mean((2, 3)), classes=tmp_path / name)
            assert labels(matched(data, model)) == {"cat": 1, "fox": 2}

    def test_another_number_than_outputs_is_refused(self, tmp_path: Path) -> None:
        data = load_data(folder(tmp_path, "cat", "fox"))
        with pytest.raises(DataError, match="does not match the model's outputs"):
            matched(data, load_model(lambda images: images.mean((2, 3)), classes=["cat", "fox"]))

    @pytest.mark.parametrize("text", ["cat\ncat\n", "", '{"1": "cat"}', "\xff"])
    def test_what_is_no_list_is_refused(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / ("a.json" if text.startswith("{") else "a.txt")
        path.write_bytes(text.encode("latin1"))
        with pytest.raises(ConfigurationError, match="class name"):
            load_model(lambda images: images.mean((2, 3)), classes=path)


class TestGiven:
    def test_a_given_order_stands(self, tmp_path: Path) -> None:
        (tmp_path / "names.txt").write_text("POS\nNEG\n")
        data = load_data(folder(tmp_path / "data", "NEG", "POS"), classes=tmp_path / "names.txt")
        assert labels(match(data, ["positive", "negative"], 2)) == {"POS": 0, "NEG": 1}

    def test_a_list_of_another_length_is_refused(self, tmp_path: Path) -> None:
        data = load_data(folder(tmp_path, "cat", "dog"), classes=["cat", "dog"])
        with pytest.raises(DataError, match="list of classes does not match the model's outputs"):
            match(data, None, 10)

    def test_the_models_own_names_in_another_order_are_refused(self, tmp_path: Path) -> None:
        data = load_data(folder(tmp_path, "cat", "dog"), classes=CIFAR10[::-1])
        with pytest.raises(DataError, match="another order"):
            match(data, CIFAR10, 10)

    def test_numbers_named_in_another_order_are_not_to_be_left_to_their_numbers(self) -> None:
        images, numbers = np.zeros((2, 4, 4, 3), np.uint8), np.array([0, 1])
        with pytest.raises(DataError, match="give names in their place"):
            match(load_data((images, numbers), classes=["zero", "one"]), ["one", "zero"], 2)
        named = load_data((list(images), [["zero", "one"][number] for number in numbers]))
        assert labels(match(named, ["one", "zero"], 2)) == {"zero": 1, "one": 0}

    def test_a_set_that_is_made_takes_no_list(self) -> None:
        with pytest.raises(ConfigurationError, match="classes="):
            load_data(load_data("demo"), classes=["a"])


class TestModels:
    def test_the_demo_and_named_networks_know_their_classes(self) -> None:
        demo = load_model("demo")
        assert isinstance(demo, nn.Module)
        assert class_names(demo) == CIFAR10 == load_data("demo").classes
        assert class_names(load_model("cifar10-gaussian")) == CIFAR10
        assert class_names(reduced(demo)) == CIFAR10
        assert class_names(nn.Sequential(nn.Identity(), demo)) == CIFAR10
        assert class_names(BlackBox(lambda images: images.mean((2, 3)))) is None

    def test_counted_names_are_none(self) -> None:
        for names in (["LABEL_0", "LABEL_1"], ["0", "1"], ["class 1", "class 2"], []):
            assert class_names(with_class_names(nn.Identity(), names)) is None

    def test_names_are_no_part_of_a_models_identity(self) -> None:
        from shiftproof.models import fingerprint

        model = load_model("demo")
        before = fingerprint(model)
        assert fingerprint(with_class_names(model, ["a", "b"])) == before

    def test_a_black_box_with_a_normalisation_keeps_them(self) -> None:
        box = with_class_names(BlackBox(lambda images: images.mean((2, 3))), ["r", "g", "b"])
        assert class_names(load_model(box, mean=[0.5] * 3, std=[0.5] * 3)) == ("r", "g", "b")

    def test_a_set_is_matched_to_a_model(self, tmp_path: Path) -> None:
        root = folder(tmp_path, "cat", "ship")
        (root / "cat" / "0.png").write_bytes(b"no image")
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(root / "cat" / "1.png")
        data = load_data(root, size=32, on_bad_file="skip")
        assert labels(matched(data, load_model("demo"))) == {"cat": 3, "ship": 8}


@pytest.mark.parametrize("names", [["0", "1", "10", "2"], ["1", "2", "3", "4"]])
def test_numerals_beyond_the_outputs_name_the_order_of_torchvision(names: list[str]) -> None:
    data = load_data((["a", "b", "c", "d"], names))
    with pytest.raises(DataError, match="--classes sorted"):
        match(data, None, 4)
    turned = match(load_data((["a", "b", "c", "d"], names), classes="sorted"), None, 4)
    assert turned.labels is not None
    assert turned.labels.tolist() == [0, 1, 2, 3]
