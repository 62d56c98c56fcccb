"""Agreement on the line, on models that lie on one by construction."""

import numpy as np
import pytest

from shiftproof.errors import DataError
from shiftproof.estimators import agreement_on_the_line


def models(noise, seed, count=3000, shared=0.5):
    """Return logits of six models, less and less noisy, that share some of their noise, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    common = rng.normal(size=(count, 4)) * shared
    made = {f"m{k}": 2 * np.eye(4)[labels] + noise * common + noise * (1.6 - 0.2 * k) * rng.normal(size=(count, 4))
            for k in range(6)}  # fmt: skip
    return made, labels


def accuracies(logits, labels):
    return {name: float((one.argmax(1) == labels).mean()) for name, one in logits.items()}


def test_accuracies_under_shift_are_found_without_labels():
    (source, labels), (target, truth) = models(1.0, 0), models(1.5, 1)
    found = agreement_on_the_line(source, labels, target)
    right = accuracies(target, truth)
    for name, one in found.items():
        assert one.accuracy == pytest.approx(right[name], abs=0.06)
        assert one.trusted
    before = accuracies(source, labels)
    assert all(before[name] - right[name] > 0.09 for name in found)  # which source accuracies would have missed


def test_unshifted_models_keep_their_accuracies():
    source, labels = models(1.0, 2)
    for name, one in agreement_on_the_line(source, labels, source).items():
        assert one.low == pytest.approx(accuracies(source, labels)[name], abs=0.02)


def test_models_that_lie_on_no_line_say_so():
    source, labels = models(1.0, 3)
    rng = np.random.default_rng(4)
    target = {name: rng.normal(size=(300, 4)) * (place % 3 + 1) for place, name in enumerate(source)}
    assert "there is no line" in agreement_on_the_line(source, labels, target)["m0"].warnings[0]
    with pytest.raises(DataError, match="several models"):
        agreement_on_the_line({"one": labels[:, None] == range(4)}, labels, {"one": labels[:, None] == range(4)})
