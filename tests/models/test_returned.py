"""Whatever a model returns, its logits are found; probabilities become logits with the same softmax."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from shiftproof.errors import ModelError
from shiftproof.models import BlackBox, channels_last, class_names, fingerprint, label_numbers, load_model, logits
from shiftproof.models.imagenet import wordnet_ids
from shiftproof.models.returned import Logits, answering, gives_probabilities
from shiftproof.subjects import Subject

IMAGES = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
LABELS = [0, 1, 2, 0]


class Returns(nn.Module):
    """A network that returns its scores in some form."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.form = form

    def forward(self, images: Tensor) -> Any:
        return self.form(self.layer(images.mean((2, 3))))


def test_a_function_with_a_normalisation_in_front_returns_several_values():
    def both(images: Tensor) -> dict[str, Tensor]:
        return {"features": images, "scores": images.mean((2, 3))}

    normalised = load_model(both, output="scores", mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    torch.testing.assert_close(logits(normalised, IMAGES), 2 * IMAGES.mean((2, 3)) - 1)
    read = load_model(load_model(both, output="scores"), mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    torch.testing.assert_close(logits(read, IMAGES), 2 * IMAGES.mean((2, 3)) - 1)


class Answer(dict[str, Tensor]):
    """A dictionary whose entries are attributes too, as `ModelOutput` of transformers is."""

    __getattr__ = dict.__getitem__


FORMS: dict[str, Any] = {
    "tensor": lambda scores: scores,
    "tuple": lambda scores: (scores, "features"),
    "list": lambda scores: [scores, scores + 1],
    "logits": lambda scores: {"features": scores + 1, "logits": scores},
    "out": lambda scores: {"aux": scores + 1, "out": scores},
    "one entry": lambda scores: {"y": scores},
    "ModelOutput": lambda scores: Answer(loss=scores.sum(), logits=scores),
    "attribute": lambda scores: SimpleNamespace(logits=scores),
    "nested": lambda scores: ({"logits": scores}, None),
}
KEYS: dict[str, tuple[Any, Any]] = {
    "key": (lambda scores: {"features": scores + 1, "head": scores}, "head"),
    "number": (lambda scores: (scores + 1, scores), 1),
    "number in text": (lambda scores: (scores + 1, scores), "1"),
    "attribute": (lambda scores: SimpleNamespace(logits=scores + 1, head=scores), "head"),
}


def plain(network: Returns) -> Tensor:
    with torch.no_grad():
        scores: Tensor = network.layer(IMAGES.mean((2, 3)))
    return scores


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_found(form: str) -> None:
    network = Returns(FORMS[form])
    for model in (network, BlackBox(network)):
        torch.testing.assert_close(logits(model, IMAGES), plain(network))
        subject = Subject.of(model, (IMAGES, LABELS))
        torch.testing.assert_close(subject.model(IMAGES).detach(), plain(network))  # a tensor, for whoever adapts it
        assert isinstance(subject.model, type(load_model(model)) if form == "tensor" else (nn.Module, BlackBox))
    assert (Subject.of(network, (IMAGES, LABELS)).model is network) == (form == "tensor")


@pytest.mark.parametrize("form", KEYS)
def test_scores_are_where_the_user_says(form: str) -> None:
    made, key = KEYS[form]
    network = Returns(made)
    for model in (network, BlackBox(network)):
        told = load_model(model, output=key)
        torch.testing.assert_close(logits(told, IMAGES), plain(network))
        torch.testing.assert_close(told(IMAGES).detach(), plain(network))
        assert fingerprint(told) != fingerprint(model)
    with pytest.raises(ModelError, match="returns nothing named"):
        logits(load_model(network, output="9"), IMAGES)


def test_several_things_without_a_name_are_refused() -> None:
    with pytest.raises(ModelError, match="several values") as caught:
        logits(Returns(KEYS["key"][0]), IMAGES)
    assert caught.value.facts["got"] == "features, head"
    assert "--output KEY" in caught.value.facts["fix"]


def test_probabilities_become_logits() -> None:
    network = Returns(lambda scores: scores.softmax(1))
    expected = plain(network).softmax(1)
    for model in (network, BlackBox(network)):
        said, found = load_model(model, probabilities=True), answering(load_model(model), IMAGES)
        for converted in (said, found):
            assert gives_probabilities(converted)
            torch.testing.assert_close(logits(converted, IMAGES).softmax(1), expected)
            assert isinstance(converted, BlackBox) == isinstance(model, BlackBox)
    assert not gives_probabilities(answering(Returns(FORMS["tensor"]), IMAGES))
    zero = Logits(lambda images: torch.tensor([[1.0, 0.0]]), probabilities=True)
    assert zero(IMAGES).isfinite().all()


def test_what_fails_is_left_to_who_measures() -> None:
    def fails(images: Tensor) -> Tensor:
        raise SystemExit(0)

    box = BlackBox(fails)
    assert answering(box, IMAGES) is box


class TestOnlyClasses:
    NAMES = ("cat", "dog", "fox")

    def model(self) -> nn.Module:
        network = Returns(FORMS["tensor"])
        network.class_names = self.NAMES  # type: ignore[assignment]
        return network

    @pytest.mark.parametrize("only", [["fox", "cat"], [2, 0], ["0", "2"], "file", "folder"])
    def test_other_outputs_are_left_out(self, only: Any, tmp_path: Path) -> None:
        if only == "file":
            (tmp_path / "only.txt").write_text("Cat\nfox\n")
            only = tmp_path / "only.txt"
        elif only == "folder":
            for name in ("fox", "cat", ".hidden", "__MACOSX"):
                (tmp_path / name).mkdir()
            only = str(tmp_path)
        whole = self.model()
        for model in (whole, BlackBox(whole)):
            held = load_model(model, only_classes=only)
            torch.testing.assert_close(logits(held, IMAGES), logits(whole, IMAGES)[:, [0, 2]])
            assert class_names(held) == ("cat", "fox")
            assert label_numbers(held) == (0, 2)
            subject = Subject.of(held, (IMAGES, [0, 2, 2, 0]))
            assert subject.labelled_data.labels is not None
            assert subject.labelled_data.labels.tolist() == [0, 1, 1, 0]

    @pytest.mark.parametrize("only", [["cat"], ["cat", "unicorn"], ["0", "7"]])
    def test_others_are_refused(self, only: list[str]) -> None:
        with pytest.raises(ModelError, match="cannot be restricted"):
            logits(load_model(self.model(), only_classes=only), IMAGES)

    def test_of_imagenet_by_wordnet_ids(self) -> None:
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, 1000))
        held = load_model(network, only_classes=[wordnet_ids()[7], wordnet_ids()[400]])
        torch.testing.assert_close(logits(held, IMAGES), logits(network, IMAGES)[:, [7, 400]])


class Estimator:
    """A classifier as scikit-learn has them."""

    def __init__(self, classes: Any, answer: str, columns: int | None = None) -> None:
        self.classes_ = np.array(classes)
        columns = len(classes) if columns is None else columns
        self.weights = np.random.default_rng(0).normal(size=(192, columns))
        setattr(self, answer, getattr(self, f"_{answer}"))

    def _decision_function(self, rows: Any) -> Any:
        return (rows @ self.weights).squeeze()

    def _predict_proba(self, rows: Any) -> Any:
        scores = np.exp(rows @ self.weights / 50)
        return scores / scores.sum(1, keepdims=True)


class TestArrays:
    def test_a_function_of_nhwc_arrays(self) -> None:
        def predict(images: Any) -> Any:
            assert isinstance(images, np.ndarray)
            assert images.shape == (4, 8, 8, 3)
            assert images.dtype == np.float32
            return images.mean(axis=(1, 2))

        torch.testing.assert_close(logits(channels_last(predict), IMAGES), IMAGES.mean((2, 3)))
        assert channels_last(predict).name == "predict"

    @pytest.mark.parametrize("answer", ["predict_proba", "decision_function"])
    def test_a_classifier_of_rows(self, answer: str) -> None:
        estimator = Estimator(["a", "b", "c"], answer)
        model = load_model(estimator)  # type: ignore[arg-type]
        rows = IMAGES.permute(0, 2, 3, 1).flatten(1).numpy()
        expected = torch.tensor(getattr(estimator, answer)(rows)).float()
        found = logits(model, IMAGES)
        torch.testing.assert_close(found.softmax(1) if answer == "predict_proba" else found, expected)
        assert class_names(model) == ("a", "b", "c")
        assert isinstance(model, BlackBox)
        assert model.name == "Estimator"
        assert fingerprint(model) != fingerprint(load_model(Estimator(["a", "b", "c", "d"], answer)))  # type: ignore[arg-type]

    def test_a_classifier_of_texts(self) -> None:
        class Pipeline:
            classes_ = np.array(["bad", "good"])

            def predict_proba(self, texts: list[str]) -> Any:
                return np.array([[0.9, 0.1] if "dull" in text else [0.2, 0.8] for text in texts])

        model = load_model(Pipeline())  # type: ignore[arg-type]
        found = logits(model, ["a dull film", "a fine film"])
        torch.testing.assert_close(found.softmax(1), torch.tensor([[0.9, 0.1], [0.2, 0.8]]))
        assert class_names(model) == ("bad", "good")

    def test_labels_with_gaps_are_kept(self) -> None:
        assert label_numbers(load_model(Estimator([3, 5, 8], "predict_proba"))) == (3, 5, 8)  # type: ignore[arg-type]
        assert label_numbers(load_model(Estimator([0, 1, 2], "predict_proba"))) is None  # type: ignore[arg-type]

    def test_two_classes_and_one_number(self) -> None:
        estimator = Estimator(["a", "b"], "decision_function", columns=1)
        found = logits(load_model(estimator), IMAGES)  # type: ignore[arg-type]
        assert found.shape == (4, 2)
        expected = estimator._decision_function(IMAGES.permute(0, 2, 3, 1).flatten(1).numpy())
        torch.testing.assert_close(found[:, 1] - found[:, 0], torch.tensor(expected).float())

    def test_one_against_one_is_refused(self) -> None:
        with pytest.raises(ModelError, match="another number of columns"):
            logits(load_model(Estimator(list("abcd"), "decision_function", columns=6)), IMAGES)  # type: ignore[arg-type]


class TestModulePaths:
    @pytest.fixture(autouse=True)
    def project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        import sys

        (tmp_path / "own_nets").mkdir()
        (tmp_path / "own_nets" / "__init__.py").write_text("")
        (tmp_path / "own_nets" / "body.py").write_text("from torch import nn\nlayer = nn.Linear(12, 3)\n")
        (tmp_path / "own_nets" / "made.py").write_text(
            "from torch import nn\nfrom .body import layer\n\n"
            "def build():\n    return nn.Sequential(nn.Flatten(), layer)\n"
        )
        (tmp_path / "broken_nets.py").write_text("raise ValueError('no weights here')\n")
        monkeypatch.chdir(tmp_path)
        for name in [name for name in sys.modules if name.startswith(("own_nets", "broken_nets"))]:
            monkeypatch.delitem(sys.modules, name)
        return tmp_path

    def test_a_module_of_this_folder_is_found(self) -> None:
        model = load_model("own_nets.made:build")
        assert logits(model, torch.rand(2, 3, 2, 2)).shape == (2, 3)

    def test_weights_of_a_file(self, project: Path) -> None:
        torch.save({"model.weight": torch.zeros(3, 12), "model.bias": torch.tensor([1.0, 2.0, 3.0])}, project / "w.pth")
        model = load_model("own_nets.made:build", weights=project / "w.pth")
        assert logits(model, torch.rand(1, 3, 2, 2)).tolist() == [[1.0, 2.0, 3.0]]

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ("own_nets.made:bild", "did you mean"),
            ("broken_nets:build", "no weights here"),
            ("no_nets.made:build", "There is no model"),
        ],
    )
    def test_what_is_wrong_is_told(self, spec: str, says: str) -> None:
        with pytest.raises(Exception, match=says):
            load_model(spec)
