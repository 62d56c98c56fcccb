"""Names that other packages add by entry points: a real one is installed, and broken ones."""

import importlib
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import shiftproof
from shiftproof import adapters, shifts
from shiftproof.adapters import METHODS
from shiftproof.adapters.ranges import Range
from shiftproof.audits.auditing import reopen
from shiftproof.audits.endurance import endure
from shiftproof.audits.methods import compare_methods
from shiftproof.audits.sections import SECTIONS, applicable
from shiftproof.errors import ConfigurationError, RunError
from shiftproof.registry import Registry
from shiftproof.shifts import writing
from shiftproof.shifts.catalogue import OTHERS
from shiftproof.streams import make_stream

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


RAIN = """
from dataclasses import dataclass
from shiftproof.shifts import Shift

DARKEST = 1.0

@dataclass(frozen=True)
class Rain(Shift):
    density: float = 0.5

    def draw(self, rng, shape):
        return None

    def transform(self, images, drawn):
        return images * (1 - DARKEST * self.density * self.severity / 5)
"""
METHOD = """
from shiftproof.adapters import Method, Parts
from shiftproof.adapters.norms import SourceStatistics

def _parts(o):
    return Parts(norm=SourceStatistics(), learn=lambda adapter, images: adapter.run(images) * o.noise)

MINE = Method("mine", "none", _parts, {"noise": -1.0}, needs_gradients=False, needs_norm_layers=False)
"""


@pytest.fixture
def rain(site):
    """Install a package whose shift has a field and whose method has an option of its own; return how to edit it."""
    names = {"shiftproof.shifts": {"rain": "rain_and_mine:Rain"}, "shiftproof.adapters": {"mine": "rain_and_mine:MINE"}}
    install(site, "rain-and-mine", names)

    def write(**changes):
        text = RAIN + METHOD
        for old, new in changes.values():
            text = text.replace(old, new)
        (site / "rain_and_mine.py").write_text(text)
        sys.modules.pop("rain_and_mine", None)
        importlib.invalidate_caches()
        shutil.rmtree(site / "__pycache__", ignore_errors=True)

    write()
    return write


def certified(shift, out=None):
    return shiftproof.certify("demo", "demo", sigma=0.05, n=200, n0=10, take=20, shift=shift, out=out).certificates


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: shifts.corruption("contrast", 3, "cifar"), lambda: shifts.corruption("contrast", 3, "imagenet")),
        (lambda: shifts.corruption("rain", 5, density=0.02), lambda: shifts.corruption("rain", 5, density=0.9)),
        (lambda: shifts.parse("rain@5[density=0.02]"), lambda: "rain@5[density=0.9]"),
    ],
)
def test_shifts_that_differ_in_a_field_do_not_share_results(rain, one, other, tmp_path):
    first = certified(one(), tmp_path / "run")
    second = certified(other(), tmp_path / "run")
    assert second == certified(other()) != first
    assert len(list((tmp_path / "run").glob("certificate*.json"))) == 2  # nor a file


def test_an_edited_shift_is_another(rain, tmp_path):
    before = certified("rain@5", tmp_path / "run")
    assert certified("rain@5", tmp_path / "run") == before
    rain(darker=("DARKEST = 1.0", "DARKEST = 1.9"))
    assert certified("rain@5", tmp_path / "run") == certified("rain@5") != before


def test_an_audit_measures_edited_shifts_methods_and_sections_anew(rain, mirrors, tmp_path):
    def run(out):
        found = shiftproof.audit(
            "demo",
            "demo",
            out=tmp_path / out,
            images=40,
            shifts=["rain", "contrast"],
            severities=[5],
            sections=["clean", "corruptions", "adaptation", "symmetry"],
            methods=["mine"],
        )
        assert not found.failures
        return dict(found.numbers)

    before = run("run")
    assert run("run") == before
    rain(darker=("DARKEST = 1.0", "DARKEST = 1.9"), turned=("* o.noise", "* -o.noise"))
    path = mirrors / "shiftproof_mirrors" / "symmetry.py"
    path.write_text(path.read_text().replace("(one == other)", "(one != other)"))
    for name in [name for name in sys.modules if name.startswith("shiftproof_mirrors")]:
        del sys.modules[name]
    after = run("run")
    assert after == run("fresh")
    changed = ("accuracy.rain", "gain.mine", "symmetry")
    assert all(after[name] != before[name] for name in changed)
    assert after["accuracy.contrast"] == before["accuracy.contrast"]
    assert reopen(tmp_path / "run").numbers == after
    rain()
    assert run("run")["accuracy.rain"] == before["accuracy.rain"]  # what was measured is there


def test_streams_copies_and_searches_with_an_edited_shift_are_others(rain, tmp_path):
    data = shiftproof.load_data("demo").take(20, seed=0)

    def seen():
        stream = make_stream("concatenated", data, shifts=["rain"], length=20)
        writing.write_corrupted(data, tmp_path / "copy", shifts=["rain@5"])
        found = shiftproof.search(
            "demo", data, space=[("rain@", [5.0])], length=1, searcher="random", budget=1, out=tmp_path / "search"
        )
        return stream.fingerprint, found.worst

    before = seen()
    rain(darker=("DARKEST = 1.0", "DARKEST = 1.9"))
    with pytest.raises(RunError, match="about another corruption"):
        seen()
    shutil.rmtree(tmp_path / "copy")
    after = seen()
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_a_method_of_a_package_has_options_of_its_own(rain):
    """`noise` is an option of ours too, of 0 or more."""
    model = shiftproof.load_model("demo")
    images = shiftproof.load_data("demo").take(2, seed=0)
    (batch,) = images.batches(2)
    with torch.inference_mode():
        expected = -model(batch.images)
    assert torch.allclose(shiftproof.adapt(model, "mine")(batch.images), expected, atol=1e-5)
    with pytest.raises(ConfigurationError, match="whole number"):
        shiftproof.adapt(model, "mine", seed=0.5)
    with pytest.raises(ConfigurationError, match="0 or more"):
        shiftproof.adapt(model, "sar", lr=-1.0)
    derived = replace(adapters.method("tent"), name="mine")  # our parts read its options, so our ranges hold
    with pytest.raises(ConfigurationError, match="0 or more"):
        shiftproof.adapt(model, derived, lr=-1.0)
    ranged = replace(adapters.method("mine"), ranges={"noise": Range("less than 0", lambda value: value < 0)})
    with pytest.raises(ConfigurationError, match="less than 0"):
        shiftproof.adapt(model, ranged, noise=1.0)


def test_objects_are_taken_or_refused_in_words(tmp_path):
    model, data = shiftproof.load_model("demo"), shiftproof.load_data("demo").take(20, seed=0)
    fog = shifts.corruption("fog", 3)
    with pytest.raises(ConfigurationError, match=r"(?s)corruptions go by name.*the shift fog@3"):
        shiftproof.audit(model, data, out=tmp_path, shifts=[fog])
    tent = adapters.method("tent")
    assert shiftproof.adapt(model, tent).method is tent
    with pytest.raises(ConfigurationError, match=r"(?s)not a method of adaptation.*a int"):
        shiftproof.adapt(model, 3)
    for verb, some in ((shiftproof.audit, None), (compare_methods, ["fog@3"]), (endure, None)):
        with pytest.raises(ConfigurationError, match=r"(?s)no method of adaptation named 'tent'.*a Method"):
            verb(model, data, out=tmp_path / "run", methods=[tent], shifts=some)
    stream = make_stream("concatenated", data, shifts=[fog, "contrast"], length=40, batch_size=20)
    assert {batch.shift for batch in stream} == {"fog@3", "contrast@5"}
    assert stream.fingerprint != make_stream("concatenated", data, shifts=["fog", "contrast"], length=40).fingerprint
    assert len(make_stream("mixed", data, shifts=[fog, "contrast"]).shifts) == 6
    for kind in ("gradual", "ccc"):
        with pytest.raises(ConfigurationError, match="corruptions go by name"):
            make_stream(kind, data, shifts=[fog], length=40)
    found = compare_methods(model, data, shifts=[fog], methods=["bn"], out=tmp_path / "methods")
    assert found.shifts == ("fog@3",)
    chain = shifts.Chain(steps=[fog])  # another shift, of the same label
    assert compare_methods(model, data, shifts=[chain], methods=["bn"], out=tmp_path / "methods").shifts == ("fog@3",)
    with pytest.raises(ConfigurationError, match="Two shifts have the same label"):
        compare_methods(model, data, shifts=[fog, chain], out=tmp_path / "methods")
