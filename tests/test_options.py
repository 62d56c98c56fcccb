"""Options, defined once: every class of every owner says type, range and help, checks values and reads text."""

import math
import pickle
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args, get_origin

import numpy as np
import pytest
from annotated_types import Ge, Gt, Le, Lt

from shiftproof import shifts
from shiftproof.adapters import METHODS, GradientOptions, MethodOptions, adapt, method
from shiftproof.adapters.method import PRESETS
from shiftproof.errors import ConfigurationError
from shiftproof.options import Count, NotNegative, Options, Share, Words, describe, hints, in_words, simple
from shiftproof.registry import resolve
from shiftproof.shifts.parametric import FORMS
from shiftproof.training import RECIPES
from shiftproof.training.settings import TrainingSettings
from tests.adapters.networks import convolutional

PARTS = [part for each in RECIPES.values() for part in (each.objective, each.tuples) if part is not None]
EVERYONE: dict[str, Options] = {
    **{f"method {name}": method(name).defaults for name in METHODS},
    **{f"training {type(part).__name__}": part for part in PARTS},
    "training settings": TrainingSettings(),
}
SHIFTS: dict[str, Any] = {
    each.name: each for each in map(shifts.parse, ("power_law[eps=8,center=4,alpha=1]", "fourier_basis[i=1,j=2]"))
} | {name: resolve(FORMS, name, "shift")() for name in FORMS if name not in ("power_law", "fourier_basis")}
EACH = pytest.mark.parametrize("owner", sorted(EVERYONE))


class Blur(Options):
    width: Annotated[Count, "Pixels on a side."] = 3
    amount: Annotated[Share, "How much of it is mixed in."] = 0.5
    kind: Annotated[Literal["box", "disk"], "The kernel."] = "box"
    limit: Annotated[NotNegative | None, "The largest value; None: no limit."] = None
    mirrored: Annotated[bool, "Whether edges are mirrored."] = False
    sides: Annotated[tuple[int, ...], "Sizes of images it is for."] = (32, 64)

    def check(self) -> None:
        self.require(self.limit is None or self.limit > self.amount, "a limit above the amount")


@EACH
def test_every_field_says_what_it_is(owner: str) -> None:
    options = EVERYONE[owner]
    for each in describe(options):
        assert each.help.endswith("."), f"{each.name} of {owner} has no sentence of help"
        assert each.help[0].isupper()
        assert each.type
        assert each.values
    assert [each.name for each in describe(options)] == list(options.to_dict())


@EACH
def test_defaults_are_valid_and_whole(owner: str) -> None:
    options = EVERYONE[owner]
    assert options.changed(options.to_dict()) == options == type(options)(**options.to_dict())
    assert type(options)() == type(options)().changed({})
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize("name", FORMS)
def test_parameters_of_shifts_are_checked_alike(name: str) -> None:
    shift = SHIFTS[name]
    for each in describe(shift):
        assert each.help.endswith("."), f"{each.name} of {name} has no sentence of help"
        for wrong in _outside(hints(type(shift))[each.name]):
            with pytest.raises(ConfigurationError, match=f"'{each.name}' of '{name}'|no {each.name} named"):
                replace(shift, **{each.name: wrong})
            if isinstance(wrong, float) and math.isfinite(wrong):
                with pytest.raises(ConfigurationError, match=f"'{each.name}' of '{name}'"):
                    shifts.parse(
                        f"{name}[{','.join(f'{k}={v}' for k, v in shift.parameters().items())},{each.name}={wrong}]"
                    )
    same = replace(shift, **{name: float(value) for name, value in shift.parameters().items() if type(value) is int})
    assert same == shift


def test_no_name_of_the_methods_means_two_things() -> None:
    meanings: dict[str, set[tuple[str, str, str]]] = {}
    for name in METHODS:
        for each in describe(method(name).defaults):
            meanings.setdefault(each.name, set()).add((each.type, each.values, each.help))
    assert {name: told for name, told in meanings.items() if len(told) > 1} == {}
    assert {"lr", "views", "prior", "keep_weights", "temperature", "ema", "entropy_margin"} <= meanings.keys()


@EACH
def test_values_out_of_range_are_refused_in_words(owner: str) -> None:
    options = EVERYONE[owner]
    for name, hint in hints(type(options)).items():
        for wrong in _outside(hint):
            with pytest.raises(ConfigurationError) as caught:
                options.changed({name: wrong}, "owner")
            expected = in_words(hint)
            assert caught.value.facts["expected"] == expected, f"{name}={wrong!r} of {owner}"


@EACH
def test_numbers_are_read_from_text(owner: str) -> None:
    options = EVERYONE[owner]
    known = {name: value for name, value in options.to_dict().items() if isinstance(value, bool | int | float | str)}
    assert options.changed({name: str(value) for name, value in known.items()}) == options


@pytest.mark.parametrize("name", sorted(METHODS))
def test_presets_and_variants_are_options_of_their_method(name: str) -> None:
    for preset in (None, *PRESETS):
        for variant in ("paper", "release"):
            assert type(method(name).options(preset, variant, {})) is type(method(name).defaults)
    for option, hint in hints(type(method(name).defaults)).items():
        if get_origin(_bare(hint)) is None and _bare(hint) in (int, float):
            with pytest.raises(ConfigurationError, match=f"'{option}' of '{name}'|A window is"):
                adapt(convolutional(), name, **{option: math.nan})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"width": "5"}, 5),
        ({"width": 5.0}, 5),
        ({"width": np.int64(5)}, 5),
        ({"amount": "0.25"}, 0.25),
        ({"amount": 1}, 1.0),
        ({"amount": np.float32(0.25)}, 0.25),
        ({"kind": "disk"}, "disk"),
        ({"limit": "None"}, None),
        ({"limit": "2"}, 2.0),
        ({"mirrored": "true"}, True),
        ({"mirrored": "False"}, False),
        ({"sides": "32, 224"}, (32, 224)),
        ({"sides": [96]}, (96,)),
    ],
)
def test_values_are_read_by_their_annotation(given: dict[str, Any], read: object) -> None:
    (name,) = given
    found = getattr(Blur().changed(given), name)
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({"width": 0}, r"(?s)'width' of 'blur' cannot.*a whole number, 1 or more.*0"),
        ({"width": True}, r"(?s)a whole number, 1 or more.*True"),
        ({"width": 2.5}, "a whole number, 1 or more"),
        ({"amount": math.nan}, "a number from 0 to 1"),
        ({"amount": "much"}, r"(?s)a number from 0 to 1.*'much'"),
        ({"kind": "boxx"}, r"(?s)no kind named 'boxx'.*did you mean +box.*box or disk"),
        ({"kind": 3}, "box or disk"),
        ({"limit": -1}, "None or a number, 0 or more"),
        ({"limit": 0.1}, "a limit above the amount"),
        ({"mirrored": "perhaps"}, "True or False"),
        ({"mirrored": 1}, "True or False"),
        ({"widht": 3}, r"(?s)no option of 'blur' named 'widht'.*did you mean +width"),
    ],
)
def test_mistakes_are_answered_in_words(given: dict[str, Any], answer: str) -> None:
    with pytest.raises(ConfigurationError, match=answer):
        Blur().changed(given, "blur")


def test_options_are_values() -> None:
    assert Blur(width=5) == Blur().changed({"width": "5"}) != Blur()
    assert hash(Blur()) == hash(Blur())
    with pytest.raises(AttributeError):
        Blur().width = 5  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match="1 or more"):
        Blur(width=0)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Annotated[int, Gt(0), Lt(3)], "a whole number above 0 and below 3"),
        (Annotated[float, Ge(0), Lt(1)], "a number from 0 to less than 1"),
        (Annotated[float, Le(2)], "a number, 2 or less"),
        (Annotated[float, Gt(0), Le(1)], "a number above 0, 1 or less"),
        (Literal["a", "b", "c"], "a, b or c"),
        (Annotated[int, Words("a prime")], "a prime"),
        (list[int], "several of: a whole number"),
    ],
)
def test_ranges_in_words(hint: object, words: str) -> None:
    assert in_words(hint) == words


def test_simple_defaults_have_the_types_of_their_values() -> None:
    made = simple(MethodOptions, {"noise": -1.0, "rounds": 3, "sizes": [1, 2], "reset": 100})
    changed = made.changed({"noise": "2", "rounds": "4", "seed": "7", "reset": "50"})
    assert changed.to_dict() | {"reset": ""} == made.to_dict() | {"noise": 2.0, "rounds": 4, "seed": 7, "reset": ""}
    assert str(changed.reset) == "every(50)"
    assert pickle.loads(pickle.dumps(changed)).to_dict() == changed.to_dict()
    for wrong in ({"noise": "x"}, {"rounds": 2.5}, {"seed": 0.5}):
        with pytest.raises(ConfigurationError, match="number"):
            made.changed(wrong)


def test_shared_options_are_inherited_not_repeated() -> None:
    for name in METHODS:
        kind = type(method(name).defaults)
        for base in (MethodOptions, GradientOptions):
            if kind is not base and issubclass(kind, base):
                assert not set(vars(kind).get("__annotations__", {})) & set(hints(base))


def _bare(hint: Any) -> Any:
    return hint.__origin__ if hasattr(hint, "__metadata__") else hint


def _outside(hint: Any) -> list[object]:
    """Return values that an annotation does not allow."""
    bare, extras = _bare(hint), getattr(hint, "__metadata__", ())
    kinds = get_args(bare) if get_origin(bare) not in (None, Literal) else (bare,)
    if not all(_bare(each) in (int, float, type(None)) or get_origin(each) is Literal for each in kinds):
        return []
    if all(get_origin(each) is Literal for each in kinds):
        return [3, object()]
    wrong: list[object] = [math.nan, -math.inf, "x", [object()], True, object()]
    wrong += [each.ge - 1 for each in extras if isinstance(each, Ge)]  # type: ignore[operator]
    wrong += [each.gt for each in extras if isinstance(each, Gt)]
    wrong += [each.le + 1 for each in extras if isinstance(each, Le)]  # type: ignore[operator]
    wrong += [each.lt for each in extras if isinstance(each, Lt)]
    return wrong
