"""What counts of code: every change of what it does, and no change of what it says."""

from __future__ import annotations

import importlib.util
import itertools
import sys
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from shiftproof.models import fingerprint, load_model
from shiftproof.models.code_content import bytecode_content, code_content, code_contents, is_function
from shiftproof.models.identity import digest
from shiftproof.models.sources import contents_of, source_digest

CODE = '''
"""A module."""
from functools import wraps
from torch import nn

SCALE = 2.0
"""By how much."""

def twice(function):
    """Call it twice."""
    @wraps(function)
    def inner(x):
        """Inside."""
        return function(function(x))  # first the inner one
    return inner

@twice
def shifted(x, by=1, *, up=True):
    """Shift."""
    def nested(y):
        return y * 3
    text = """Two
  lines"""
    if up and by > 0:
        return nested(x) + by
    return [lambda y: y - 1, f"{x:>{by}} of {x!r}", text, {**{}}, x[1:], -x][0]

class Net(nn.Module):
    """A network."""

    width: int = 4
    """How wide."""

    def forward(self, images):
        """Answer."""
        try:
            return images.mean((2, 3)) * SCALE
        except ValueError:
            raise

build = Net
'''
SAME = {
    "docstring of the module": ('"""A module."""', '"""Another\nmodule."""'),
    "docstring removed": ('    """Shift."""\n', ""),
    "docstring of a nested function": ('"""Inside."""', '"""Within."""'),
    "docstring of a class": ('"""A network."""', '"""The def lambda class network."""'),
    "docstring of a method": ('"""Answer."""', "'Answers.'"),
    "docstring of a field": ('"""How wide."""', '"""In channels."""'),
    "docstring of a constant": ('"""By how much."""\n', ""),
    "comment": ("# first the inner one", "# twice"),
    "comment above": ("@twice\n", "# decorated\n@twice\n"),
    "formatting": ("(x, by=1, *, up=True)", "(\n    x,\n    by = 1,\n    *, up=True,\n)"),
    "empty lines": ("build = Net", "\n\nbuild = Net"),
    "brackets": ("return y * 3", "return (y * 3)"),
    "quotes": ('f"{x:>{by}} of {x!r}"', "f'{x:>{by}} of {x!r}'"),
}
OTHER = {
    "constant": ("SCALE = 2.0", "SCALE = 2.5"),
    "type of a constant": ("SCALE = 2.0", "SCALE = 2"),
    "kind of text": ("SCALE = 2.0", "SCALE = b'a'"),
    "operator": ("nested(x) + by", "nested(x) - by"),
    "comparison": ("by > 0", "by >= 0"),
    "boolean operator": ("up and by", "up or by"),
    "unary operator": (", -x]", ", +x]"),
    "default": ("by=1", "by=2"),
    "default by keyword": ("up=True", "up=False"),
    "keyword only": ("by=1, *, up", "by=1, up"),
    "decorator removed": ("@twice\n", ""),
    "nested function": ("return y * 3", "return y * 4"),
    "nested lambda": ("lambda y: y - 1", "lambda y: y - 2"),
    "wrapper": ("function(function(x))", "function(x)"),
    "base": ("(nn.Module)", "(nn.Identity)"),
    "name": ("def nested(y)", "def nester(y)"),
    "annotation": ("width: int = 4", "width: float = 4"),
    "field": ("width: int = 4", "width: int = 5"),
    "format": ("{x:>{by}}", "{x:<{by}}"),
    "conversion": ("{x!r}", "{x!s}"),
    "text in an f-string": (" of ", " off "),
    "lines of a text": ("  lines", "    lines"),
    "slice": ("x[1:]", "x[:1]"),
    "index": ("][0]", "][1]"),
    "order": ("[lambda y: y - 1, f", "[f"),
    "exception": ("except ValueError", "except TypeError"),
    "import": ("import wraps", "import wraps, partial"),
    "statement": ("            raise\n", "            return None\n"),
    "text that is returned": ("    return inner\n", "    return 'inner'\n"),
}
NUMBERS = itertools.count()


def edited(change: tuple[str, str]) -> str:
    assert CODE.count(change[0]) >= 1
    return CODE.replace(*change)


def imported(folder: Path, text: str) -> ModuleType:
    path = folder / f"code_of_{next(NUMBERS)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SAME)
def test_what_code_says_does_not_count(name: str, tmp_path: Path) -> None:
    text = edited(SAME[name])
    assert text != CODE
    assert code_content(text) == code_content(CODE)
    for folder, held in (("a", CODE), ("b", text)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(held)
    one, other = (load_model(f"{tmp_path}/{folder}/model.py") for folder in "ab")
    assert fingerprint(one) == fingerprint(other)
    assert source_digest(tmp_path / "a" / "model.py") == source_digest(tmp_path / "b" / "model.py")
    before, after = imported(tmp_path, CODE), imported(tmp_path, text)
    assert digest(before.shifted) == digest(after.shifted)
    assert digest(before.Net) == digest(after.Net)
    assert bytecode_content(before.shifted.__code__) == bytecode_content(after.shifted.__code__)


@pytest.mark.parametrize("name", OTHER)
def test_what_code_does_counts(name: str, tmp_path: Path) -> None:
    text = edited(OTHER[name])
    assert code_content(text) != code_content(CODE)
    for folder, held in (("a", CODE), ("b", text)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(held)
    one, other = (load_model(f"{tmp_path}/{folder}/model.py") for folder in "ab")
    assert fingerprint(one) != fingerprint(other)


def test_all_changes_differ() -> None:
    contents = [code_content(edited(change)) for change in OTHER.values()]
    assert len({*contents, code_content(CODE)}) == len(OTHER) + 1


def test_the_encoding_of_a_file_is_obeyed() -> None:
    """The same bytes are other texts."""
    latin, greek = (f"# coding: {name}\nx = '".encode() + b"\xe4'" for name in ("latin-1", "iso8859-7"))
    assert code_content(latin) != code_content(greek)
    assert code_content(latin) == code_content("x = '\xe4'")


def test_an_indented_function_is_that_at_the_margin() -> None:
    text = 'def f(x):\n    y = """a\nb"""\n    return y\n'
    indented = '    def f(x):\n        y = """a\nb"""\n        return y\n'
    assert is_function(code_content(indented))
    assert code_content(indented) == code_content(text)
    assert code_content(textwrap.indent(text, "    ")) != code_content(text), "the text in it is another"


@pytest.mark.parametrize("text", ["key=lambda x:", "class:", "x = (", "\0"])
def test_what_is_not_python_counts_as_it_is(text: str) -> None:
    assert code_content(text) == text
    assert not is_function(code_content(text))


@pytest.mark.parametrize(
    "reads",
    [
        "SIZE = len(__doc__)",
        "SIZE = len(getattr(nn, '__doc__'))",
        "import inspect; SIZE = len(inspect.getsource(nn))",
        "SIZE = len(open(__file__).read())",
    ],
)
def test_code_that_reads_texts_counts_with_its_own(reads: str) -> None:
    """Its docstrings and comments decide what it does, and those of the modules beside it."""
    one, other = f'"""One."""\n{reads}', f'"""Other."""\n{reads}'
    assert code_content(one) != code_content(other)
    beside = ({"": reads, "beside": f'"""{word}."""'} for word in ("One", "Other"))
    first, second = map(code_contents, beside)
    assert first != second


def test_a_docstring_that_is_returned_too_counts() -> None:
    one, other = ("def f(x):\n    'a'\n    return 'a'", "def f(x):\n    'b'\n    return 'b'")
    made: list[Any] = [{}, {}]
    for text, names in zip((one, other), made, strict=True):
        exec(text, names)
    assert bytecode_content(made[0]["f"].__code__) != bytecode_content(made[1]["f"].__code__)
    assert code_content(one) != code_content(other)


WRAPPED = """
from functools import wraps

def halved(function):
    @wraps(function)
    def inner(x):
        return function(x) / {by}
    return inner

@halved
def model(x):
    return x
"""
CUT = """
models = [
    lambda x: x
    + {by},
]
"""


@pytest.mark.parametrize(("text", "name"), [(WRAPPED, "model"), (CUT, "models")])
def test_code_that_a_text_leaves_out_counts(text: str, name: str, tmp_path: Path) -> None:
    """`inspect` gives a wrapper the text of what it wraps, and a lambda's first line."""
    one, other = (vars(imported(tmp_path, text.format(by=by)))[name] for by in (2, 3))
    one, other = (held[0] if isinstance(held, list) else held for held in (one, other))
    assert isinstance(one, FunctionType)
    assert contents_of(one) == contents_of(other)
    assert digest(one) != digest(other)


def test_two_classes_of_one_module_are_two(tmp_path: Path) -> None:
    module = imported(tmp_path, "class A:\n    pass\n\nclass B:\n    pass\n")
    assert digest(module.A()) != digest(module.B())
