"""Names that others add, by entry points and by `register`: a real package of one of each kind, and broken ones."""

import ast
import importlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from annotated_types import Lt
from torch import nn

import shiftproof
from shiftproof import adapters, shifts
from shiftproof.audits.auditing import gate
from shiftproof.audits.sections import SECTIONS, applicable
from shiftproof.cli.catalogue import list_names, show
from shiftproof.comparisons.along_streams import compare_on_stream
from shiftproof.comparisons.methods import compare_methods
from shiftproof.errors import ConfigurationError, ModelError, RunError
from shiftproof.estimators import Calibration, Estimator
from shiftproof.exports import writing
from shiftproof.registry import KINDS, Registry, registry
from shiftproof.registry import register as typed_register
from shiftproof.streams import make_stream
from shiftproof.training import Recipe, recipe
from shiftproof.training.objectives import CrossEntropy

PACKAGE = Path(__file__).parent / "plugin"
register: Any = typed_register  # kinds that are no kinds are tried too


class Doubled(CrossEntropy):
    """Twice the cross-entropy."""

    def loss(self, moment):
        return 2 * super().loss(moment)


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
    for kind in KINDS:
        registry(kind).__dict__.pop("others", None)
        registry(kind).here.clear()
    for name in [name for name in sys.modules if name.startswith("shiftproof_mirrors")]:
        del sys.modules[name]


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


@pytest.fixture(params=["entry points", "register"])
def added(request, site):
    """Add one of each kind: as an installed package, and in this process."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "src", site, dirs_exist_ok=True)
    if request.param == "entry points":
        return install(site, project["name"], project["entry-points"])
    for group, names in project["entry-points"].items():
        for name, target in names.items():
            module, _, attribute = target.partition(":")
            register(group.removeprefix("shiftproof."), name, getattr(importlib.import_module(module), attribute))
    return None


def test_a_shift_of_a_package_is_a_shift_like_any_other(added):
    images, keys = torch.randint(0, 256, (6, 3, 16, 16)) / 255, torch.arange(6)
    shift = shifts.parse("smear@5")
    shifted = shift(images, keys, seed=1)
    assert "smear" in shifts.names("plugins")
    facts = {"family": "plugins", "category": "blur", "frequency": "low", "monotone": True, "moves": True}
    assert shifts.facts("smear") == facts
    moved = [
        any(torch.equal(one, image.roll(step, -1)) for step in range(-4, 5))
        for one, image in zip(shifted, images, strict=True)
    ]
    assert all(moved)
    assert torch.equal(shift(images[4:], keys[4:], seed=1), shifted[4:])  # by key, whatever the batch
    assert torch.equal(shifts.parse("smear@0")(images, keys), images)
    assert shifts.parse("smear@5[reach=0]")(images, keys, seed=1).equal(images)
    far: Any = shifts.parse("smear@5[reach=1]")
    assert far.reach == 1.0
    with pytest.raises(ConfigurationError, match=r"(?s)reach.*a number"):
        shifts.parse("smear@5[reach=far]")


def test_a_method_of_a_package_adapts(added):
    model = shiftproof.load_model("demo")
    assert isinstance(model, nn.Module)
    (batch,) = shiftproof.load_data("demo").take(8, seed=0).batches(8)
    with torch.inference_mode():
        expected = (model(batch.inputs) + model(batch.inputs.flip(-1))) / 2
    assert torch.allclose(shiftproof.adapt(model, "mirror")(batch.inputs), expected, atol=1e-5)
    assert "mirror" in [row.name for row in adapters.facts()]


def test_an_audit_has_the_sections_shifts_and_methods_of_packages(added, tmp_path):
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
    assert not result.failed
    assert 0.5 < result.numbers["symmetry"] <= 1
    assert {"accuracy.smear", "gain.mirror"} <= result.numbers.keys()
    assert "In the mirror" in result.report.read_text()


def test_a_method_of_estimation_of_a_package_is_calibrated_like_ours(added):
    options: dict[str, Any] = {
        "images": 60,
        "source": shiftproof.load_data("demo-source").take(60, seed=0),
        "views": 2,
        "shifts": [f"{name}@5" for name in ("fog", "contrast", "frost", "snow")],
    }
    found = shiftproof.estimate("demo", "demo", method="margin", **options)
    assert found.method == "margin"
    assert 0 <= found.low <= found.accuracy <= found.high <= 1
    assert found.error is not None
    assert 0 < found.facts["margin"] < 1
    usual = shiftproof.estimate("demo", "demo", **options)
    assert "margin" not in {usual.method, *(one.method for one in usual.others)}  # who did not ask gets what he had


def test_a_calibration_keeps_what_others_were_asked_for(added, monkeypatch):
    source = shiftproof.load_data("demo-source").take(60, seed=0)
    estimator = Estimator.fit(
        shiftproof.load_model("demo"), source, shifts=["fog@5", "snow@5", "frost@5", "contrast@5"], methods=["margin"]
    )
    again = Calibration.from_row(json.loads(json.dumps(estimator.calibration.to_row())))
    assert "margin" in again.methods()
    assert again.errors == estimator.calibration.errors
    monkeypatch.setitem(registry("estimators").__dict__, "others", {})  # uninstalled
    registry("estimators").here.clear()
    assert "margin" not in Calibration.from_row(json.loads(json.dumps(estimator.calibration.to_row()))).methods()


def test_a_searcher_of_a_package_searches_with_options_of_its_own(added):
    def found(**options):
        return shiftproof.search("demo", "demo", images=20, length=2, budget=9, searcher="climb", **options)

    trace = found(tries="3").trace
    assert (len(trace), trace.searcher) == (9, "climb")
    assert [trial.genes for trial in trace.trials] == [trial.genes for trial in found(tries=3).trace.trials]
    with pytest.raises(ConfigurationError, match=r"(?s)tries.*a whole number"):
        found(tries="few")
    with pytest.raises(ConfigurationError, match=r"(?s)no option 'keep'.*tries"):
        found(keep=3)


def test_a_recipe_of_a_package_trains_and_its_options_have_types(added, tmp_path):
    made: Any = recipe("soft", amount="0.3").objective
    assert made.amount == 0.3

    def losses(out=None, **options):
        trained = shiftproof.train(
            "convnet", "demo", images=32, batch_size=16, epochs=1, recipe="soft", options=options, out=out
        )
        return [row["loss"] for row in trained.log]

    assert losses(amount="0.0") != losses(amount=0.9)
    losses(tmp_path)
    with pytest.raises(RunError, match="another"):
        losses(tmp_path, amount=0.5)


def test_recipes_of_one_name_do_not_share_a_run(tmp_path):
    plain = Recipe("mine", "cross-entropy", "none")
    for other in (replace(plain, noise="half"), replace(plain, objective=Doubled())):
        for chosen in (plain, other):
            with nullcontext() if chosen is plain else pytest.raises(RunError, match="another"):
                shiftproof.train("convnet", "demo", recipe=chosen, images=32, batch_size=16, epochs=1, out=tmp_path)


def test_loaders_of_packages_load_by_prefix(added, tmp_path):
    plain, mirror = shiftproof.load_data("demo").take(8, seed=0), shiftproof.load_model("mirrored:demo")
    (batch,) = plain.batches(8)
    model = shiftproof.load_model("demo")
    with torch.inference_mode():
        assert torch.equal(mirror(batch.inputs), model(batch.inputs.flip(-1)))
    flipped = shiftproof.load_data("mirrored:demo")
    assert flipped.fingerprint != shiftproof.load_data("demo").fingerprint
    assert shiftproof.data.load_images("mirrored:demo", size=16).shape == (3, 16, 16)
    once = shiftproof.audit(model, "demo", out=tmp_path / "one", images=40, sections=["clean"])
    twice = shiftproof.audit("mirrored:demo", "mirrored:demo", out=tmp_path / "two", images=1000, sections=["clean"])
    assert abs(once.numbers["clean_accuracy"] - twice.numbers["clean_accuracy"]) < 0.2
    (tmp_path / "box.py").write_text("def build():\n    return lambda images: images.mean((2, 3))")
    with pytest.raises(ConfigurationError, match=r"(?s)model loader 'mirrored' failed on .*TypeError: .*no mirror"):
        shiftproof.load_model(f"mirrored:{tmp_path / 'box.py'}")
    with pytest.raises(ModelError, match="no model file"):
        shiftproof.load_model("mirrored:none.onnx")
    with pytest.raises(ConfigurationError, match=r"mirrored:\.\.\."):
        shiftproof.load_model("mirrord:demo")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("shifts", "smear"),
        ("adapters", "mirror"),
        ("sections", "symmetry"),
        ("estimators", "margin"),
        ("searchers", "climb"),
        ("recipes", "soft"),
        ("models", "mirrored:"),
        ("data", "mirrored:"),
    ],
)
def test_lists_have_what_others_add(added, kind, name, capsys):
    show(list_names(kind), {})
    assert name in capsys.readouterr().out


def test_every_kind_takes_less_than_25_lines():
    """Statements that are neither imports nor docstrings."""
    for file in (PACKAGE / "src" / "shiftproof_mirrors").glob("*.py"):
        lines: set[int] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom) and not text:
                own = node.body[0].lineno if hasattr(node, "body") else (node.end_lineno or 0) + 1
                lines |= set(range(node.lineno, own))
        assert len(lines) < 25, (file.name, len(lines))


def test_what_is_registered_is_checked(site):
    class Rain(shifts.ImageShift):
        """Another of the same name."""

    class Drizzle(shifts.ImageShift):
        """The first of the name."""

    register("shifts", "drizzle", Drizzle)
    register("shifts", "drizzle", Drizzle)  # the same again is nothing new
    with pytest.raises(ConfigurationError, match=r"(?s)'drizzle' cannot be registered.*is registered.*replace=True"):
        register("shifts", "drizzle", Rain)
    register("shifts", "drizzle", Rain, replace=True)
    assert registry("shifts")["drizzle"] is Rain
    for kind, name in (("shifts", "fog"), ("shifts", "rotate"), ("recipes", "jsd"), ("models", "timm")):
        with pytest.raises(ConfigurationError, match=r"(?s)cannot be registered.*'shiftproof' has one"):
            register(kind, name, Rain, replace=True)
    for name in ("My shift", "rain@3", ""):
        with pytest.raises(ConfigurationError, match="small letters"):
            register("shifts", name, Rain)
    for kind in KINDS:
        with pytest.raises(ConfigurationError, match=r"(?s)cannot be registered.*expected"):
            register(kind, "thing", 3)
    with pytest.raises(ConfigurationError, match=r"(?s)no kind of thing to register named 'shift'.*did you mean"):
        register("shift", "rain", Rain)
    install(site, "rainy", {"shiftproof.shifts": {"hail": "json:dumps"}})
    registry("shifts").__dict__.pop("others", None)
    with pytest.raises(ConfigurationError, match="the package 'rainy' has one"):
        register("shifts", "hail", Rain)


def test_what_is_registered_reaches_other_processes(mirrors, tmp_path):
    register("shifts", "drizzle", importlib.import_module("shiftproof_mirrors.smear").Smear)
    found = shiftproof.audit(
        "demo",
        "demo",
        out=tmp_path / "run",
        images=20,
        shifts=["drizzle"],
        severities=[5],
        sections=["clean", "corruptions"],
        executor="processes:1",
    )
    assert not found.failed
    assert "accuracy.drizzle" in found.numbers


BROKEN = {
    "a module that is not there": "nowhere.to.be.found:Section",
    "a module that cannot be imported": "raises_an_error:Section",
    "an attribute that is not there": "json:Section",
    "something else": "json:dumps",
}


@pytest.mark.parametrize("target", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_package_is_named_and_disturbs_nobody_else(site, target):
    (site / "raises_an_error.py").write_text("raise RuntimeError('built for another version')")
    for kind in KINDS:
        group = f"shiftproof.{kind}"
        install(site / group, f"rotten-{group}", {group: {"rotten": target}})
        sys.path.insert(0, str(site / group))
    asked = {
        "sections": lambda: applicable("images", ["rotten"]),
        "adapters": lambda: adapters.method("rotten"),
        "shifts": lambda: shifts.parse("rotten@3"),
        "estimators": lambda: shiftproof.estimate(method="rotten"),
        "recipes": lambda: recipe("rotten"),
        "searchers": lambda: shiftproof.search(searcher="rotten", images=20),
        "models": lambda: shiftproof.load_model("rotten:demo"),
        "data": lambda: shiftproof.load_data("rotten:demo"),
    }
    try:
        forget()
        for kind, ask in asked.items():
            if target == "json:dumps" and kind in ("models", "data"):
                continue  # any function can be one: what it does wrong is found when it is called
            with pytest.raises(ConfigurationError, match=rf"package 'rotten-shiftproof.{kind}' cannot be used"):
                ask()
            if kind != "sections":
                with pytest.warns(UserWarning, match=f"'rotten-shiftproof.{kind}' cannot be used"):
                    show(list_names(kind), {})
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
    assert SECTIONS["clean"].__module__ == "shiftproof.audits.sections.clean"


def test_of_two_packages_with_one_name_the_first_is_kept_and_both_are_named(tmp_path, monkeypatch):
    for package in ("one", "two"):
        install(tmp_path / package, package, {"shiftproof.examples": {"thing": f"{package}:thing"}})
        monkeypatch.syspath_prepend(tmp_path / package)
    made = Registry[Any]("example", "shiftproof.examples", {}, callable)
    with pytest.warns(UserWarning, match="'thing' of the package 'one' is left out: 'two' has one"):
        assert made.others == {"thing": ("two:thing", "two")}


RAIN = """
from dataclasses import dataclass
from shiftproof.shifts import ImageShift

DARKEST = 1.0

@dataclass(frozen=True)
class Rain(ImageShift):
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
    return shiftproof.certify("demo", "demo", sigma=0.05, n=100, n0=10, images=8, shift=shift, out=out).certificates


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
        assert not found.failed
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
    assert gate(tmp_path / "run").numbers == after
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
    model: Any = shiftproof.load_model("demo")
    images = shiftproof.load_data("demo").take(2, seed=0)
    (batch,) = images.batches(2)
    with torch.inference_mode():
        expected = -model(batch.inputs)
    assert torch.allclose(shiftproof.adapt(model, "mine")(batch.inputs), expected, atol=1e-5)
    with pytest.raises(ConfigurationError, match="whole number"):
        shiftproof.adapt(model, "mine", seed=0.5)
    with pytest.raises(ConfigurationError, match="0 or more"):
        shiftproof.adapt(model, "sar", lr=-1.0)
    with pytest.raises(ConfigurationError, match="a number"):  # the type is the default's
        shiftproof.adapt(model, "mine", noise="much")
    assert shiftproof.adapt(model, "mine", noise="-2").options.to_dict()["noise"] == -2.0
    derived = replace(adapters.method("tent"), name="mine")
    with pytest.raises(ConfigurationError, match="0 or more"):
        shiftproof.adapt(model, derived, lr=-1.0)

    class MineOptions(adapters.MethodOptions):
        noise: Annotated[float, Lt(0), "What the answer is multiplied by."] = -1.0

    ranged = replace(adapters.method("mine"), defaults=MineOptions())
    with pytest.raises(ConfigurationError, match=r"(?s)'noise' of 'mine'.*a number below 0"):
        shiftproof.adapt(model, ranged, noise=1.0)


def test_objects_are_taken_or_refused_in_words(tmp_path):
    model: Any = shiftproof.load_model("demo")
    data = shiftproof.load_data("demo").take(20, seed=0)
    fog: Any = shifts.corruption("fog", 3)
    small: Any = {"severities": [5], "sections": ["clean", "corruptions"]}
    assert "accuracy.fog" in shiftproof.audit(model, data, out=tmp_path / "audit", shifts=[fog], **small).numbers
    with pytest.raises(ConfigurationError, match="Two shifts have the same label"):
        shiftproof.audit(model, data, out=tmp_path / "audit", shifts=[fog, shifts.ImageChain(steps=[fog])], **small)
    tent: Any = adapters.method("tent")
    nonsense: Any = 3
    assert shiftproof.adapt(model, tent).method is tent
    with pytest.raises(ConfigurationError, match=r"(?s)Invalid adaptation method.*a int"):
        shiftproof.adapt(model, nonsense)
    verbs: Any = ((shiftproof.audit, None), (compare_methods, ["fog@3"]), (compare_on_stream, None))
    for verb, some in verbs:
        with pytest.raises(ConfigurationError, match=r"(?s)Invalid adaptation method.*a int"):
            verb(model, data, out=tmp_path / "run", methods=[tent, nonsense], shifts=some)
    stream = make_stream("concatenated", data, shifts=[fog, "contrast"], length=40, batch_size=20)
    assert {batch.shift for batch in stream} == {"fog@3", "contrast@5"}
    assert stream.fingerprint != make_stream("concatenated", data, shifts=["fog", "contrast"], length=40).fingerprint
    mixed: Any = make_stream("mixed", data, shifts=[fog, "contrast"])
    assert len(mixed.shifts) == 6
    for kind in ("gradual", "ccc"):
        with pytest.raises(ConfigurationError, match="must be given by name here"):
            make_stream(kind, data, shifts=[fog], length=40)
    found = compare_methods(model, data, shifts=[fog], methods=["bn"], out=tmp_path / "methods")
    assert found.shifts == ("fog@3",)
    chain = shifts.ImageChain(steps=[fog])  # another shift, of the same label
    assert compare_methods(model, data, shifts=[chain], methods=["bn"], out=tmp_path / "methods").shifts == ("fog@3",)
    with pytest.raises(ConfigurationError, match="Two shifts have the same label"):
        compare_methods(model, data, shifts=[fog, chain], out=tmp_path / "methods")
