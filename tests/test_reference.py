"""The reference has every public name, each parameter is described, and what users call or make has an example."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import shiftproof
from shiftproof.cli.commands import COMMANDS

pytest.importorskip("sphinx", reason="the reference is made by Sphinx")
DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
error_tables, public_names = import_module("error_tables"), import_module("public_names")
NAMES = public_names.public_names()
PAGES = {path.stem: path.read_text() for path in (DOCS / "reference").glob("*.md")}
TREES = "\n".join(re.findall(r"```{toctree}(.*?)```", (DOCS / "index.md").read_text() + PAGES["index"], re.S))


@pytest.mark.parametrize("package", {each.package: None for each in NAMES})
def test_every_package_has_a_page_that_lists_all_its_names(package):
    assert f"```{{public-names}} {package}\n" in PAGES[package]
    assert re.search(rf"^{package}$", TREES, re.M)


def test_every_room_with_public_names_is_known():
    rooms = {name for name in shiftproof._HOMES if hasattr(getattr(shiftproof, name), "__all__")}
    assert rooms == set(public_names.PACKAGES)
    assert all(getattr(shiftproof, name) is not None for name in public_names.MODULES if name != "registry")


def test_every_name_of_the_top_level_is_one_of_a_package():
    known = {each.name for each in NAMES} | set(shiftproof._HOMES) | {"__version__"}
    assert set(shiftproof.__all__) <= known


def test_every_name_is_described_and_so_is_each_of_its_parameters():
    assert [each.path for each in NAMES if not each.text] == []
    assert {each.path: each.undescribed() for each in NAMES if each.undescribed()} == {}


def test_a_parameter_that_nobody_describes_is_found():
    def bare(known: int, forgotten: int) -> None:  # noqa: D417
        """Do nothing.

        Args:
            known: A number.
        """

    assert public_names.PublicName("none", "bare", bare).undescribed() == ["forgotten"]


def test_verbs_and_classes_that_users_make_have_an_example():
    verbs = {command.verb.rpartition(":")[2] for command in COMMANDS.values() if ".cli." not in command.verb}
    verbs |= {name for name in shiftproof.__all__ if callable(getattr(shiftproof, name)) and name.islower()}
    wanted = [
        each
        for each in NAMES
        if (each.kind == "class" and each.name not in public_names.RETURNED.get(each.package, "").split())
        or (each.kind == "function" and each.name in verbs)
    ]
    assert [each.path for each in wanted if ">>>" not in each.text] == []


def test_what_needs_no_example_exists():
    public = {(each.package, each.name) for each in NAMES}
    assert {(room, name) for room, names in public_names.RETURNED.items() for name in names.split()} <= public


def test_every_error_of_the_package_is_in_the_list_of_messages():
    listed = re.findall(r"```{error-messages} (.*)", (DOCS / "error-messages.md").read_text())
    rooms = [room for line in listed for room in line.split()]
    assert len(rooms) == len(set(rooms))
    source = Path(shiftproof.__path__[0])
    raising = {path.relative_to(source).parts[0].removesuffix(".py") for path in source.rglob("*.py")}
    assert {room for room in raising if error_tables.messages(room)} <= set(rooms)
    (message,) = (each for each in error_tables.messages("models") if "needs weights" in each.headline)
    assert message.headline == "The reference network ... needs weights."
    assert "safetensors" in message.expected


OTHERS_MESSAGES = {"No matching distribution found for shiftproof", "No such option"}  # of pip, and of typer


def test_troubleshooting_quotes_messages_that_exist():
    text = (DOCS / "troubleshooting.md").read_text()
    terms = re.findall(r"^(`.*)\n: ", text, re.M)
    quoted = [phrase.strip(" .") for term in terms for phrase in re.findall(r"`([^`]+)`", term)]
    sources = "\n".join(path.read_text() for path in Path(shiftproof.__path__[0]).rglob("*.py"))
    assert len(quoted) > 15
    assert [one for one in quoted if one not in OTHERS_MESSAGES and one.split(" ... ")[0] not in sources] == []
