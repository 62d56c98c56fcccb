"""The safe choice as an adapter: the source until labels come, the candidates as they are, saved and resumed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from shiftproof.adapters import SafeAdapter, adapt
from shiftproof.errors import ConfigurationError, ModelError
from tests.adapters.networks import assert_same, convolutional, everything, stream, transformer


def safe(**options: object) -> SafeAdapter:
    given = {"label_share": 1.0, "preset": "cifar", **options}
    made = adapt(convolutional(), "safe", **given)  # type: ignore[arg-type]
    assert isinstance(made, SafeAdapter)
    return made


def as_bn_says(adapter: SafeAdapter, batch: Tensor) -> Tensor:
    """Labels by which the candidate bn is always right."""
    logits: Tensor = adapt(adapter.source, "bn")(batch)
    return logits.argmax(1)


def test_without_labels_it_is_the_source_model() -> None:
    adapter = safe()
    for batch in stream(6):
        torch.testing.assert_close(adapter(batch), adapter.source(batch))
    assert adapter.serving == "source"
    assert adapter.wanted
    assert adapter.switches == ()


def test_labels_make_it_switch_and_then_it_answers_as_the_candidate_does() -> None:
    adapter, batches = safe(candidates="bn"), stream(60, size=16)
    for batch in batches:
        adapter(batch)
        adapter.grade(as_bn_says(adapter, batch))
    assert adapter.serving == "bn"
    assert [adapter.names[switch.new] for switch in adapter.switches] == ["bn"]
    torch.testing.assert_close(adapter(batches[0]), adapt(adapter.source, "bn")(batches[0]))
    torch.testing.assert_close(adapter.predict(batches[1]), adapt(adapter.source, "bn")(batches[1]))
    low, high = adapter.gain()
    assert 0 < low < high
    resets = adapter.resets
    adapter.reset()
    assert adapter.serving == "source"
    assert adapter.resets == resets + 1


def test_candidates_learn_as_if_they_were_alone() -> None:
    options = {"rdumb": {"entropy_margin": 2.0, "similarity": 1.0}}
    adapter = safe(candidates="bn,rdumb", candidate_options=options, lr_scale=10.0)
    alone = adapt(adapter.source, "rdumb", preset="cifar", lr=1e-2, **options["rdumb"])  # type: ignore[arg-type]
    for batch in stream(5):
        adapter(batch)
        alone(batch)
    inner = adapter.candidates["rdumb"]
    assert_same(everything(inner), everything(alone))  # type: ignore[arg-type]
    assert adapter.updates == alone.updates == 5


def test_its_state_is_everything() -> None:
    first, second, batches = safe(candidates="bn"), safe(candidates="bn"), stream(40, size=16)
    for batch in batches[:30]:
        first(batch)
        first.grade(as_bn_says(first, batch))
    second.load_state_dict(first.state_dict())
    for batch in batches[30:]:
        assert torch.equal(first(batch), second(batch))
        assert first.wanted == second.wanted
        for each in (first, second):
            each.grade(as_bn_says(first, batch))
    assert first.switches == second.switches
    assert first.gain() == second.gain()


def test_candidates_that_do_not_apply_are_left_out() -> None:
    adapter = adapt(transformer(), "safe")
    assert isinstance(adapter, SafeAdapter)
    assert adapter.names == ("source", "rdumb")
    assert "no batch normalisation" in adapter.left_out["bn"]
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 14 * 14, 5))
    with pytest.raises(ModelError, match="No candidate applies"):
        adapt(plain, "safe")


@pytest.mark.parametrize(
    "options",
    [
        {"candidates": "source,bn"},
        {"candidates": "bn,bn"},
        {"candidates": ()},
        {"candidates": "bnn"},
        {"label_share": 0},
        {"alpha": 1.0},
        {"candidate_options": {"eta": {"lr": 1.0}}},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        safe(**options)
