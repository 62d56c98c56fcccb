"""Fuzz targets for every text a user writes where a name, a path or a number is meant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer
from hypothesis import assume, given
from hypothesis import strategies as st

from shiftproof import load_data, load_model
from shiftproof.audits import requirements
from shiftproof.audits.audit_settings import make_settings
from shiftproof.cli.commands import COMMANDS
from shiftproof.cli.derive import options_for, value_of
from shiftproof.data.labels import number_classes
from shiftproof.errors import printable
from shiftproof.models import choose_device
from shiftproof.searchers import make_space
from shiftproof.shifts import parse
from tests.fuzz.mutating import attack, keep, kept, survive

NAMES = [
    "fog",
    "contrast",
    "power_law",
    "eda",
    "typos",
    "demo",
    "resnet20",
    "timm:",
    "x.py:build",
    "cuda:",
    "eps",
    "mce < 70",
]
NUMBERS = ["3", "-1", "nan", "1e999", "9" * 400]
SIGNS = [*"@=[]+,:;.~/\\\0\n -<>%{}'\"", " + ", "\u202e", "\x1b[31m", "\ud800", "x" * 300]
PIECES = st.sampled_from([*NAMES, *NUMBERS, *SIGNS])
TEXTS = st.text(max_size=12) | st.lists(PIECES, max_size=8).map("".join)


LISTS = [each for each in options_for(COMMANDS["audit"]) if each.name in ("shifts", "severities")]


def option(text: str) -> object:
    """Read a list of numbers as the command line does, whose own error is as good as ours."""
    try:
        return [value_of(each, [text]) for each in LISTS]
    except typer.BadParameter as error:
        return str(error)


def here(text: str) -> str:
    """Leave paths out that lead to the files of whoever runs the tests."""
    assume(not text.startswith(("/", "~")) and ".." not in text)
    return text


TARGETS: dict[str, Callable[[str], object]] = {
    "shift": lambda text: (found := parse(text)).label and parse(found.label),
    "space": make_space,
    "model": lambda text: load_model(here(text)),
    "data": lambda text: load_data(here(text)),
    "device": choose_device,
    "numbers": option,
    "sections": lambda text: make_settings(sections=[text]),
    "shifts": lambda text: make_settings(shifts=[text]),
    "methods": lambda text: make_settings(methods=[text]),
    "requirement": lambda text: str(requirements.parse(text)),
    "class name": lambda text: number_classes([text, "dog"], [text, "cat", "dog"]),
}


def fuzz(name: str, examples: int) -> None:
    last = [""]

    @given(TEXTS)
    def once(text: str) -> None:
        last[0] = text
        survive(lambda: TARGETS[name](text))

    try:
        attack(once, examples)
    except BaseException:
        keep(f"word {name}", last[0].encode("utf-8", "surrogatepass"))
        raise


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, content.decode("utf-8", "surrogatepass")) for name in TARGETS for content in kept(f"word {name}")],
)
def test_what_was_too_much_once_is_an_error_or_a_result(name, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    survive(lambda: TARGETS[name](text))


@pytest.mark.parametrize("name", TARGETS)
def test_any_text_is_an_error_or_a_result(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_thousands_of_texts(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fuzz(name, 2000)


@given(st.text())
def test_what_is_shown_cannot_steer_a_terminal(text):
    shown = printable(text)
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in shown if letter != "\n")
    assert not set(shown) & set("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    shown.encode()
