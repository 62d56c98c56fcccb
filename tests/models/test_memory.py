"""When memory runs out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftproof.errors import ModelError
from shiftproof.models import BatchFitter, logits
from shiftproof.models.memory import out_of_memory


@settings(max_examples=12, deadline=None)
@given(start=st.integers(1, 300), most=st.integers(1, 300))
def test_the_batch_is_halved_until_it_fits_and_stays_so(start, most):
    tried = []

    def work(size: int) -> int:
        tried.append(size)
        if size > most:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return size

    fit = BatchFitter(start)
    found = fit(work)
    assert found == fit.size == tried[-1] <= most
    assert found == start or 2 * found + 1 > most
    assert fit(work) == found
    assert tried.count(found) == 2


def test_what_does_not_fit_at_all_fails_and_changes_nothing():
    def work(size: int) -> None:
        raise MemoryError

    fit = BatchFitter(16)
    with pytest.raises(MemoryError):
        fit(work)
    assert fit.size == 16


def test_other_errors_are_raised_at_once():
    tried = []

    def work(size: int) -> None:
        tried.append(size)
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        BatchFitter(16)(work)
    assert tried == [16]


def test_the_real_allocators_error_is_known_also_through_a_model():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert out_of_memory(caught.value)
    with pytest.raises(ModelError) as told:
        logits(lambda images: torch.empty(2**60, dtype=torch.uint8), torch.zeros(2, 3, 4, 4))
    assert out_of_memory(told.value)
    assert not out_of_memory(ModelError("The model returns NaN."))
