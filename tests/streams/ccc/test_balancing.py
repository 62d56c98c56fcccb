"""Orders in which classes are spread evenly, and still at random."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from shiftproof.data import load_data
from shiftproof.keyed import Keyed
from shiftproof.streams import Ccc
from shiftproof.streams.ccc.balancing import STRETCH, balanced_order


@given(st.lists(st.integers(0, 6), min_size=1, max_size=900), st.integers(0, 99))
def test_every_image_comes_once_and_every_stretch_has_the_classes_in_their_shares(labels, key):
    own = torch.tensor(labels)
    order = balanced_order(Keyed(3, [key]), own)
    assert sorted(order.tolist()) == list(range(len(labels)))
    shares = torch.bincount(own, minlength=7) / len(own)
    for part in own[order].split(STRETCH):
        assert ((torch.bincount(part, minlength=7) - shares * len(part)).abs() <= 2).all()


def test_orders_are_keyed_and_do_not_show_a_pattern():
    labels = torch.arange(2560) % 10
    one, again, other = (balanced_order(Keyed(0, [key]), labels) for key in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    repeats = (labels[one][1:] == labels[one][:-1]).float().mean()
    assert 0.07 < repeats < 0.13  # neighbours share a class as often as by chance
    batches = torch.stack([torch.bincount(part, minlength=10) for part in labels[one].split(64)]).float()
    assert 0.6 * 5.76 < batches.var(0).mean() < 1.1 * 5.76  # a batch has its classes nearly as by chance


def test_windows_of_ccc_have_the_classes_in_their_shares():
    data = load_data("demo")
    stream = Ccc(data, length=4000, speed=1000)
    assert data.labels is not None
    labels = data.labels[stream.rows_at(torch.arange(4000))]
    for start in (0, 130, 777):
        count = torch.bincount(labels[start : start + 1000], minlength=10)
        assert (count - 100).abs().max() <= 20  # by chance the largest of ten is off by 15 on average
        assert (count - 100.0).pow(2).mean().sqrt() < 7  # by chance 9.5


def test_without_labels_ccc_goes_through_the_images_in_any_order():
    stream = Ccc(load_data(torch.rand(30, 3, 8, 8)), length=60, speed=10, shifts=["contrast", "brightness"])
    rows = stream.rows_at(torch.arange(60))
    assert sorted(rows[:30].tolist()) == list(range(30))
    assert rows[:30].tolist() != rows[30:].tolist()
