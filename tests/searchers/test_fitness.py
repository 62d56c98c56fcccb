"""What is minimised: accuracies, overlaps and detections against hand counts, and black boxes of all kinds."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

from shiftproof.errors import ConfigurationError, DataError, ModelError
from shiftproof.searchers import Constraint, Evaluator, Service, make_space
from shiftproof.searchers.detection import DetectionRecall
from shiftproof.searchers.evaluator import UNHEARD, hold
from shiftproof.searchers.fitness import Classification, Detection, Segmentation, detected, make_fitness
from tests.searchers.models import Greenness, label_green, pictures


def all_images(data):
    return next(data.batches(len(data)))


def value(fitness, images, parts=1):
    """Add the counts of parts up, as an evaluation does."""
    counts = sum(
        fitness.tally(images[rows.start : rows.stop], rows)[0]
        for rows in (slice(r[0], r[-1] + 1) for r in np.array_split(np.arange(len(images)), parts))
    )
    return fitness.value(counts)


def test_accuracy_is_that_of_the_labels_whoever_answers():
    batch = all_images(pictures(40))
    labels = batch.labels.clone()
    labels[:10] = 1 - labels[:10]
    boxes: list[Any] = [Greenness(), Service(label_green, batch_size=7), Service(lambda x: np.eye(2)[label_green(x)])]
    for model in boxes:
        fitness = make_fitness("accuracy", model, labels, images=40)
        assert value(fitness, batch.inputs) == 0.75
        assert value(fitness, batch.inputs, parts=7) == 0.75
        assert fitness.tally(batch.inputs[:12], slice(0, 12))[1] == [False] * 10 + [True] * 2


class Threshold(nn.Module):
    """A segmenter of two classes by brightness."""

    def forward(self, images):
        bright = images.mean(1)
        return torch.stack([0.5 - bright, bright - 0.5], dim=1)


@given(
    arrays(np.uint8, (3, 9, 8), elements=st.integers(0, 3)),
    arrays(np.int64, (3, 9, 8), elements=st.integers(0, 3)),
    st.integers(1, 3),
)
def test_overlaps_are_those_of_pixel_sets(truth, predicted, parts):
    truth[0, 0, 0] = 2  # some pixel counts
    masks = torch.tensor(truth)
    images = torch.zeros(3, 3, 9, 8)
    images[:, 0] = torch.tensor(predicted) / 255
    service = Service(lambda array: array[..., 0])
    counted = truth != 3
    pixel = Segmentation(service, masks, "pixel_accuracy", ignore=3)
    assert value(pixel, images, parts) == pytest.approx((truth == predicted)[counted].mean())
    overlaps = []
    for label in range(3):
        union = ((truth == label) | (predicted == label)) & counted
        if union.any():
            overlaps.append(((truth == label) & (predicted == label) & counted).sum() / union.sum())
    mean = Segmentation(service, masks, "mean_iou", ignore=3)
    assert value(mean, images, parts) == pytest.approx(np.mean(overlaps))


def test_a_segmenting_network_is_read_by_its_largest_score():
    images = torch.rand(4, 3, 8, 8)
    masks = (images.mean(1) > 0.5).long()
    for name in ("pixel_accuracy", "mean_iou"):
        assert value(make_fitness(name, Threshold(), masks, images=4), images) == 1.0
        assert value(make_fitness(name, Threshold(), 1 - masks, images=4), images) == 0.0


def test_label_maps_of_another_size_are_refused():
    fitness = Segmentation(Service(lambda images: images[:, ::2, ::2, 0]), torch.zeros(2, 8, 8), "mean_iou")
    with pytest.raises(ModelError, match="label maps have the wrong shape"):
        fitness.tally(torch.zeros(2, 3, 8, 8), slice(0, 2))


FOUND = [
    (True, True),
    (0, False),
    (np.bool_(True), True),
    ([], False),
    (np.zeros((0, 4)), False),
    ([[1, 2, 3, 4]], True),
    (np.ones((2, 4)), True),
    ({"boxes": np.ones((2, 4)), "scores": np.array([0.2, 0.4])}, False),
    ({"boxes": np.ones((2, 4)), "scores": torch.tensor([0.2, 0.9])}, True),
    ({"boxes": np.ones((2, 4))}, True),
    ({"boxes": np.ones((0, 4))}, False),
    (None, False),
]


@pytest.mark.parametrize(("answer", "found"), FOUND)
def test_detections_come_in_many_forms(answer, found):
    assert detected(answer) is found


def test_detection_rate():
    fitness = Detection(Service(lambda images: [[1] if image.mean() > 100 else [] for image in images]))
    images = torch.cat([torch.ones(3, 3, 8, 8), torch.zeros(1, 3, 8, 8)])
    assert value(fitness, images, parts=2) == 0.75
    assert fitness.tally(images, slice(0, 4))[1] == [True, True, True, False]


def test_detection_recall_wants_the_place_and_the_class():
    box, other = [0.0, 0.0, 4.0, 4.0], [4.0, 4.0, 8.0, 8.0]
    targets = [{"boxes": [box, other], "labels": [1, 2]}] * 4 + [{"boxes": np.zeros((0, 4)), "labels": []}]
    said = [
        {"boxes": [box, other], "labels": [1, 2], "scores": [0.9, 0.8]},
        {"boxes": [box, box], "labels": [1, 1]},  # one object is found once
        {"boxes": torch.tensor([box, other]), "labels": torch.tensor([2, 1])},  # at the right places, of wrong classes
        {"boxes": [[0.0, 0.0, 4.0, 1.0], other], "labels": [1, 2], "scores": [0.9, 0.4]},  # too small, too unsure
        {"boxes": [box], "labels": [1]},
    ]
    fitness = DetectionRecall(Service(lambda images: said[: len(images)]), targets)
    counts, right = fitness.tally(torch.zeros(5, 3, 8, 8), slice(0, 5))
    assert counts.tolist() == [3, 8]
    assert right == [True, False, False, False, True]
    assert fitness.value(counts) == 3 / 8
    with pytest.raises(ModelError, match="boxes"):
        DetectionRecall(Service(lambda images: [1] * len(images)), targets).tally(torch.zeros(5, 3, 8, 8), slice(0, 5))


def test_any_function_of_the_images_and_their_labels():
    batch = all_images(pictures(10))
    one = make_fitness(lambda images, labels: (images.shape == (10, 12, 12, 3)) * 0.25, None, batch.labels, images=10)
    assert one.whole
    assert value(one, batch.inputs) == 0.25
    each = make_fitness(lambda images, labels: labels, None, batch.labels, images=10)
    assert value(each, batch.inputs, parts=3) == 0.5
    wrong = make_fitness(lambda images, labels: np.zeros((2, 2)), None, None, images=10)
    with pytest.raises(ConfigurationError, match="wrong shape"):
        wrong.tally(batch.inputs, slice(0, 10))


def test_fingerprints_change_with_what_decides_the_fitness():
    labels = torch.tensor([0, 1])
    masks = torch.zeros(2, 8, 8)
    made = [
        make_fitness("accuracy", Greenness(), labels, images=2),
        make_fitness("accuracy", Greenness(0.4), labels, images=2),
        make_fitness("accuracy", Greenness(), 1 - labels, images=2),
        make_fitness("accuracy", Service(label_green), labels, images=2),
        make_fitness("accuracy", Service(label_green, fingerprint="v2"), labels, images=2),
        make_fitness("mean_iou", Threshold(), masks, images=2),
        make_fitness("pixel_accuracy", Threshold(), masks, images=2),
        make_fitness("pixel_accuracy", Threshold(), masks, images=2, ignore=0),
        make_fitness("detection_rate", Service(label_green), None, images=2),
        make_fitness(lambda images, labels: 0.5, None, None, images=2),
    ]
    assert len({one.fingerprint for one in made}) == len(made)
    assert made[0].fingerprint == make_fitness("accuracy", Greenness(), labels, images=2).fingerprint


BAD = {
    "unknown": (("acuracy", Greenness(), None), ConfigurationError, "did you mean  accuracy"),
    "no labels": (("accuracy", Greenness(), None), DataError, "no labels"),
    "labels for masks": (("mean_iou", Greenness(), torch.zeros(2)), DataError, r"\[N, H, W\]"),
    "too few": (("accuracy", Greenness(), torch.zeros(1)), DataError, "for 2 images"),
    "no model": (("accuracy", None, torch.zeros(2)), ConfigurationError, "needs a model"),
}


@pytest.mark.parametrize(("given", "kind", "says"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_measured(given, kind, says):
    with pytest.raises(kind, match=says):
        make_fitness(*given, images=2)


def test_a_black_box_that_does_not_label_is_refused():
    fitness = make_fitness("accuracy", Service(lambda images: [0.5] * len(images)), torch.zeros(2), images=2)
    with pytest.raises(ModelError, match="does not answer with labels"):
        fitness.tally(torch.zeros(2, 3, 8, 8), slice(0, 2))


@pytest.mark.parametrize("similarity", [None, 0.8])
@pytest.mark.parametrize("batch_size", [4, 7, 64])
def test_tuples_that_share_batches_count_as_each_by_itself(similarity, batch_size):
    space, data = make_space("cifar"), pictures(20)
    fitness = make_fitness("accuracy", Greenness(), data.labels, images=20)
    evaluator = Evaluator(space, hold(data), fitness, Constraint(similarity), batch_size=batch_size)
    tasks = [evaluator.task(genes, *where) for genes, where in (((3, 40), (0, 9)), ((3, 8), (5, 20)), ((), (0, 1)))]
    found = evaluator.measure_all(tasks)
    assert found == [evaluator.measure(task) for task in tasks]
    assert np.array([row["counts"] for row in found])[:, 1].tolist() == [9, 15, 1]
    assert evaluator.measure_all([]) == []


@pytest.mark.parametrize(("on_cpu", "most"), [(True, 1), (False, UNHEARD + 1)])
def test_few_batches_wait_to_be_heard(on_cpu, most, monkeypatch):
    space, data = make_space("cifar"), pictures(20)
    unheard: set[int] = set()
    held: list[int] = []

    class Counting(Classification):
        def ask(self, images, rows):
            answer, place = super().ask(images, rows), len(held)
            unheard.add(place)
            held.append(len(unheard))

            def heard():
                unheard.remove(place)
                return answer()

            return heard

    assert data.labels is not None
    evaluator = Evaluator(space, hold(data), Counting(Greenness(), data.labels), batch_size=4)
    tasks = [evaluator.task((gene,), 0, 20) for gene in range(10)]
    expected = [evaluator.measure(task) for task in tasks]
    held.clear()
    monkeypatch.setattr(Evaluator, "on_cpu", on_cpu)
    monkeypatch.setattr("shiftproof.searchers.evaluator.MAX_TASK_IMAGES", 8)
    assert evaluator.measure_all(tasks) == expected
    assert (len(held), max(held)) == (50, most)
    assert not unheard
