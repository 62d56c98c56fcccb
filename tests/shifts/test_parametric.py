"""The text form of shifts with parameters of their own."""

from __future__ import annotations

import pytest

from shiftproof.errors import ConfigurationError
from shiftproof.registry import resolve
from shiftproof.shifts import parse
from shiftproof.shifts.augment.framing import FlipCrop, RandomErase, RandomTranslate
from shiftproof.shifts.augment.policies import AugMix, AutoAugment, RandAugment
from shiftproof.shifts.parametric import FORMS, Parametric
from shiftproof.shifts.spectral.waves import FourierBasis, PowerLaw

SHIFTS = {
    "power_law[eps=8,center=4,alpha=1]": PowerLaw(8, 4, 1),
    "power_law[eps=8,center=4,alpha=0.5,spread=0]": PowerLaw(8, 4, 0.5, spread=0.0),
    "fourier_basis[i=3,j=-2]": FourierBasis(3, -2),
    "fourier_basis[i=0,j=5,eps=15.7]": FourierBasis(0, 5, eps=15.7),
    "rand_augment": RandAugment(),
    "rand_augment[n=3,magnitude=15,spread=uniform,fill=grey]": RandAugment(3, 15, "uniform", "grey"),
    "auto_augment[policy=imagenet]": AutoAugment("imagenet"),
    "augmix[strength=5]": AugMix(strength=5.0),
    "random_translate": RandomTranslate(),
    "random_erase[largest=0.5]": RandomErase(largest=0.5),
    "flip_crop[flip=0]": FlipCrop(flip=0.0),
}


@pytest.mark.parametrize(("text", "shift"), SHIFTS.items())
def test_text_form_is_written_and_read(text: str, shift: Parametric) -> None:
    assert shift.label == text
    assert parse(text) == shift
    assert type(parse(text)) is type(shift)


def test_spaces_do_not_matter() -> None:
    assert parse(" power_law[eps = 8, center = 4, alpha = 1] ") == PowerLaw(8, 4, 1)


def test_every_name_belongs_to_its_class() -> None:
    for name in FORMS:
        assert resolve(FORMS, name, "shift").name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("power_law", "values for eps, center, alpha"),
        ("power_law[eps=8]", "values for center, alpha"),
        ("power_law[eps=loud,center=4,alpha=1]", "a number above 0"),
        ("power_law[eps=-8,center=4,alpha=1]", "(?s)'eps' of 'power_law'.*a number above 0"),
        ("power_law[eps=8,centre=4,alpha=1]", "did you mean  center"),
        ("power_law[eps=8,name=fog]", "no option of 'power_law' named 'name'"),
        ("power_low[eps=8]", "did you mean  power_law"),
        ("fourier_basis[i=1.5,j=2]", "(?s)'i' of 'fourier_basis'.*a whole number"),
        ("rand_augment[magnitude=31]", "(?s)'magnitude'.*a number from 0 to 30"),
        ("rand_augment[spread=wide]", "(?s)no spread named 'wide'.*fixed or uniform"),
        ("auto_augment[policy=cifar]", "did you mean  cifar10"),
        ("augmix[fill=pink]", "no fill named 'pink'"),
        ("flip_crop[flip=0.5", "Cannot read"),
    ],
)
def test_what_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse(text)
