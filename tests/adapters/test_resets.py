"""When adapters go back: never, every so many steps, at each new shift, and when the guard says so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shiftproof.adapters import Adapter, Guard, Reset, adapt, each_shift, every, method, never
from shiftproof.adapters.guard import mirrored, narrowing, regret, worse_than_anchor
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


def test_regret_is_the_expected_loss_of_accuracy() -> None:
    judge = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.3, 0.7]]).log()
    second = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert regret(judge, judge, judge) == pytest.approx(0)
    assert regret(judge, judge, second) == pytest.approx(1 - (0.2 + 0.5 + 0.7) / (0.8 + 0.5 + 0.7))
    assert regret(judge, second, judge) == pytest.approx(1 - (0.8 + 0.5 + 0.7) / (0.2 + 0.5 + 0.7))  # better: below 0
    sure = torch.tensor([[200.0, 0.0]])
    assert math.isfinite(regret(sure, -sure, -sure))


def test_another_view_tells_better_from_worse_where_the_anchor_itself_cannot() -> None:
    """Answers with independent errors: the anchor and its other view are right on 60 %, others on 80 % and on 40 %."""
    random = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 5, (4000,), generator=random)

    def right_on(share: float) -> Tensor:
        wrong = (truth + torch.randint(1, 5, truth.shape, generator=random)) % 5
        kept = torch.rand(truth.shape, generator=random) < share
        return 3 * nn.functional.one_hot(torch.where(kept, truth, wrong), 5).float()

    anchor, view, better, worse = (right_on(share) for share in (0.6, 0.6, 0.8, 0.4))
    assert regret(view, anchor, better) < 0 < regret(view, anchor, worse)
    assert 0 < regret(anchor, anchor, better) < regret(anchor, anchor, worse)


def test_the_view_is_one_s_own_choice() -> None:
    adapter = tent(None)
    batch, seen = stream(1)[0], []

    def view(images: Tensor) -> Tensor:
        seen.append(images)
        return images

    answer = adapter(batch)
    own, anchor = worse_than_anchor(adapter, batch, answer, view), adapter.anchor(batch)
    assert len(seen) == 1
    assert own == max(regret(anchor, anchor, answer), narrowing(anchor, answer))
    assert torch.equal(mirrored(batch), batch.flip(-1))
    assert torch.equal(mirrored(batch[:, 0, 0]), batch[:, 0, 0])


def test_narrowing_is_lost_diversity_whatever_the_confidence() -> None:
    anchor = torch.eye(4).repeat(2, 1)
    assert narrowing(anchor, 100 * anchor) == 0
    assert narrowing(anchor, torch.eye(4)[[0, 0, 1, 1, 0, 0, 1, 1]]) == pytest.approx(0.5)
    assert narrowing(anchor, torch.eye(4)[[2] * 8]) == pytest.approx(0.75)
    assert narrowing(torch.eye(4)[[2] * 8], anchor) == 0


def scripted(values: list[float]) -> tuple[Guard, list[int]]:
    taken: list[int] = []

    def signal(adapter: Adapter, images: Tensor, logits: Tensor) -> float:
        taken.append(adapter.steps)
        return values[len(taken) - 1]

    return Guard(signal=signal, interval=2, high=0.5, low=0.3, smoothing=1.0, patience=2), taken


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.6, 0.6, 0.0, 0.0], [4]),  # two alarms
        ([0.6, 0.4, 0.6, 0.0], [6]),  # between low and high an alarm stands
        ([0.6, 0.2, 0.6, 0.2], []),  # under low it is taken back
        ([0.6, 0.6, 0.6, 0.6], [4, 8]),  # after going back, all over again
        ([0.5, 0.5, 0.5, 0.5], []),
    ],
)
def test_guard_waits_for_alarms_that_last(values: list[float], expected: list[int]) -> None:
    guard, taken = scripted(values)
    assert resets_at(tent(guard), stream(9, size=4)) == expected
    assert taken == [2, 4, 6, 8]


def test_guard_smooths_its_signal() -> None:
    guard, _ = scripted([1.0, 0.0, 0.0, 0.0])
    adapter = tent(Guard(signal=guard.signal, interval=1, high=2.0, low=0.0, smoothing=0.25))
    levels = []
    for batch in stream(3):
        adapter(batch)
        levels.append(float(adapter.memory["guard/level"]))
    assert levels == pytest.approx([1.0, 0.75, 0.5625])


def test_guard_is_part_of_the_state() -> None:
    values = [0.6, 0.6, 0.0, 0.0]
    first = tent(scripted(values)[0])
    batches = stream(5)
    for batch in batches[:3]:
        first(batch)
    second = tent(scripted(values[1:])[0])
    second.load_state_dict(first.state_dict())
    assert resets_at(second, batches[3:]) == [1]


def test_guard_is_silent_on_a_healthy_model_and_heard_on_a_broken_one() -> None:
    model = convolutional()
    head = model[-1]
    assert isinstance(head, nn.Linear)
    head.weight.data.mul_(30)  # sure of itself
    adapter = adapt(model, "tent", lr=1e-4, reset=Guard(interval=1))
    batches = stream(12, size=16)
    assert resets_at(adapter, batches[:6]) == []
    anchor = adapter.anchor(batches[6])
    torch.testing.assert_close(anchor, adapt(model, "bn")(batches[6]))
    assert worse_than_anchor(adapter, batches[6], anchor) == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for parameter in adapter.trained.values():
            parameter.zero_()
    assert resets_at(adapter, batches[6:]) == [2]  # after two looks at what it broke


def test_guard_leaves_methods_that_do_not_learn_alone() -> None:
    def never_called(adapter: Adapter, images: Tensor, logits: Tensor) -> float:
        raise AssertionError

    adapter = adapt(convolutional(), "bn", reset=Guard(signal=never_called, interval=1))
    assert resets_at(adapter, stream(3)) == []


def test_the_method_guard_is_eta_with_a_guard_bit_for_bit() -> None:
    for preset in (None, *PRESETS):
        expected = method("eta").options(preset, "paper", {"reset": "guard"})
        assert method("guard").options(preset, "paper", {}) == expected
    model = convolutional()
    head = model[-1]
    assert isinstance(head, nn.Linear)
    head.weight.data.mul_(30)  # sure of itself, so that there is something to learn from
    fast: dict[str, Any] = {"lr": 2.0, "similarity": 1.0}
    guarded, eta = adapt(model, "guard", **fast), adapt(model, "eta", reset="guard", **fast)
    for batch in stream(24, size=16):
        assert torch.equal(guarded(batch), eta(batch))
    assert guarded.updates > 20
    assert guarded.resets > 0
    assert_same(everything(guarded), everything(eta), but=("method",))


def test_senseless_guards_are_refused() -> None:
    for options in ({"interval": 0}, {"interval": 2.5}, {"patience": 0}, {"smoothing": 0.0}, {"low": 0.9}):
        with pytest.raises(ConfigurationError, match="cannot work"):
            Guard(**options)


def test_guard_does_not_stumble_over_a_bad_anchor() -> None:
    adapter = tent(Guard(interval=1))
    adapter.starts = {name: torch.full_like(tensor, math.nan) for name, tensor in adapter.starts.items() if tensor.ndim}
    adapter(stream(1)[0])
    assert "guard/level" not in adapter.memory
