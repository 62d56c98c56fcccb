"""Names that other packages add by entry points: a real one is installed, and broken ones."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

import shiftproof
from shiftproof import adapters, shifts
from shiftproof.adapters import METHODS
from shiftproof.audits.sections import SECTIONS, applicable
from shiftproof.errors import ConfigurationError
from shiftproof.registry import Registry
from shiftproof.shifts.catalogue import OTHERS

PACKAGE = Path(__file__).parent / "plugin"
REGISTRIES = (SECTIONS, METHODS, OTHERS)


def install(folder, package, groups):
    """Write what an installer writes of a package: its metadata and its entry points."""
    made = folder / f"{package.replace('-', '_')}-0.1.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 0.1\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in names.items()) for group, names in groups.items()
    ]
    (made / "entry_points.txt").write_text("\n".join(lines))


def forget():
    for registry in REGISTRIES:
        registry.__dict__.pop("others", None)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a folder where packages can be installed for one test."""
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path
    forget()


@pytest.fixture
def mirrors(site):
    """Install the package of `tests/plugin` as its own pyproject.toml says."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "src", site, dirs_exist_ok=True)
    install(site, project["name"], project["entry-points"])
    return site


def test_a_shift_of_a_package_is_a_shift_like_any_other(mirrors):
    images, keys = torch.randint(0, 256, (6, 3, 16, 16)) / 255, torch.arange(6)
    shift = shifts.parse("smear@5")
    shifted = shift(images, keys, seed=1)
    assert "smear" in shifts.names("plugins")
    assert shifts.facts("smear") == {"family": "plugins", "category": "blur", "frequency": "low", "monotone": True}
    moved = [
        any(torch.equal(one, image.roll(step, -1)) for step in range(-4, 5))
        for one, image in zip(shifted, images, strict=True)
    ]
    assert all(moved)
    assert torch.equal(shift(images[4:], keys[4:], seed=1), shifted[4:])  # by key, whatever the batch
    assert torch.equal(shifts.parse("smear@0")(images, keys), images)


def test_a_method_of_a_package_adapts(mirrors):
    model = shiftproof.load_model("demo")
    assert isinstance(model, nn.Module)
    (batch,) = shiftproof.load_data("demo").take(8, seed=0).batches(8)
    with torch.inference_mode():
        expected = (model(batch.images) + model(batch.images.flip(-1))) / 2
    assert torch.allclose(shiftproof.adapt(model, "mirror")(batch.images), expected, atol=1e-5)
    assert "mirror" in [row.name for row in adapters.facts()]


def test_an_audit_has_the_sections_shifts_and_methods_of_packages(mirrors, tmp_path):
    result = shiftproof.audit(
        "demo",
        "demo",
        out=tmp_path / "run",
        images=40,
        shifts=["plugins", "contrast"],
        severities=[5],
        sections=["clean", "corruptions", "adaptation", "symmetry"],
        methods=["mirror"],
    )
    assert not result.failures
    assert 0.5 < result.numbers["symmetry"] <= 1
    assert {"accuracy.smear", "gain.mirror"} <= result.numbers.keys()
    assert "In the mirror" in result.report.read_text()


BROKEN = {
    "a module that is not there": "nowhere.to.be.found:Section",
    "a module that cannot be imported": "raises_an_error:Section",
    "an attribute that is not there": "json:Section",
    "something else": "json:dumps",
}


@pytest.mark.parametrize("target", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_package_is_named_and_disturbs_nobody_else(site, target):
    (site / "raises_an_error.py").write_text("raise RuntimeError('built for another version')")
    for group in ("shiftproof.sections", "shiftproof.adapters", "shiftproof.shifts"):
        install(site / group, f"rotten-{group}", {group: {"rotten": target}})
        sys.path.insert(0, str(site / group))
    try:
        forget()
        with pytest.raises(ConfigurationError, match=r"package 'rotten-shiftproof.sections' cannot be used"):
            applicable("images", ["rotten"])
        with pytest.raises(ConfigurationError, match=r"package 'rotten-shiftproof.adapters' cannot be used"):
            adapters.method("rotten")
        with pytest.raises(ConfigurationError, match=r"package 'rotten-shiftproof.shifts' cannot be used"):
            shifts.parse("rotten@3")
        with pytest.warns(UserWarning, match="'rotten-shiftproof.sections' cannot be used"):
            assert "clean" in applicable("images")
        with pytest.warns(UserWarning, match="'rotten-shiftproof.adapters' cannot be used"):
            assert "tent" in [row.name for row in adapters.facts()]
        assert adapters.method("tent").name == "tent"
    finally:
        sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(site / "shiftproof"))]


def test_help_answers_whatever_is_installed(site):
    install(
        site, "rotten", {group: {"rotten": "nowhere:Nothing"} for group in ("shiftproof.sections", "shiftproof.shifts")}
    )
    command = [sys.executable, "-W", "error", "-m", "shiftproof", "--help"]
    told = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(site)}
    )
    assert (told.returncode, told.stderr) == (0, "")
    assert "audit" in told.stdout


def test_of_two_things_with_one_name_ours_is_kept(site):
    install(site, "impostor", {"shiftproof.sections": {"clean": "json:dumps"}})
    with pytest.warns(UserWarning, match="'clean' of the package 'impostor' is left out: 'shiftproof' has one"):
        names = list(SECTIONS)
    assert names.count("clean") == 1
    assert SECTIONS["clean"] == "shiftproof.audits.sections.clean:Clean"


def test_of_two_packages_with_one_name_the_first_is_kept_and_both_are_named(tmp_path, monkeypatch):
    for package in ("one", "two"):
        install(tmp_path / package, package, {"shiftproof.examples": {"thing": f"{package}:thing"}})
        monkeypatch.syspath_prepend(tmp_path / package)
    registry = Registry("example", "shiftproof.examples", {}, callable)
    with pytest.warns(UserWarning, match="'thing' of the package 'one' is left out: 'two' has one"):
        assert dict(registry) == {"thing": "two:thing"}
