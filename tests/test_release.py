"""What a release stands on: one version everywhere, the oldest versions promised, and no registry's address."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import shiftproof
from shiftproof.version import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REGISTRIES = ("pypi" + ".org", "python" + "hosted.org", "npmjs" + ".com", "download.py" + "torch.org", "conda" + ".org")


def test_one_version_everywhere():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^## (\S+) ", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == __version__
    assert PROJECT["license"] in (ROOT / "CITATION.cff").read_text()


def test_the_oldest_versions_are_those_that_are_promised():
    extras = [each for name, extra in PROJECT["optional-dependencies"].items() if name != "dev" for each in extra]
    needed = [*PROJECT["dependencies"], *extras]
    promised = dict(re.findall(r"^([\w-]+)>=([\d.]+)$", "\n".join(needed), re.M))
    assert len(promised) == len(needed)
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "tests" / "oldest.txt").read_text(), re.M))
    assert pinned.keys() - promised.keys() == {"click", "onnx"}
    for name, version in promised.items():
        assert f"{pinned[name]}.".startswith(f"{version}."), name  # 2.5 is any 2.5.x


def test_python_versions_are_those_of_the_matrix():
    versions = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.M)
    matrix = re.findall(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "ci.yml").read_text())[0]
    assert re.findall(r"3\.\d+", matrix) == versions
    assert PROJECT["requires-python"] == f">={versions[0]}"


def test_every_make_target_of_the_workflows_exists():
    text = "\n".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    targets = [name for line in re.findall(r"run: make ([a-z -]+)", text) for name in line.split()]
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    assert all(re.search(rf"^{name}:", makefile, re.M) for name in targets)


def test_every_action_is_pinned_to_a_commit_with_its_version_beside_it():
    text = "\n".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    uses = re.findall(r"uses: (.*)", text)
    assert uses
    assert [each for each in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


def test_addresses_are_the_same_everywhere_or_nowhere():
    # No public address is known yet, so none is made up. The first that is written has to be written in both places.
    cited = re.search(r"^repository-code: \"?(\S+?)\"?$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert PROJECT.get("urls", {}).get("Repository") == (cited.group(1) if cited else None)


def test_no_registry_is_named():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a checkout")
    named = [
        (name, registry)
        for name in listed.stdout.splitlines()
        if (ROOT / name).is_file()
        for text in [(ROOT / name).read_bytes()]
        for registry in REGISTRIES
        if registry.encode() in text
    ]
    assert named == []


def test_the_package_says_its_version():
    assert shiftproof.__version__ == __version__
