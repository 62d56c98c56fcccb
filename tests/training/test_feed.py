"""What steps are fed does not depend on where a run starts, on its processes, or on how much is made at a time."""

import copy

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from shiftproof.errors import ConfigurationError
from shiftproof.runs import Json
from shiftproof.shifts import as_image_shift, parse
from shiftproof.training.feed import Feed, _Read, block_of, shifted
from shiftproof.training.loop import Loop
from shiftproof.training.recipes import recipe
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.team import Team
from tests.training.samples import two_classes


@pytest.fixture(scope="module")
def data():
    return two_classes(44)


def make(data, name="augmix+jsd", team=None, **options):
    settings = TrainingSettings(**{"batch_size": 8, "epochs": 2, **options})
    return Feed(data, recipe(name), settings, device=torch.device("cpu"), team=team)


def same(one, other):
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.labels, other.labels)


@pytest.mark.parametrize("name", ["augmix+jsd", "rda"])
def test_a_step_is_the_same_from_wherever_a_run_starts(data, name):
    feed = make(data, name)
    assert (feed.steps_per_epoch, feed.steps) == (5, 10)
    whole = list(feed.batches(0, 10))
    parts = [*feed.batches(0, 3), *feed.batches(3, 7), *feed.batches(7, 10)]
    assert len(whole) == len(parts) == 10
    assert all(same(one, other) for one, other in zip(whole, parts, strict=True))
    feed.block = 3
    assert all(same(one, other) for one, other in zip(whole[2:], feed.batches(2, 10), strict=True))


@pytest.mark.parametrize("mix", ["none", "mixup"])
def test_what_was_said_before_is_asked_once_for_all_steps_of_a_block(data, mix):
    def losses(block):
        torch.manual_seed(0)
        feed = make(data, "spectra+anchor", mix=mix, log_every=1)
        feed.block = block
        network = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(data.shape)), 2))
        loop = Loop(network, feed, sigma=0.0)
        asked: list[int] = []
        rows: list[dict[str, Json]] = []
        assert loop.start is not None
        loop.start.register_forward_hook(lambda *call: asked.append(len(call[1][0])))
        loop.run(4, rows.append)
        return asked, [row["loss"] for row in rows]

    (one, first), (many, second) = losses(1), losses(3)
    assert one == [8, 8, 8, 8]
    assert many == ([24, 16] if mix == "none" else one)  # images that are mixed are known at the step only
    assert second == pytest.approx(first, rel=1e-5)


def test_every_image_comes_at_most_once_an_epoch_in_an_order_of_its_own(data):
    feed = make(data, "erm")
    first, second = (torch.cat([batch.keys for batch in feed.batches(at, at + 5)]) for at in (0, 5))
    assert len(set(first.tolist())) == len(first) == 40
    assert first.tolist() != second.tolist()
    assert sorted(feed.order(0).tolist()) == list(range(44))


@pytest.mark.parametrize("name", ["fouriermix+hcr", "rda", "gaussian"])
def test_processes_share_the_batches_of_one(data, name):
    whole = make(data, name)
    ranks = [make(data, name, team=Team(rank, 2)) for rank in range(2)]
    for batch, *parts in zip(whole.batches(3, 6), *(each.batches(3, 6) for each in ranks), strict=True):
        assert torch.equal(torch.cat([part.inputs for part in parts], dim=1), batch.inputs)
        noise = whole.noise(batch, 0.25, 1)
        if noise is not None:
            made = [each.noise(part, 0.25, 1) for each, part in zip(ranks, parts, strict=True)]
            assert torch.equal(torch.cat(made, dim=2), noise)
    with pytest.raises(ConfigurationError, match="3 processes"):
        make(data, team=Team(0, 3))


def test_views_are_the_original_and_augmented_ones(data):
    plain = next(make(data, "erm", framing="").batches(0, 1))
    assert plain.inputs.shape == (1, 8, 3, 16, 16)
    views = next(make(data, "augmix+jsd", framing="").batches(0, 1))
    assert views.inputs.shape == (3, 8, 3, 16, 16)
    assert torch.equal(views.inputs[0], plain.inputs[0])
    assert not torch.equal(views.inputs[1], views.inputs[2])
    (single,) = next(make(data, "augmix", framing="").batches(0, 1)).inputs
    assert not torch.equal(single, plain.inputs[0])


def test_images_that_stream_are_those_that_are_held(data):
    held, read = make(data), make(data)
    read.supply = _Read(data, torch.device("cpu"), 0)
    assert all(same(one, other) for one, other in zip(held.batches(2, 7), read.batches(2, 7), strict=True))


def test_shifts_are_applied_as_by_calling_them(data):
    (batch,) = data.batches(44)
    for text in ("augmix", "fouriermix", "contrast=0.6 + rotate=10", "pad_crop"):
        assert torch.equal(
            shifted(as_image_shift(text), batch.inputs, batch.keys, 5), parse(text)(batch.inputs, batch.keys, seed=5)
        )


def test_noise_is_gaussian_and_falls_on_half_of_the_images(data):
    feed = make(data, "augmix+hcr", batch_size=40)
    batch = next(feed.batches(0, 1))
    noise = feed.noise(batch, 0.25, 0)
    assert noise.shape == (3, 2, 40, 3, 16, 16)
    assert stats.kstest(noise.numpy().ravel()[::7] / 0.25, "norm").pvalue > 1e-3
    flat = noise.flatten(2).flatten(0, 1).numpy()
    assert np.abs(np.corrcoef(flat) - np.eye(6)).max() < 0.03  # views and copies are independent
    half = make(data, "augmix", batch_size=40)
    touched = torch.cat([half.noise(batch, 0.25, epoch)[0, 0].flatten(1).any(1) for epoch in range(50)])
    assert stats.binomtest(int(touched.sum()), len(touched)).pvalue > 1e-3
    assert make(data, "erm").noise(batch, 0.25, 0) is None


@pytest.mark.parametrize("space", ["cifar", "corruptions"])
def test_every_step_goes_through_the_tuple_of_its_own(data, space):
    feed = make(data, "rda", framing="")
    feed.recipe = recipe("rda", space=space, length=3)
    feed.block = 4
    plain = list(make(data, "erm", framing="").batches(0, 5))
    tuples = feed.recipe.tuples.at(range(5), (), seed=0)
    assert len(set(tuples)) == 5
    for batch, before, genes in zip(feed.batches(0, 5), plain, tuples, strict=True):
        chain = feed.recipe.tuples.chain(genes)
        assert torch.equal(batch.inputs[0], chain(before.inputs[0], before.keys, seed=feed._seed(0, "tuple")))


@pytest.mark.parametrize("space", ["cifar", "corruptions"])
@pytest.mark.parametrize("count", [2, 4])
def test_a_batch_can_have_several_tuples(data, space, count):
    """Equal parts of a batch go through tuples of their own, in however many processes the batch is made."""
    chosen = recipe("rda", space=space, length=3, per_batch=count)
    assert chosen.tuples is not None
    settings = TrainingSettings(batch_size=8, epochs=2, framing="")
    feeds = [
        Feed(data, chosen, settings, device=torch.device("cpu"), team=team)
        for team in (None, *(Team(rank, 4) for rank in range(4)))
    ]
    tuples = chosen.tuples.at(range(5), (), seed=0)
    assert len(set(tuples)) == 5 * count
    plain = list(make(data, "erm", framing="").batches(0, 5))
    for step, (batch, *shares) in enumerate(zip(*(feed.batches(0, 5) for feed in feeds), strict=True)):
        assert torch.equal(torch.cat([share.inputs for share in shares], 1), batch.inputs)
        for part in range(count):
            chain = chosen.tuples.chain(tuples[count * step + part])
            some = slice(part * 8 // count, (part + 1) * 8 // count)
            before, keys = plain[step].inputs[0, some], plain[step].keys[some]
            assert torch.equal(batch.inputs[0, some], chain(before, keys, seed=feeds[0]._seed(0, "tuple")))


def test_batches_that_tuples_cannot_share_are_refused(data):
    with pytest.raises(ConfigurationError, match="equal parts"):
        Feed(data, recipe("rda", per_batch=3), TrainingSettings(batch_size=8), device=torch.device("cpu"))
    with pytest.raises(ConfigurationError, match="per_batch"):
        recipe("rda", per_batch=0)


def linear_loop(data, name="augmix", **options):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(data.shape)), 2))
    return Loop(network, make(data, name, **options), sigma=0.0)


def test_what_is_fed_goes_on_from_call_to_call(data, monkeypatch):
    """A run in parts is fed without a break, so that views are made ahead across checkpoints; its weights are the same.

    Where it goes on from elsewhere, it is fed from there.
    """
    whole, parts = linear_loop(data), linear_loop(data)
    begun: list[int] = []
    batches = parts.feed.batches

    def noted(start, *more):
        begun.append(start)
        return batches(start, *more)

    monkeypatch.setattr(parts.feed, "batches", noted)
    whole.run(10, lambda _: None)
    parts.run(3, lambda _: None)
    early = copy.deepcopy(parts.state_dict())
    for stop in (7, 10):
        parts.run(stop, lambda _: None)
    assert begun == [0]
    assert torch.equal(parts.network[1].weight, whole.network[1].weight)
    parts.load_state_dict(early)
    parts.run(10, lambda _: None)
    assert begun == [0, 3]
    assert torch.equal(parts.network[1].weight, whole.network[1].weight)


def test_a_step_that_failed_is_fed_again(data, monkeypatch):
    whole, loop = linear_loop(data), linear_loop(data)
    whole.run(10, lambda _: None)
    loop.run(3, lambda _: None)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "_update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            loop.run(5, lambda _: None)
    loop.run(10, lambda _: None)
    assert torch.equal(loop.network[1].weight, whole.network[1].weight)


@pytest.mark.parametrize(("steps", "values", "most"), [(97, 512, 2000), (97, 512, 10**9), (5, 8, 3), (1, 7, 0)])
def test_an_epoch_is_made_in_equal_parts_that_fit(steps, values, most):
    block = block_of(steps, values, most)
    assert 1 <= block <= steps
    assert block == 1 or block * values <= most
    assert -(-steps // block) * block - steps < -(
        -steps // block
    )  # no part is shorter than others by more than rounding


@pytest.mark.parametrize("name", ["smoothadv", "ada"])
def test_attacks_leave_the_mode_of_the_network_as_it_was(data, name):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(int(np.prod(data.shape)), 2))
    feed = make(data, name)
    if name == "smoothadv":
        feed.recipe = recipe(name, warmup=0)
    loop = Loop(network, feed, sigma=0.1 if name == "smoothadv" else 0.0)
    modes: list[bool] = []
    network[1].register_forward_hook(lambda module, *_: modes.append(module.training))
    loop.run(1, lambda _: None)
    assert modes.count(True) == 1
    assert len(modes) > 10
    assert all(module.training for module in network.modules())
