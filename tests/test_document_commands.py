"""Commands of the documents are run, not only understood: in a reader's folder, and at small sizes.

Where a page shows what a command prints, it runs as it stands, and the output is compared. What this suite cannot run
is in `NOT_RUN`, with the reason: a command that is new in a document is either run or added there.
"""

import re
import shlex
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.processes import python
from tests.processes import shiftproof as run_command
from tests.reader_files import install_plugin, write_reader_files
from tests.test_documents import DOCUMENTS, FOLLOWED, ROOT, same

OPTIONS_COMPARED = "hours, GPUs or published data; its options are compared with those of the program, below"
NOT_RUN = {
    "shiftproof audit --model timm:": "timm is not among the packages of the tests; tests/ecosystem has it",
    "shiftproof audit --model torchvision:": "nor is torchvision",
    "shiftproof audit --model /shared/": "a cluster of several nodes; tests/runs/test_ray.py has one of this machine",
    "ray start": "a cluster of several nodes",
    "torchrun": "four GPUs; tests/training/test_team.py runs torchrun with two processes",
    "python examples/text_categories.py": "a published set; tests/estimators/test_texts.py runs it on small files",
    "python benchmarks/": OPTIONS_COMPARED,
    "python -m benchmarks.": OPTIONS_COMPARED,
    "OMP_NUM_THREADS=1 python benchmarks/": OPTIONS_COMPARED,
    "RESNET50=": OPTIONS_COMPARED,
    "cd shiftproof": "the reader's checkout",
    "python3 -m venv": "installs; make wheel does it in an environment of its own",
    "python -m venv": "installs, as above",
    "python -m pip": "installs, as above",
    "pip install": "installs, as above",
    ".venv/bin/": "an environment that was installed",
    "make ": "this suite is one of its targets",
}
"""What the commands begin with that are not run here, and why."""
SMALL = {
    "audit": "--images 8 --sections clean",
    "audit --model demo --data cifar10/test.npz": "--images 32 --methods bn --shifts fog --severities 5",
    "audit --config": "--images 8 --sections clean,corruptions --shifts fog --severities 3",
    "audit --model mirrored": "--images 8 --sections clean,symmetry",
    "audit --model model.py:build --data photos/ --out audit/ --require": (
        "--images 8 --sections clean,corruptions,worst_case --shifts fog --severities 3"
    ),
    "audit --model model.py:build --data CIFAR-10-C/": "",
    "audit --model model.py:build --data photos/ --device cuda": "--images 8 --sections clean --device cpu",
    "audit --model net/": "--sections clean,corruptions --shifts fog --severities 3",
    "calibrate": "--images 2000 --precision 0.5 --calibration-images 64 --shifts fog,contrast",
    "certify": "--images 2 --n 100",
    "certify --data demo --sigma 0.03 --images 100 --n 1000 --shift common": "--images 1 --n 10 --n0 2 --alpha 0.5",
    "certify --model cifar10-gaussian-jsd": "--images 1 --n 10 --n0 2 --alpha 0.5 --device cpu --dtype float32",
    "certify --data demo --model cifar10-gaussian-jsd --against rotation": "--images 1 --n 100",
    "certify --model demo --data demo --sigma 0.03 --images 100 --rule radius": "--images 2",
    "compare-methods": "--images 8",
    "compare-on-stream": "--images 64 --methods source,bn",
    "compare-on-stream --stream ccc": (
        "--images 64 --methods source,bn --calibration-images 32 --precision 0.5 --shifts fog,contrast"
    ),
    "diagnose": "--images 12 --no-pairs --kinds fog",
    "estimate": "--images 16 --views 2 --shifts fog@5,contrast@5,spatter@5",
    "estimate --model my-classifier/": "",
    "estimate --outputs": "",
    "find-failures": "--images 8",
    "harden": "--images 20 --test-images 8 --epochs 1 --batch-size 4",
    "preview-stream": "--images 500",
    "run-protocol": "--images 64 --methods bn",
    "search": "--images 4 --budget 10 --length 2",
    "spectrum": "--images 4 --step 16",
    "spectrum --model demo --data demo --measure acr": "--images 4 --step 16 --n 100",
    "train": "--images 8 --epochs 1 --batch-size 4 --device cpu",
    "write-stream": "--images 20",
}
"""Options that make commands quick, by what they begin with; of two settings of an option the last counts."""
PLACES = {
    **{"IN": "photos/", "OUT": "copies/", "UNLABELLED": "unlabelled/", "LABELLED": "labelled/", "NEW": "new-photos/"},
    **{"FOLDER": "photos/", "FILE.csv": "cameras.csv", "DIR": "trained/", "MODEL": "model.py:build", "TRAIN": "train/"},
}
"""What stands for a reader's own files in the README's table."""


class Command(NamedTuple):
    """A command of a page, and what is shown below it."""

    words: tuple[str, ...]
    below: str = ""

    @property
    def reason(self) -> str | None:
        """Why it is not run, if it is not."""
        return next((why for start, why in NOT_RUN.items() if " ".join(self.words).startswith(start)), None)


def commands_of(path: Path) -> list[Command]:
    """Return the commands of a page's consoles and scripts, and those of the README's table."""
    text = path.read_text()
    found = []
    for kind, block in re.findall(r"^```(console|bash|sh)\n(.*?)^```", text, re.M | re.S):
        joined = block.replace("\\\n", " ")
        pattern = r"^\$ (.*)\n((?:(?!\$ ).*\n)*)" if kind == "console" else r"^(.+)\n()"
        found += [
            Command(tuple(shlex.split(line, comments=True)), below) for line, below in re.findall(pattern, joined, re.M)
        ]
    table = re.findall(r"^\| `(shiftproof [^`]* [^`]*)` \|", text, re.M) if path.name == "README.md" else []
    found += [Command(tuple(PLACES.get(word, word) for word in line.split())) for line in table]
    return [command for command in found if command.words]


ALL = [ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", *DOCUMENTS]
COMMANDS = {path: commands_of(path) for path in ALL}
PAGES = [path for path in DOCUMENTS if path not in FOLLOWED and any(not each.reason for each in COMMANDS[path])]


def benchmarks():
    """Return the options that are shown of each benchmark and part of it, in the order they are shown in."""
    shown: dict[tuple[str, ...], dict[str, None]] = {}
    for command in (each for found in COMMANDS.values() for each in found if each.reason == OPTIONS_COMPARED):
        words = [word.strip("[]") for word in command.words[command.words.index("python") + 1 :] if word != "-m"]
        part = words[1:2] if words[1:] and words[1].isalpha() else []
        options = dict.fromkeys(word for word in words if word.startswith("--"))
        shown.setdefault((words[0], *part), {}).update(options)
    return shown


def test_a_command_is_run_or_listed_with_a_reason():
    found = [" ".join(each.words) for commands in COMMANDS.values() for each in commands]
    listed = [text for text in found if any(text.startswith(start) for start in NOT_RUN)]
    assert [text for text in found if text not in listed and not text.startswith("shiftproof ")] == []
    assert [start for start in NOT_RUN if not any(text.startswith(start) for text in found)] == []
    assert [start for start in SMALL if not any(text.startswith(f"shiftproof {start}") for text in found)] == []


@pytest.mark.parametrize(("program", "options"), benchmarks().items(), ids=" ".join)
def test_benchmarks_have_the_options_that_are_shown(program, options, tmp_path):
    name, *part = program
    run, target = ("run_path", str(ROOT / name)) if name.endswith(".py") else ("run_module", name)
    code = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = [{target!r}, *{part!r}, '--help']\n"
    result = python(f"{code}runpy.{run}({target!r}, run_name='__main__')", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert set(options) <= set(re.findall(r"--[a-z][a-z0-9-]*", result.stdout))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return write_reader_files(tmp_path_factory.mktemp("reader"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_run(path, prepared, tmp_path):
    reader = shutil.copytree(prepared, tmp_path / "reader")
    if path.stem == "extending":
        install_plugin(reader)
    if path.stem == "copies":  # its commands write these
        shutil.rmtree(reader / "ImageNet-C")
        shutil.rmtree(reader / "CIFAR-10-C")
    for command in COMMANDS[path]:
        if command.reason:
            continue
        _, *words = command.words
        result = run_command(*words, *small(words, command.below), cwd=reader)
        assert result.returncode in (0, 3), f"{' '.join(words)}\n{result.stderr}"
        assert not command.below.strip() or same(command.below, result.stdout), result.stdout


def small(words, below):
    """Return what makes a command quick: the options of the longest beginning that is listed; none where it shows."""
    starts = [start for start in SMALL if " ".join(words).startswith(start)]
    return [] if below.strip() or not starts else SMALL[max(starts, key=len)].split()
