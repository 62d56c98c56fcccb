"""Recorded passes are the same passes: for every method that can be recorded, on a device that can."""

import copy

import pytest
import torch

from shiftproof.adapters import METHODS
from shiftproof.adapters.norms import BatchStatistics, RunningStatistics, SourceStatistics
from shiftproof.adapters.recording import Recorded, recordable
from shiftproof.errors import ConfigurationError
from tests.adapters.networks import convolutional, small, stream

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_a_policy_that_gathers_is_not_recorded():
    assert recordable(BatchStatistics(16.0))
    assert recordable(SourceStatistics())
    assert not recordable(RunningStatistics())
    assert small("bn", statistics="cumulative", graph=True).recorded is None


def test_it_is_yes_or_no():
    with pytest.raises(ConfigurationError, match="graph=True"):
        small("tent", graph="yes")


def test_a_cpu_runs_as_ever():
    plain, recorded = small("tent"), small("tent", graph=True)
    assert recorded.recorded is not None
    for batch in stream(3):
        assert not recorded.recorded.fits(batch)
        assert torch.equal(plain(batch), recorded(batch))


def test_a_copy_is_of_the_copied_network():
    adapter = small("tent", graph=True)
    copied = copy.deepcopy(adapter)
    assert isinstance(copied.recorded, Recorded)
    assert copied.recorded._pass.model is copied.model


class OnceBack(Recorded):
    """A recording that any device can play, and that counts how often the way back is gone."""

    back = 0

    def fits(self, images):
        return not self.used

    def __call__(self, images):
        self.used = True
        logits = self._pass(images)
        if logits.requires_grad:
            logits.register_hook(self.went_back)
        return logits.clone()

    def went_back(self, gradient):
        self.back += 1


@pytest.mark.parametrize("name", ["tent", "eata", "rdumb", "asr", "sar"])
def test_the_way_back_through_a_recorded_pass_is_gone_once(name):
    plain, recorded = small(name), small(name, graph=True)
    recorded.recorded = OnceBack(recorded.model, None)
    for number, batch in enumerate(stream(3), start=1):
        torch.testing.assert_close(recorded(batch), plain(batch))
        assert recorded.recorded.back <= number


@cuda
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # of the first backward pass of a process
@pytest.mark.parametrize("name", METHODS)
def test_the_same_stream_with_and_without(name):
    """Shapes that change, resets, saving and loading, batches that are only predicted, NaN: all as without."""
    plain, recorded = (small(name, convolutional().cuda(), graph=graph, reset=4) for graph in (False, True))
    batches = [batch.cuda() for batch in stream(7)]
    batches[3] = batches[3][: len(batches[3]) // 2]
    batches[5] = torch.full_like(batches[5], torch.nan)
    for number, batch in enumerate(batches):
        torch.testing.assert_close(recorded(batch), plain(batch), equal_nan=True)
        if number == 2:
            recorded.load_state_dict(recorded.state_dict())
    assert (recorded.updates, recorded.skipped, recorded.resets) == (plain.updates, plain.skipped, plain.resets)
    torch.testing.assert_close(recorded.predict(batches[0]), plain.predict(batches[0]))
