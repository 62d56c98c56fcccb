"""What the report of a hardening says."""

from dataclasses import replace

from shiftproof.hardening.choice import Choice
from shiftproof.hardening.hardened import Change, Hardened
from shiftproof.hardening.hardening_views import views
from shiftproof.hardening.training_time import Fitted
from shiftproof.shifts import names

CHOICE = Choice((), "mixed+anchor", "prime + random_wave[share=0.3]", Fitted(2, None, "sgd", 0.01, 0.99, 20, 0.1), True)


def rises(**points: float) -> tuple[Change, ...]:
    return tuple(Change(f"accuracy.{name}", 0.5, 0.5 + more / 100, None, None) for name, more in points.items())


def test_a_corruption_that_is_like_what_was_trained_on_is_counted_apart(tmp_path):
    changes = rises(**{name: 30.0 if name == "single_frequency_greyscale" else 8.0 for name in names("bar")})
    found = Hardened(tmp_path, "hardened", CHOICE, (60, 30, 30), 1.0, changes=rises(fog=5.0), unseen=changes)
    assert any("without it, they rise by +8.0 points" in str(note) for note in views(found)[0].notes)
    other = replace(found, choice=replace(CHOICE, augment="prime"))
    assert not any("without it" in str(note) for note in views(other)[0].notes)
