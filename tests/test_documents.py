"""What the documents say works: Python blocks of the README and the guide run, and docstring examples hold.

Of the pages that a beginner follows, all blocks run in order in one folder, and what they print is compared.
"""

import doctest
import importlib
import linecache
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import shiftproof
from shiftproof.cli.commands import COMMANDS
from shiftproof.cli.derive import build
from tests.processes import python
from tests.processes import shiftproof as run_command

ROOT = Path(__file__).parents[1]
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
DOCUMENTS = [ROOT / "README.md", *PAGES]
FOLLOWED = [ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "tutorials").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}:{number}")
    for path in DOCUMENTS
    if path not in FOLLOWED
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


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_a_page_that_beginners_follow_works_and_prints_what_it_shows(page, tmp_path):
    for kind, block, shown in re.findall(
        r"^```(python|console|toml)\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", page.read_text(), re.M | re.S
    ):
        if file := re.match(r"# (\S+\.\w+)\n", block):
            (tmp_path / file[1]).write_text(block)
            continue
        if kind == "python":
            result = python(block, cwd=tmp_path)
            assert result.returncode == 0, result.stderr
            assert same(shown, result.stdout)
            continue
        for command, shown_below in commands(block):
            result = run_command(*command, cwd=tmp_path)
            assert result.returncode in (0, 3), result.stderr
            assert same(shown_below, result.stdout), result.stdout


def test_what_is_shown_has_to_be_printed():
    assert same("a\n...\nd\n", "a  \nb\nc\nd\n")
    assert not same("a\nd\n", "a\nb\nd\n")


def same(shown, printed):
    """Return whether a text is printed, where `...` stands for any, and blanks at ends of lines for nothing."""
    shown, printed = (re.sub(r"[ \t]+$", "", text, flags=re.M) for text in (shown, printed))
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def commands(block):
    """Yield the arguments of every `shiftproof` command in a block, with what is shown below it."""
    joined = block.replace("\\\n", " ")
    for line, below in re.findall(r"^\$ shiftproof (.*)\n((?:(?!\$ ).*\n)*)", joined, re.M):
        yield shlex.split(line, comments=True), below


def command_lines():
    """Yield every command of the documents: of consoles, and of shell scripts."""
    for path in DOCUMENTS:
        text = path.read_text()
        scripts = re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.M | re.S)
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
        blocks += [re.sub(r"^(?=shiftproof )", "$ ", script, flags=re.M) for script in scripts]
        for block in blocks:
            yield from (pytest.param(words, id=f"{path.stem}: {' '.join(words)}"[:90]) for words, _ in commands(block))


@pytest.mark.parametrize("words", list(command_lines()))
def test_every_command_of_the_documents_is_understood(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (configuration,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs/guide/audit.md").read_text(), re.M | re.S)
    (tmp_path / "audit.toml").write_text(configuration)  # which --config reads
    name, *arguments = words
    if not name.startswith("-"):  # --version and --help are the application's own
        build(name, COMMANDS[name]).make_context(name, [word for word in arguments if word != "..."])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_nothing_is_wider_than_a_page(page):
    text = page.read_text()
    code = re.findall(r"^```(?:python|console|sh|bash|text|toml|yaml)\n(.*?)^```", text, re.M | re.S)
    assert [line for block in code for line in block.splitlines() if len(line) > MOST_CHARACTERS] == []
    rules = re.findall(r"^\|(?: ?:?-+:? ?\|)+$", text, re.M)
    assert [rule for rule in rules if rule.count("|") - 1 > MOST_COLUMNS] == []


MOST_CHARACTERS = 120
"""Of a line of code; longer ones than a window has room for wrap, by `_static/custom.css`."""
MOST_COLUMNS = 10
"""Of a table."""


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_hold(name, tmp_path):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"needs the optional package {error.name}")
    linecache.clearcache()  # or every source that was read so far is looked at again for each example
    result = doctest.testmod(module, extraglobs={"folder": tmp_path}, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_every_command_the_readme_names_exists():
    text = (ROOT / "README.md").read_text()
    named = set(re.findall(r"(?:\$ |`)shiftproof ([a-z-]+)", text)) | {"list"}
    assert named <= set(COMMANDS)
    built = [build(name, command) for name, command in COMMANDS.items()]
    known = {flag for command in built for parameter in command.params for flag in parameter.opts}
    for option in re.findall(r"(--[a-z][a-z-]*)", text):
        assert option in known | {"--help"}
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M))
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "guide").glob("*.md")), ids=lambda page: page.stem)
def test_every_page_of_the_guide_has_a_picture_with_words_for_who_cannot_see_it(page):
    pictures = re.findall(
        r"^```\{(?:image|figure)\} (\S+)\n:alt: (.+)$|^!\[([^\]]+)\]\((\S+)\)$", page.read_text(), re.M
    )
    assert pictures
    for directive, alternative, words, link in pictures:
        path = page.parent / (directive or link)
        assert path.is_file()
        assert len(alternative or words) > 20
        assert path.parent.name != "guide" or path.stat().st_size < 60_000


def test_the_pictures_of_the_guide_are_current():
    script = [sys.executable, str(ROOT / "docs" / "make_guide_pictures.py"), "--check"]
    checked = subprocess.run(script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
