"""FOA: prompts by forward passes alone, and the shift of features."""

import pytest
import torch
from torch import nn

from shiftproof.adapters import adapt
from shiftproof.adapters.evolution import Evolution
from shiftproof.adapters.features import last_linear
from shiftproof.adapters.forward_only import fitness, look, prompted, token_blocks
from shiftproof.models.networks.compact_transformer import CompactTransformer
from tests.adapters.networks import convolutional, stream


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return CompactTransformer(2, 16, 2, classes=5, mean=(0.5,) * 3, std=(0.25,) * 3).eval()


def test_the_search_finds_the_least_of_an_ill_conditioned_function():
    torch.manual_seed(1)
    scales, search = torch.logspace(0, 2, 6), Evolution(6, 10)
    state = search.start(torch.ones(6), 0.5)
    for _ in range(250):
        candidates = search.ask(state, torch.randn(10, 6))
        state = search.tell(state, candidates, (candidates * scales).square().sum(1))
    assert (state["mean"] * scales).abs().max() < 1e-3
    variances = torch.linalg.eigvalsh(state["covariance"])
    assert variances[-1] / variances[0] > 1e3  # it learns the shape: the widest is not the steepest


def test_weights_and_constants_are_those_of_the_tutorial():
    search = Evolution(10, 10)
    assert len(search.weights) == 5
    assert float(search.weights.sum()) == pytest.approx(1)
    assert search.effective == pytest.approx(3.167, abs=1e-3)
    assert search.step_rate == pytest.approx((3.167 + 2) / (10 + 3.167 + 5), abs=1e-4)
    assert search.rates[0] == pytest.approx(2 / (11.3**2 + 3.167), abs=1e-5)


def test_prompts_are_seen_by_blocks_and_not_by_the_head(network):
    images = stream(1)[0]
    blocks = token_blocks(network)
    assert blocks == list(network.blocks)
    plain = network(images)
    with prompted(blocks, None) as caught:
        assert torch.equal(network(images), plain)
    assert [tuple(each.shape) for each in caught] == [(8, 16)] * 2
    sizes = []
    hook = network.norm.register_forward_pre_hook(lambda _, given: sizes.append(given[0].shape[1]))
    with prompted(blocks, torch.ones(3, 16)):
        assert not torch.allclose(network(images), plain)
    hook.remove()
    assert sizes == [16]  # 4 x 4 tokens of 16 pixels a side, without the prompts
    assert torch.equal(network(images), plain)


def test_a_class_token_is_the_first_of_one_more_than_a_square():
    blocks = nn.Sequential(*(nn.Sequential(nn.LayerNorm(4)) for _ in range(2)))
    tokens = torch.randn(2, 5, 4)
    with prompted(list(blocks), torch.zeros(1, 4)) as caught:
        given = blocks(tokens)
    assert given.shape == tokens.shape
    torch.testing.assert_close(caught[-1], given[:, 0])


def test_a_batch_takes_as_many_passes_as_prompts_and_one_more(network):
    passes = []
    adapter = adapt(network, "foa", population=6, source=stream(1)[0])
    last_linear(adapter.model).register_forward_hook(lambda *_: passes.append(1))
    adapter(stream(1)[0])
    assert len(passes) == 1 + 7  # the source, once
    adapter(stream(2)[1])
    assert len(passes) == 1 + 7 + 7
    assert adapt(network, "foa").method.cost == 28


def test_the_answer_is_that_of_the_fittest_prompts_with_features_shifted(network):
    adapter = adapt(network, "foa", population=6, source=stream(1)[0])
    for images in stream(4, seed=1):
        logits = adapter(images)
    memory = adapter.memory
    seen = look(adapter, images, memory["foa/best"])
    moved = (memory["foa/source"] - memory["foa/mean"]) @ network.linear.weight.T
    torch.testing.assert_close(logits, seen.logits + moved)
    against = (memory["foa/layer_mean"], memory["foa/layer_spread"], 0.4)
    assert fitness(seen, *against) < fitness(look(adapter, images, None), *against)
    assert int(memory["cma/generation"]) == 4
    torch.testing.assert_close(adapter.predict(images), logits)


def test_a_network_without_tokens_is_shifted_alone():
    network, batches = convolutional(), stream(3)
    adapter = adapt(network, "foa", source=batches[0])
    assert token_blocks(network) == ()
    torch.testing.assert_close(adapter(batches[0]), network(batches[0]))
    assert not torch.allclose(adapter(batches[2]), network(batches[2]))
    assert not any(name.startswith("cma/") for name in adapter.memory)
