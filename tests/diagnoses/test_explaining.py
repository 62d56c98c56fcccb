"""Fits of known shifts to a change: what was put in comes out, and the class mix apart."""

import numpy as np
import pytest

from shiftproof.diagnoses.diagnosis import Likeness, with_mix
from shiftproof.diagnoses.explaining import Curves, KnownShift, left_out_shares
from shiftproof.diagnoses.signature_space import SignatureSpace

KINDS = ("fog", "snow", "noise")
SEVERITIES = (1.0, 2.0, 3.0, 4.0, 5.0)


def curves(together=0.0):
    """Return curves that bend, in directions of their own, and what two do to each other."""
    rng = np.random.default_rng(0)
    ends, bends = rng.normal(size=(2, 3, 40))
    grown = np.array(SEVERITIES)[None, :, None]
    points = grown * ends[:, None] + 0.05 * grown**2 * bends[:, None]
    joint = together * rng.normal(size=(3, 3, 40))
    return Curves(KINDS, SEVERITIES, points, joint)


@pytest.mark.parametrize("severity", [0.6, 1.0, 2.3, 4.9])
@pytest.mark.parametrize("kind", KINDS)
def test_a_single_shift_comes_back(kind, severity):
    known = curves()
    found = known.singles(known.changed_by((KnownShift(kind, severity),)))[0]
    assert found.parts[0].kind == kind
    assert found.parts[0].severity == pytest.approx(severity, abs=0.05)
    assert found.left == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("together", [0.0, 2.0])
@pytest.mark.parametrize("severities", [(1.0, 1.0), (2.6, 1.3), (3.9, 2.2)])
def test_two_shifts_come_back_in_their_order(severities, together):
    known = curves(together)
    parts = KnownShift("snow", severities[0]), KnownShift("fog", severities[1])
    found = known.pairs(known.changed_by(parts))[0]
    assert found.kinds == {"snow", "fog"}
    if together:
        assert [part.kind for part in found.parts] == ["snow", "fog"]
    by_kind = dict(found.parts)
    assert by_kind["snow"] == pytest.approx(severities[0], abs=0.25)
    assert by_kind["fog"] == pytest.approx(severities[1], abs=0.25)


def test_a_kind_is_not_less_likely_for_being_measured_less_exactly():
    known = curves()
    noise = np.random.default_rng(1).normal(size=known.points[0].shape)
    near = known.points[:1] + 0.25 * np.random.default_rng(2).normal(size=known.points[0].shape)
    blurred = np.concatenate([known.points[:1] + 0.5 * noise, near])  # fog with error, mist that is like it without
    errors = np.array([[0.5**2 * 40] * 5, [0.0] * 5])
    fog = known.changed_by((KnownShift("fog", 3.0),))
    assert Curves(("fog", "mist"), SEVERITIES, blurred).singles(fog)[0].parts[0].kind == "mist"
    exact = Curves(("fog", "mist"), SEVERITIES, blurred, errors=errors)
    assert exact.singles(fog)[0].parts[0].kind == "fog"
    assert exact.of(("fog",)).error_of((KnownShift("fog", 3.0),)) == pytest.approx(10)


def test_what_is_not_known_is_left_unexplained():
    known = curves()
    shares = left_out_shares(known)
    assert shares.shape == (15,)
    assert shares.min() > 0.5  # directions of their own: the others cannot explain them
    double = Curves((*KINDS, "mist"), SEVERITIES, np.concatenate([known.points, known.points[:1]]))
    assert np.median(left_out_shares(double)[:5]) < 1e-6  # fog is explained by mist


def test_severities_between_measured_ones_are_surer_on_straight_curves():
    bent = curves()
    straight = Curves(KINDS, SEVERITIES, bent.points[:, :1] * np.array(SEVERITIES)[None, :, None])
    assert straight.interpolation_error("fog") < 0.02
    steps = np.array([1.0, 1.0, 1.0, 4.0, 5.0])[None, :, None]
    assert Curves(KINDS, SEVERITIES, bent.points[:, :1] * steps).interpolation_error("fog") > 0.3


def signed(rng, labels, shift=0.0):
    """Return signatures of images whose classes differ, moved in one direction."""
    means = rng.normal(size=(len(labels), 6)) * 0.2 + np.eye(3)[labels].repeat(2, 1) + shift
    return np.concatenate([means, means**2 + 0.1], 1).astype(np.float32)


def test_a_class_mix_is_recovered_and_is_no_change():
    rng = np.random.default_rng(0)
    labels = np.arange(1500) % 3
    space = SignatureSpace.of(signed(rng, labels), labels)
    other = rng.choice(3, 1500, p=[0.7, 0.2, 0.1])
    place = space.coordinates(signed(rng, other).mean(0))
    mix = space.nearest_mix(place)
    assert mix.shares == pytest.approx([0.7, 0.2, 0.1], abs=0.05)
    rest = space.without_mix(place - mix.place)
    assert rest @ rest / (1 / 1500 + mix.error(space.counts)) / space.dimensions < 2
    moved = space.without_mix(space.coordinates(signed(rng, labels, shift=0.5).mean(0)))
    assert moved @ moved * 750 / space.dimensions > 20


def test_content_does_not_hide_a_shift():
    rng = np.random.default_rng(0)
    labels = np.arange(800) % 2
    content = rng.normal(size=(30,))

    def images(count, shift):
        means = rng.normal(size=(count, 1)) * content + 0.1 * rng.normal(size=(count, 30)) + shift
        return np.concatenate([means, means**2 + 0.1], 1).astype(np.float32)

    space = SignatureSpace.of(images(800, 0.0), labels)
    assert 0 < len(space.content) <= 800 // 40
    assert space.reach[0] > 3
    across = rng.normal(size=30)
    across -= across @ content / (content @ content) * content
    sizes = []
    for shift in (0.0, 0.02 * across):
        off = space.without_mix(space.coordinates(images(800, shift).mean(0)))
        sizes.append(off @ off * 400 / space.dimensions)
    assert sizes[0] < 2
    assert sizes[1] > 3  # content makes it 1/20 of the spread of a channel


def test_a_class_mix_under_a_shift_is_told_by_predictions():
    rng = np.random.default_rng(0)
    labels = np.arange(900) % 3
    same = Likeness((), 9.0, 1.0, 1.0, 0.0, 0.5, 3.0, (0.1, 0.6), (), (1 / 3,) * 3, (1 / 3,) * 3)

    def predicted(truth):
        return np.where(rng.random(len(truth)) < 0.7, truth, (truth + 1) % 3)

    new = rng.choice(3, 900, p=[0.8, 0.1, 0.1])
    found = with_mix(same, labels, predicted(labels), predicted(new))
    assert found.mix_changed
    assert found.mix == pytest.approx((0.8, 0.1, 0.1), abs=0.08)
    assert not with_mix(same, labels, predicted(labels), predicted(labels)).mix_changed
