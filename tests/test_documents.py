"""What the documents say works: Python blocks of the README and the guide run, and docstring examples hold."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import shiftproof
from tests.processes import python

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}:{number}")
    for path in DOCUMENTS
    if "_build" not in path.parts
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S))
]
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(shiftproof.__path__, "shiftproof.")
    if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block, tmp_path):
    result = python(block, cwd=tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name, tmp_path):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs the optional package {error.name}")
    result = doctest.testmod(module, extraglobs={"folder": tmp_path}, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_every_command_the_readme_names_exists():
    from shiftproof.cli.commands import COMMANDS
    from shiftproof.cli.derive import build

    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"(?:\$ |`)shiftproof ([a-z-]+)", text)) | {"list"}
    assert named <= set(COMMANDS)
    commands = [build(name, command) for name, command in COMMANDS.items()]
    known = {flag for command in commands for parameter in command.params for flag in parameter.opts}
    for option in re.findall(r"(--[a-z][a-z-]*)", text):
        assert option in known | {"--help"}
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M))
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)
