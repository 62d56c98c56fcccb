"""What every stream must do, and what tells the kinds apart."""

import pickle
from typing import Any

import pytest
import torch

from shiftproof import shifts
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts.augment.framing import FlipCrop
from shiftproof.streams import STREAMS, Ccc, Concatenated, Correlated, Gradual, Mixed, make_stream

NAMES = ["gaussian_noise", "contrast", "brightness"]


@pytest.fixture(scope="module")
def data():
    return load_data("demo").take(60)


def make(kind, data, **options):
    given: dict[str, Any] = {"length": 150, "batch_size": 16, "seed": 3, "shifts": NAMES, **options}
    if kind in ("ccc", "gradual"):
        given.setdefault("speed", 20)
    return make_stream(kind, data, **given)


def labels_of(stream):
    labels = stream.read(0, 60).labels
    assert labels is not None
    return labels


def same(one, other):
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.keys, other.keys) and one.shift == other.shift


@pytest.mark.parametrize("kind", STREAMS)
class TestEveryStream:
    def test_a_read_from_any_position_is_the_tail_of_a_full_read(self, kind, data):
        full = list(make(kind, data))
        for batches in (1, 4, 8):
            late = make(kind, data)
            late.seek(16 * batches)
            rest = list(late)
            assert len(rest) == len(full) - batches
            assert all(map(same, rest, full[batches:]))

    def test_content_does_not_depend_on_the_batch_size(self, kind, data):
        whole = make(kind, data).read(0, 150)
        for size in (1, 7, 150):
            parts = list(make(kind, data, batch_size=size))
            assert torch.equal(torch.cat([part.inputs for part in parts]), whole.inputs)
            assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)

    def test_position_is_saved_and_restored(self, kind, data):
        stream = make(kind, data)
        iterator = iter(stream)
        next(iterator)
        next(iterator)
        assert stream.position == 32
        other = make(kind, data)
        other.load_state_dict(stream.state_dict())
        assert same(next(iter(other)), next(iterator))

    def test_the_state_of_another_stream_is_refused(self, kind, data):
        with pytest.raises(DataError, match="another stream"):
            make(kind, data, seed=4).load_state_dict(make(kind, data).state_dict())

    def test_seeds_differ_and_fingerprints_say_so(self, kind, data):
        one, other, again = make(kind, data), make(kind, data, seed=4), make(kind, data)
        assert one.fingerprint != other.fingerprint
        assert one.fingerprint == again.fingerprint
        assert not torch.equal(one.read(0, 150).inputs, other.read(0, 150).inputs)

    def test_it_can_be_sent_to_another_process(self, kind, data):
        stream = make(kind, data)
        assert same(pickle.loads(pickle.dumps(stream)).read(40, 90), stream.read(40, 90))

    def test_batches_are_images_on_256_levels_with_their_labels(self, kind, data):
        stream = make(kind, data)
        assert len(stream) == 150
        assert sum(len(batch) for batch in stream) == 150
        batch = stream.read(0, 150)
        levels = batch.inputs * 255
        assert torch.allclose(levels, levels.round(), atol=1e-3)
        assert torch.equal(batch.labels, data.labels[stream.rows_at(torch.arange(150))])

    def test_every_pass_takes_each_image_once(self, kind, data):
        rows = make(kind, data).rows_at(torch.arange(150))
        assert sorted(rows[:60].tolist()) == list(range(60))
        assert sorted(rows[60:120].tolist()) == list(range(60))
        assert rows[:60].tolist() != rows[60:120].tolist()


def test_concatenated_takes_every_shift_over_all_images(data):
    stream = Concatenated(data, shifts=NAMES, severity=4, batch_size=60)
    assert len(stream) == 180
    batches = list(stream)
    assert sorted(batch.shift for batch in batches) == sorted(f"{name}@4" for name in NAMES)
    plain = data.subset(stream.rows_at(torch.arange(60)))
    expected = shifts.parse(batches[0].shift)(next(plain.batches(60)).inputs, plain.keys, seed=0)
    assert torch.equal(batches[0].inputs, expected)


def test_ten_seeds_are_orders_of_the_same_shifts(data):
    orders = {
        tuple(Concatenated(data, shifts=["common"], seed=seed).stage(stage).name for stage in range(15))
        for seed in range(10)
    }
    assert len(orders) == 10
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(shifts.names("common")))}


def test_mixed_draws_every_shift_and_severity(data):
    stream = Mixed(data, shifts=["contrast", "brightness"], severities=(1.0, 5.0), length=4000)
    found, which = stream.shifts_at(torch.arange(4000))
    share = torch.bincount(which, minlength=4) / 4000
    assert [shift.label for shift in found] == ["contrast@1", "contrast@5", "brightness@1", "brightness@5"]
    assert torch.allclose(share, torch.full((4,), 0.25), atol=0.03)


def test_correlated_labels_come_together(data):
    labels = labels_of(Correlated(data, shifts=["contrast"], concentration=0))
    assert int((labels[1:] != labels[:-1]).sum()) == 9
    assert labels.tolist() != sorted(labels.tolist())

    def changes(stream):
        drawn = labels_of(stream)
        return int((drawn[1:] != drawn[:-1]).sum())

    unequal = changes(Correlated(data, shifts=["contrast"], concentration=0.1))
    even = changes(Correlated(data, shifts=["contrast"], concentration=100.0))
    assert unequal < even <= changes(Concatenated(data, shifts=["contrast"])) + 10


def test_dirichlet_shares_have_their_mean_and_variance():
    stream = Correlated(load_data("demo").take(60), shifts=["contrast"], concentration=0.5)
    shares = stream._shares(0, 4000)
    a, slots = 0.5, 10
    assert shares.sum(1) == pytest.approx(1.0)
    assert shares.mean() == pytest.approx(1 / slots)
    assert shares.var(0).mean() == pytest.approx((1 / slots) * (1 - 1 / slots) / (slots * a + 1), rel=0.1)


def test_gradual_goes_up_and_down(data):
    stream = Gradual(data, shifts=["contrast"], severities=(1, 3, 5), speed=10)
    assert [stream.stage(stage).label for stage in range(5)] == [f"contrast@{s}" for s in (1, 3, 5, 3, 1)]
    assert len(stream) == 50
    assert stream.notes == ()
    short = Gradual(data, shifts=["contrast", "fog"], speed=10, length=95)
    assert short.notes == (
        "The stream makes 10 of 18 steps and reaches 2 of 2 corruptions: one round takes 180 images.",
    )


def test_ccc_crops_mirrors_and_applies_two_corruptions_with_bytes_between(data):
    stream = Ccc(data, shifts=["contrast", "brightness"], severity=1.0, speed=10, length=90, seed=5)
    batch = stream.read(25, 30)
    pair, (first, second) = stream.schedule.at(2)
    assert (first, second) == (0.75, 0.25)
    positions = torch.arange(25, 30)
    plain = data.subset(stream.rows_at(positions))
    images = FlipCrop(smallest=0.64)(next(plain.batches(5)).inputs, positions, seed=5)
    chain = shifts.parse(f"{pair[0]}@{first:g} + {pair[1]}@{second:g}")
    assert torch.equal(batch.inputs, chain(images, positions, seed=5))
    assert batch.shift == chain.label


def test_ccc_draws_anew_at_every_visit(data):
    stream = Ccc(data, shifts=["contrast", "brightness"], severity=0.25, speed=200, length=200)
    positions = torch.arange(200)
    rows = stream.rows_at(positions)
    first, again = (rows == rows[0]).nonzero()[:2, 0].tolist()
    assert not torch.equal(stream.read(first, first + 1).inputs, stream.read(again, again + 1).inputs)


def test_a_step_larger_than_the_set_is_said(data):
    notes = Ccc(data, shifts=NAMES, speed=100, length=100).notes
    assert any("goes over the 60 images of the set more than once" in note for note in notes)
    assert Ccc(data, shifts=NAMES, speed=60, length=100).notes == ()


def test_correlated_needs_labels():
    images = torch.rand(20, 3, 32, 32)
    with pytest.raises(DataError, match="needs labels"):
        Correlated(load_data(images), shifts=["contrast"])


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("ccc", {"length": 0}),
        ("ccc", {"speed": 0}),
        ("ccc", {"severity": 6.0}),
        ("ccc", {"shifts": ["contrast"]}),
        ("ccc", {"shifts": ["contarst", "fog"]}),
        ("mixed", {"batch_size": 0}),
        ("correlated", {"concentration": -1.0}),
        ("endless", {}),
    ],
)
def test_what_cannot_be_is_refused(kind, options, data):
    with pytest.raises(ConfigurationError):
        make(kind, data, **options)


def test_positions_beyond_the_stream_are_refused(data):
    stream = make("mixed", data)
    with pytest.raises(ConfigurationError):
        stream.read(140, 151)
    with pytest.raises(ConfigurationError):
        stream.seek(151)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", STREAMS)
def test_batches_made_ahead_are_those_made_at_once(kind, data):
    stream = make(kind, data, device="cuda", length=1500)
    for start, batch in zip(range(0, 1500, 16), stream, strict=False):
        assert same(batch, stream.read(start, min(start + 16, 1500)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_giving_up_in_the_middle_ends_the_thread(data):
    import threading

    before = threading.active_count()
    batches = make("ccc", data, device="cuda", length=100_000, speed=1000).batches()
    next(batches)
    batches.close()
    assert threading.active_count() == before


def test_large_sets_are_read_as_they_come(data, monkeypatch):
    from shiftproof.streams import pool

    held = make("ccc", data).read(10, 90)
    monkeypatch.setattr(pool, "HELD_BYTES", {})
    assert same(make("ccc", data).read(10, 90), held)
