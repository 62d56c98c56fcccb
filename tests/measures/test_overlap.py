"""Overlap of label maps against plain loops, torchmetrics where it is installed, and simulated coverage."""

import numpy as np
import pytest
import torch

from shiftproof.measures.overlap import MIN_CLASS_IMAGES, Overlap, count_overlap, unpack

IGNORE = 255


def maps(images=6, classes=4, seed=0, side=9):
    """Return labels, some of them ignored, and predictions that often agree; the last class is in neither."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes - 1, (images, side, side), generator=draw)
    other = torch.randint(classes - 1, labels.shape, generator=draw)
    predicted = torch.where(torch.rand(labels.shape, generator=draw) < 0.6, labels, other)
    labels[torch.rand(labels.shape, generator=draw) < 0.1] = IGNORE
    return labels.to(torch.uint8), predicted


def plain_overlaps(labels, predicted, classes):
    """Return intersection over union by class, pixel by pixel."""
    inside, union = [0] * classes, [0] * classes
    for label, guess in zip(labels.flatten().tolist(), predicted.flatten().tolist(), strict=True):
        if label == IGNORE:
            continue
        if label == guess:
            inside[label] += 1
            union[label] += 1
        else:
            union[label] += 1
            union[guess] += 1
    return [one / all_of if all_of else float("nan") for one, all_of in zip(inside, union, strict=True)]


def test_overlap_is_that_of_a_plain_loop():
    labels, predicted = maps()
    found = Overlap(count_overlap(labels, predicted, 4, IGNORE))
    expected = plain_overlaps(labels, predicted, 4)
    assert found.by_class.tolist() == pytest.approx(expected, nan_ok=True)
    assert np.isnan(found.by_class[3])
    assert found.classes == 3
    assert found.value == pytest.approx(np.mean(expected[:3]))
    counted = labels != IGNORE
    assert found.pixel_accuracy == pytest.approx(float((labels == predicted)[counted].double().mean()))


def test_a_class_that_is_only_predicted_counts_by_the_rule_of_tables_alone():
    labels, predicted = torch.zeros(1, 2, 2, dtype=torch.uint8), torch.tensor([[[0, 0], [0, 1]]])
    found = Overlap(count_overlap(labels, predicted, 2, IGNORE))
    assert (found.value, found.anything) == (0.75, 0.375)
    assert Overlap(found.counts, np.array([True, True])).value == 0.375  # present in the clean labels


def test_overlap_is_torchmetrics():
    metrics = pytest.importorskip("torchmetrics.classification")
    labels, predicted = maps(classes=4)
    metric = metrics.MulticlassJaccardIndex(num_classes=4, average=None, ignore_index=IGNORE)
    theirs = metric(predicted, labels.long()).double().numpy()
    found = Overlap(count_overlap(labels, predicted, 4, IGNORE))
    np.testing.assert_allclose(found.by_class[found.counted], theirs[found.counted], atol=1e-6)


def test_counts_do_not_depend_on_batches_and_survive_packing():
    labels, predicted = maps()
    whole = count_overlap(labels, predicted, 4, IGNORE)
    parts = [count_overlap(labels[rows], predicted[rows], 4, IGNORE) for rows in (slice(0, 1), slice(1, 6))]
    assert (np.concatenate(parts) == whole).all()
    assert (unpack(Overlap(whole).pack(), 4) == whole).all()


def test_what_images_add_has_the_mean_itself():
    labels, predicted = maps(images=40)
    found = Overlap(count_overlap(labels, predicted, 4, IGNORE))
    assert found.influence().mean() == pytest.approx(found.value)
    spread = np.std(found.influence()) / np.sqrt(found.images)
    interval = found.interval()
    assert interval is not None
    low, high = interval
    assert (high - low) / 2 == pytest.approx(1.96 * spread, rel=0.15)


def test_few_images_have_no_interval():
    labels, predicted = maps(images=9)
    assert Overlap(count_overlap(labels, predicted, 4, IGNORE)).interval() is None
    labels, predicted = maps(images=MIN_CLASS_IMAGES)
    labels[1:][labels[1:] == 2] = 0
    found = Overlap(count_overlap(labels, predicted, 4, IGNORE))
    assert found.class_interval(0) is not None
    assert found.class_interval(2) is None


def test_intervals_hold_over_images_drawn_again():
    """Images with accuracies of their own are drawn 400 times: 95% intervals hold about as often."""
    rng = np.random.default_rng(1)
    quality = rng.beta(6, 2, 20_000)

    def counts(rows):
        size = rng.integers(50, 400, (len(rows), 3))
        right = rng.binomial(size, quality[rows][:, None])
        wrong = size - right
        predicted = right + np.roll(wrong, 1, axis=1)
        return np.stack([right, predicted, size], axis=1)

    truth = Overlap(counts(np.arange(20_000))).value
    held = 0
    for _ in range(400):
        interval = Overlap(counts(rng.integers(0, 20_000, 60))).interval()
        assert interval is not None
        held += interval.low <= truth <= interval.high
    assert held >= 368, held  # 380 are expected, with a standard deviation of 4.4
