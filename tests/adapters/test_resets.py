"""When adapters go back: never, every so many steps, at each new shift, and when the guard says so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftproof.adapters import Adapter, Guard, Reset, adapt, each_shift, every, method, never
from shiftproof.adapters.guard import excess, mirrored
from shiftproof.adapters.method import PRESETS
from shiftproof.adapters.resets import parse
from shiftproof.errors import ConfigurationError
from tests.adapters.networks import assert_same, convolutional, everything, stream


def tent(reset: Any, **options: Any) -> Adapter:
    return adapt(convolutional(), "tent", reset=reset, lr=0.01, **options)


def resets_at(adapter: Adapter, batches: list[Tensor]) -> list[int]:
    """Return the steps before which the adapter went back."""
    found = []
    for place, batch in enumerate(batches):
        known = adapter.resets
        adapter(batch)
        found += [place] * (adapter.resets - known)
    return found


def test_every_goes_back_before_its_multiples() -> None:
    assert resets_at(tent(3), stream(8)) == [3, 6]
    assert resets_at(tent(every(1)), stream(3)) == [1, 2]
    assert resets_at(tent(never), stream(3)) == []


def test_each_shift_goes_back_at_news_alone() -> None:
    adapter, (batch, *_) = tent(each_shift), stream(1)
    counts = []
    for announced in (("fog",), ("fog",), ("fog", "snow", "fog"), ("snow", "snow"), (), ("fog",)):
        for shift in announced:
            adapter.announce(shift)
        adapter(batch)
        counts.append(adapter.resets)
    assert counts == [0, 0, 0, 1, 1, 2]


def test_an_announcement_survives_saving() -> None:
    first, (batch, *_) = tent("each_shift"), stream(1)
    first.announce("fog")
    first(batch)
    first.announce("snow")
    second = tent("each_shift")
    second.load_state_dict(first.state_dict())
    second(batch)
    assert second.resets == 1


def test_policies_from_words_and_numbers() -> None:
    assert parse(None) == parse("never") == never
    assert parse(7) == every(7)
    assert parse("guard") == Guard()
    for bad in (True, 1.5, object(), 0, -3):
        with pytest.raises(ConfigurationError):
            parse(bad)
    with pytest.raises(ConfigurationError, match="did you mean  each_shift"):
        parse("each-shift")


def test_own_policies_see_every_batch() -> None:
    class WhenDark(Reset):
        def due(self, adapter: Adapter) -> bool:
            return bool(adapter.memory.get("dark", torch.tensor(False)))

        def observe(self, adapter: Adapter, images: Tensor, logits: Tensor) -> None:
            assert logits.shape == (len(images), 5)
            adapter.memory["dark"] = images.mean() < 0.1

    light, dark = torch.full((4, 3, 16, 16), 0.5), torch.zeros(4, 3, 16, 16)
    assert resets_at(tent(WhenDark()), [light, dark, light, light, dark]) == [2]


CLASSES = 10


def one_hot(classes: Tensor) -> Tensor:
    return nn.functional.one_hot(classes, CLASSES).float()


def answers(share: float, labels: Tensor, random: torch.Generator) -> Tensor:
    """Return logits that are right on a share of the images."""
    wrong = (labels + torch.randint(1, CLASSES, labels.shape, generator=random)) % CLASSES
    return one_hot(torch.where(torch.rand(labels.shape, generator=random) < share, labels, wrong))


def test_excess_by_its_formula() -> None:
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (20,), generator=random)
    given, anchor, seen = (answers(share, labels, random) for share in (0.5, 0.7, 0.7))
    each = []
    for place in range(20):
        differs = float(given[place].argmax() != anchor[place].argmax())
        contradicts = float(seen[place].argmax() != anchor[place].argmax())
        each.append((differs - 3.0 * contradicts - 0.1) / 3.1)
    expected = [sum(each[low : low + 8]) / len(each[low : low + 8]) for low in (0, 8, 16)]
    assert excess(given, anchor, seen, 1.5, 0.05).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("accuracy", [0.35, 0.56, 0.77, 0.95])
@pytest.mark.parametrize("classes", [1, 2, 10])
def test_better_models_do_not_differ_too_much_whatever_labels_come_together(accuracy: float, classes: int) -> None:
    """Anchors whose two views err together, as often as the assumption allows: perfect and equal models are silent."""
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, classes, (16_000,), generator=random)
    anchor = answers(accuracy, labels, random)
    contradicted = torch.rand(16_000, generator=random) < (1 - accuracy) / 1.5
    seen = one_hot((anchor.argmax(1) + contradicted) % CLASSES)
    for better in (one_hot(labels), answers(accuracy, labels, random), anchor):
        assert excess(better, anchor, seen, 1.5, 0.0).mean() < 0.01
    if accuracy > 0.7:
        assert excess(one_hot((labels + 1) % CLASSES), anchor, seen, 1.5, 0.05).mean() > 0


def sure_model() -> nn.Sequential:
    model = convolutional()
    head = model[-1]
    assert isinstance(head, nn.Linear)
    head.weight.data.mul_(30)
    return model


def identical(images: Tensor) -> Tensor:
    return images


def broken(adapter: Adapter) -> None:
    """Let it see nothing any more."""
    with torch.no_grad():
        for parameter in adapter.trained.values():
            parameter.zero_()


def test_guard_is_silent_on_a_healthy_model_and_heard_on_a_broken_one() -> None:
    guard = Guard(interval=1, view=identical, slack=0.01)
    adapter, batches = adapt(sure_model(), "tent", lr=1e-4, reset=guard), stream(60, size=32)
    assert resets_at(adapter, batches[:20]) == []
    anchor = adapter.anchor(batches[6])
    torch.testing.assert_close(anchor, adapt(sure_model(), "bn")(batches[6]))
    broken(adapter)
    (first, *_) = resets_at(adapter, batches[20:])
    assert 0 < first < 30
    assert torch.equal(adapter.predict(batches[0]).argmax(1), adapter.anchor(batches[0]).argmax(1))


def test_guard_goes_back_in_any_case_as_rdumb_does() -> None:
    assert resets_at(tent(Guard(every=3)), stream(8)) == [3, 6]


def test_guard_looks_at_its_interval_and_is_part_of_the_state() -> None:
    looks: list[int] = []

    def view(images: Tensor) -> Tensor:
        looks.append(len(images))
        return images

    guard = Guard(interval=2, view=view, slack=0.01)
    first, batches = adapt(sure_model(), "tent", lr=1e-4, reset=guard), stream(40, size=16)
    for batch in batches[:5]:
        first(batch)
    assert looks == [16, 16]
    broken(first)
    second = adapt(sure_model(), "tent", lr=1e-4, reset=guard)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.memory["guard/capital"], first.memory["guard/capital"])
    assert resets_at(first, batches[5:]) == resets_at(second, batches[5:]) != []
    assert torch.equal(mirrored(batches[0]), batches[0].flip(-1))
    assert torch.equal(mirrored(batches[0][:, 0, 0]), batches[0][:, 0, 0])


def test_guard_leaves_methods_that_do_not_learn_alone() -> None:
    def never_called(images: Tensor) -> Tensor:
        raise AssertionError

    adapter = adapt(convolutional(), "bn", reset=Guard(view=never_called, interval=1))
    assert resets_at(adapter, stream(3)) == []


def test_the_method_guard_is_eta_with_a_guard_bit_for_bit() -> None:
    for preset in (None, *PRESETS):
        expected = method("eta").options(preset, "paper", {"reset": "guard"})
        assert method("guard").options(preset, "paper", {}) == expected
    model = sure_model()  # so that there is something to learn from
    fast: dict[str, Any] = {"lr": 2.0, "similarity": 1.0}
    early = Guard(every=9)
    guarded, eta = adapt(model, "guard", reset=early, **fast), adapt(model, "eta", reset=early, **fast)
    for batch in stream(24, size=16):
        assert torch.equal(guarded(batch), eta(batch))
    assert guarded.updates > 20
    assert guarded.resets > 0
    assert_same(everything(guarded), everything(eta), but=("method",))


def test_senseless_guards_are_refused() -> None:
    for options in ({"interval": 0}, {"interval": 2.5}, {"every": 0}, {"alpha": 0.0}, {"ratio": 0.0}, {"slack": -1.0}):
        with pytest.raises(ConfigurationError, match="Invalid guard settings"):
            Guard(**options)


def test_guard_does_not_stumble_over_a_bad_anchor() -> None:
    adapter = tent(Guard(interval=1))
    adapter.starts = {name: torch.full_like(tensor, math.nan) for name, tensor in adapter.starts.items() if tensor.ndim}
    adapter(stream(1)[0])
    assert "guard/capital" not in adapter.memory
