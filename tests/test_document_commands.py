"""Commands of the documents are run, not only understood: in a folder with a reader's files, and at small sizes.

Those that show their output on a page where nothing is prepared run as they are, and the output is compared. The others
take minutes together, and run with `make test-slow`. What needs more than a reader's own model and photos (published
sets, networks of other packages, a GPU, a cluster) is listed in `NEEDS`.
"""

import re
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import shiftproof as run_command
from tests.test_documents import DOCUMENTS, FOLLOWED, ROOT, commands, same

SMALL = {
    "audit": ("--images", "8", "--sections", "clean"),
    "calibrate": ("--images", "64"),
    "certify": ("--images", "2", "--n", "100"),
    "compare-methods": ("--images", "16"),
    "compare-on-stream": ("--images", "64", "--methods", "source,bn"),
    "find-failures": ("--images", "16"),
    "preview-stream": ("--images", "500"),
    "search": ("--images", "4", "--budget", "10", "--length", "2"),
    "spectrum": ("--images", "4", "--step", "16", "--n", "100"),
    "write-stream": ("--images", "20"),
}
"""Options that make a command quick, where it has them: the last of two counts."""
NEEDS = (
    *("CamVid", "ImageNet-C", "CIFAR-10-C", "cifar-10", "imagenet", "timm:", "torchvision:", "my-classifier"),
    *(
        "cuda",
        "ray",
        "bfloat16",
        "reviews.csv",
        "resnet56",
        "robust",
        ".npz",
        "mirrored:",
        "smear",
        "climb",
        "folders:",
    ),
    *(
        "state_dict.pth",
        "rotation",
        "harden",
        "estimate",
        "diagnose",
        "run-protocol",
        "calibrate",
        "--config",
        "camvid",
    ),
)
"""Words of commands that need more than `reader` prepares, or minutes however small."""
MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
"""


def consoles(path):
    """Yield the commands of a page with what is shown below them; scripts show nothing."""
    for kind, block in re.findall(r"^```(console|bash|sh)\n(.*?)^```", path.read_text(), re.M | re.S):
        script = block if kind == "console" else re.sub(r"^(?=shiftproof )", "$ ", block, flags=re.M)
        yield from commands(script)


@pytest.mark.parametrize("name", ["install.md", "guide/gating.md"])
def test_what_is_shown_below_a_command_is_printed(name, tmp_path):
    shown = [(words, below) for words, below in consoles(ROOT / "docs" / name) if below.strip()]
    assert shown
    for words, below in shown:
        result = run_command(*words, cwd=tmp_path)
        assert result.returncode in (0, 3), result.stderr
        assert same(below, result.stdout), result.stdout


def runnable(path):
    """Return the commands of a page that a reader's own files are enough for."""
    return [words for words, _ in consoles(path) if not any(need in " ".join(words) for need in NEEDS)]


PAGES = [path for path in DOCUMENTS if path not in FOLLOWED and runnable(path)]


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_commands_run(path, reader):
    for words in runnable(path):
        result = run_command(*words, *small(words), cwd=reader)
        assert result.returncode in (0, 3), f"{' '.join(words)}\n{result.stderr}"


def small(words):
    """Return what makes a command quick: options that it does not have are left out."""
    wanted = SMALL.get(words[0], ())
    pairs = list(zip(wanted[::2], wanted[1::2], strict=True))
    if words[0] == "spectrum" and "acr" not in words:
        pairs = [pair for pair in pairs if pair[0] != "--n"]
    if words[0] == "audit" and "--require" in words:
        pairs = [pair for pair in pairs if pair[0] != "--sections"]
        pairs += [("--sections", "clean,corruptions,worst_case"), ("--shifts", "fog"), ("--severities", "3")]
    return [word for pair in pairs for word in pair]


def test_most_pages_with_commands_have_some_that_run():
    assert sum(len(runnable(path)) for path in PAGES) >= 30


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    """Return a folder with what a reader has: models, photos of two classes, and a table of cameras."""
    for name in ("model", "old", "new", "other"):
        (tmp_path / f"{name}.py").write_text(f"{MODEL}\n# {name}\n")
    for folder in ("photos", "new-photos", "validation", "labelled", "unlabelled", "train", "test"):
        for number in range(8):
            path = tmp_path / folder / ("cat", "dog")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 32), (20 * number, 60, 200 - 20 * number)).save(path)
    rows = [f"{('cat', 'dog')[number % 2]}/{number}.png,{'AB'[number % 2]}" for number in range(8)]
    (tmp_path / "cameras.csv").write_text("\n".join(["file,camera", *rows]) + "\n")
    return tmp_path
