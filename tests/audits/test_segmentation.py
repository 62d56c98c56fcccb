"""Audits of segmenters: from a folder to numbers, intervals, requirements and a report."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftproof import audit, compare
from shiftproof.adapters import method as find_method
from shiftproof.audits.auditing import gate
from shiftproof.audits.sections import SECTIONS_BY_TASK
from shiftproof.audits.sections.segmentation.map_adaptation import AdaptedMaps, MapAdaptation
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError, ModelError, UsageError
from shiftproof.measures.overlap import Overlap, count_overlap
from shiftproof.models import BlackBox
from shiftproof.models.class_names import with_class_names
from shiftproof.prediction_tasks import MapPrediction, present_classes
from shiftproof.runs import Result
from shiftproof.shifts import as_image_shift
from tests.label_maps import COLOURS, ColourNet, load_masks, painted, write_tree


@pytest.fixture(scope="module")
def images():
    return painted(40)


@pytest.fixture(scope="module")
def clean(images, tmp_path_factory):
    return audit(ColourNet(), images, sections=["clean"], out=tmp_path_factory.mktemp("clean"), device="cpu")


def plain(images, model):
    pictures, maps = images
    with torch.no_grad():
        scores = model(torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255)
    return Overlap(count_overlap(torch.from_numpy(maps), scores.argmax(1), 4, 255))


def test_clean_numbers_are_those_of_a_plain_loop(clean, images):
    expected = plain(images, ColourNet())
    assert 0.3 < expected.value < 0.999
    assert clean.numbers["miou"] == pytest.approx(expected.value)
    assert clean.numbers["pixel_accuracy"] == pytest.approx(expected.pixel_accuracy)
    assert [clean.numbers[f"iou.{label}"] for label in range(4)] == pytest.approx(expected.by_class.tolist())


def test_report_shows_images_maps_and_predictions(clean):
    page = clean.report.read_text()
    for said in ("mIoU on clean images", "label map", "prediction, mIoU of the image", "wrong in red"):
        assert said in page
    exported = json.loads((clean.folder / "results.json").read_text())
    assert exported["numbers"]["miou"] == clean.numbers["miou"]
    assert all("overlap" not in cell for cell in exported["cells"])


@pytest.mark.parametrize("form", ["dict", "stride", "folder", "black box", "batches", "order"])
def test_forms_of_models_and_data_give_the_same_numbers(form, clean, images, tmp_path):
    model: Any = ColourNet()
    data: Any = images
    options: dict[str, Any] = {}
    if form == "dict":
        model = _Wrapped(model)
    elif form == "black box":
        network = ColourNet()
        model = BlackBox(lambda batch: network(batch).detach().numpy(), name="colours")
    elif form == "batches":
        options = {"batch_size": 3}
    elif form == "order":
        data = (images[0][::-1].copy(), images[1][::-1].copy())
    elif form == "folder":
        (tmp_path / "set" / "images").mkdir(parents=True)
        (tmp_path / "set" / "masks").mkdir()
        for row, (picture, labels) in enumerate(zip(*images, strict=True)):
            Image.fromarray(picture).save(tmp_path / "set" / "images" / f"{row}.png")
            Image.fromarray(labels).save(tmp_path / "set" / "masks" / f"{row}.png")
        data = tmp_path / "set"
    elif form == "stride":
        model = ColourNet(stride=2)
    found = audit(model, data, sections=["clean"], out=tmp_path / "run", device="cpu", **options)
    if form == "stride":
        assert found.numbers["miou"] == pytest.approx(plain(images, _Resized(model)).value)
    else:
        assert found.numbers == pytest.approx(dict(clean.numbers))


class _Wrapped(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, images):
        return {"aux": images, "out": self.model(images)}


class _Resized(_Wrapped):
    def forward(self, images):
        scores = self.model(images)
        return torch.nn.functional.interpolate(scores, images.shape[2:], mode="bilinear", align_corners=False)


def test_a_finished_run_is_not_measured_again(clean, images):
    again = audit(ColourNet(), images, sections=["clean"], out=clean.folder, device="cpu")
    assert again.numbers == clean.numbers
    with pytest.raises(Exception, match="another model"):
        audit(ColourNet(stride=2), images, sections=["clean"], out=clean.folder, device="cpu")


def test_requirements_know_miou_and_classes(clean, images):
    found = gate(clean.folder, require=["miou > 1%", "iou.2 > 1%", "clean > 99.99%"])
    assert [one.passed for one in found.checks] == [True, True, False]
    with pytest.raises(UsageError, match="clean_accuracy"):
        audit(ColourNet(), images, sections=["clean"], require=["clean_accuracy > 50%"], out=clean.folder / "no")


def test_audits_of_two_segmenters_are_compared(clean, images, tmp_path):
    worse = audit(ColourNet(stride=4), images, sections=["clean"], out=tmp_path / "worse", device="cpu")
    found = {one.name: one for one in compare(clean.folder, worse.folder, out=tmp_path / "c").differences["worse"]}
    assert found["miou"].verdict == "worse"
    low, high = found["miou"].low, found["miou"].high
    assert low is not None
    assert high is not None
    assert low < found["miou"].value < high < 0
    assert found["iou.1"].verdict == "no interval"


def test_what_does_not_fit_is_refused(images, tmp_path):
    options: dict[str, Any] = {"sections": ["clean"], "out": tmp_path / "run", "device": "cpu"}
    with pytest.raises(DataError, match="Labels and model outputs do not fit"):
        audit(ColourNet(classes=3), images, **options)
    data = load_data(images, classes=["a", "b", "c", "d", "e"])
    with pytest.raises(DataError, match="classes of the label maps are not those of the model"):
        audit(ColourNet(), data, **options)
    with pytest.raises(ModelError, match="does not return scores for pixels"):
        audit(lambda batch: batch.mean((2, 3)), images, **options)
    with pytest.raises(ModelError, match="does not return scores for pixels") as error:
        audit(lambda batch: batch.argmax(1), images, **options)
    assert "before the arg max" in error.value.facts["fix"]
    with pytest.raises(ConfigurationError, match="Not available for segmentation"):
        audit(ColourNet(), images, out=tmp_path / "run", sections=[_absent()])


def _absent():
    """Return a section that segmentation does not have."""
    return next(name for name in SECTIONS_BY_TASK["classification"].own if name not in SECTIONS_BY_TASK["segmentation"])


def test_classes_are_matched_by_name(images, tmp_path):
    model = with_class_names(ColourNet(), ("soil", "red", "green", "blue"))
    swapped = np.array([3, 2, 1, 0, *[255] * 252], np.uint8)[images[1]]
    data = load_data((images[0], swapped), classes=["Blue", "green", "red", "soil"])
    found = audit(model, data, sections=["clean"], out=tmp_path, device="cpu")
    assert found.numbers["miou"] == pytest.approx(plain(images, ColourNet()).value)
    assert found.numbers["iou.red"] == pytest.approx(plain(images, ColourNet()).by_class[1])


def test_other_verbs_refuse_label_maps(images):
    from shiftproof import diagnose, find_failures

    for refused in (lambda: find_failures(ColourNet(), images), lambda: diagnose(ColourNet(), images, source=images)):
        with pytest.raises(DataError, match="Not available for segmentation") as error:
            refused()
        assert "certify" in error.value.facts["fix"]


def test_present_classes_are_those_of_the_labels(tmp_path):
    data = load_masks(write_tree(tmp_path), classes=["ground", "red", "green", "blue", "never"])
    assert present_classes(data).tolist() == [True, True, True, True, False]


@pytest.fixture(scope="module")
def corrupted(images, tmp_path_factory):
    return audit(
        ColourNet(),
        images,
        sections=["clean", "corruptions"],
        shifts=["contrast", "elastic_transform", "flip"],
        severities=[1, 5],
        out=tmp_path_factory.mktemp("corrupted"),
        device="cpu",
    )


def test_corrupted_numbers_are_those_of_a_plain_loop(corrupted, images):
    from shiftproof.shifts import as_image_shift
    from shiftproof.shifts.moving import move_labels

    model, data = ColourNet(), load_masks(images)
    (batch,) = data.batches(len(data))
    for name in ("contrast", "elastic_transform", "flip"):
        found = []
        for shift in (
            [as_image_shift(f"{name}@{level}") for level in (1, 5)] if name != "flip" else [as_image_shift(name)]
        ):
            labels = move_labels(shift, data.labels, batch.keys)
            with torch.no_grad():
                scores = model(shift(batch.inputs, batch.keys))
            found.append(Overlap(count_overlap(labels, scores.argmax(1), 4, 255)).value)
        assert corrupted.numbers[f"miou.{name}"] == pytest.approx(np.mean(found), abs=1e-9)
    assert corrupted.numbers["miou.flip"] == pytest.approx(corrupted.numbers["miou"], abs=1e-3)
    means = [corrupted.numbers[f"miou.{name}"] for name in ("contrast", "elastic_transform", "flip")]
    assert corrupted.numbers["corruption_miou"] == pytest.approx(np.mean(means))
    assert "Label maps moved with the content under elastic transform, flip" in corrupted.report.read_text()


def test_what_images_add_under_corruption_is_the_number(corrupted):
    from shiftproof.audits.audit_record import AuditRecord
    from shiftproof.audits.sections import section
    from shiftproof.runs import Store

    with Store(corrupted.folder) as store:
        record = AuditRecord.of(store)
    found = section("corruptions", task="segmentation").per_image(record.results["corruptions"])
    for name, held in found.items():
        assert held.values.mean() == pytest.approx(corrupted.numbers[name]), name


def test_a_costly_model_has_each_image_under_few_shifts(images, tmp_path, monkeypatch):
    monkeypatch.setattr("shiftproof.audits.auditing.operations_of", lambda model, inputs: 1e10)
    options: dict[str, Any] = {
        "sections": ["corruptions"],
        "shifts": ["contrast", "brightness", "fog"],
        "device": "cpu",
    }
    found = audit(ColourNet(), images, out=tmp_path, severities=[1, 2, 3, 4, 5], **options)
    assert 0 < found.numbers["corruption_miou"] < 1
    assert found.views[0].tiles[0].interval != "interval: too few to say"


def test_adaptation_and_the_worst_case_are_measured(images, tmp_path):
    options: dict[str, Any] = {
        "shifts": ["contrast", "brightness", "fog"],
        "severities": [3],
        "images": 24,
        "device": "cpu",
    }
    sections = ["adaptation", "worst_case"]
    found = audit(ColourNet(), images, sections=sections, out=tmp_path / "a", require=["worst_case > 0"], **options)
    assert not found.failed
    assert {"adaptation_gain.bn", "adaptation_gain.tent", "adaptation_gain.eta"} <= found.numbers.keys()
    assert found.numbers["worst_case_loss"] > 0
    assert found.passed
    box = BlackBox(ColourNet(), name="colours")
    kept = audit(box, images, sections=["adaptation"], out=tmp_path / "b", **options)
    assert not kept.failed
    assert any("left out" in note for view in kept.views for note in view.notes)


def test_estimates_and_certificates_are_measured(images, tmp_path):
    options: dict[str, Any] = {"shifts": ["contrast", "fog"], "severities": [1, 5], "images": 24, "device": "cpu"}
    found = audit(ColourNet(), images, sections=["label_free", "certified"], out=tmp_path, **options)
    assert not found.failed
    assert 0 <= found.numbers["label_free_error"] < 1
    assert found.numbers["certified_radius"] == pytest.approx(0.25 * 0.6745, abs=1e-3)
    assert 0 < found.numbers["certified_pixel_accuracy"] < 1 - found.numbers["abstained"] + 0.1  # frames have no label


def test_expected_counts_are_those_of_labels_where_the_model_is_calibrated():
    from shiftproof.estimators.map_estimates import expected_counts

    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 3, 60, 60, generator=draw) * 1.5
    rows = scores.movedim(1, -1).reshape(-1, 3).softmax(1)
    labels = torch.multinomial(rows, 1, generator=draw).view(4, 60, 60)
    soft = expected_counts(scores, torch.ones_like(labels, dtype=torch.bool))
    hard = count_overlap(labels, scores.argmax(1), 3, 255).sum(0)
    assert soft == pytest.approx(hard, rel=0.03)


def test_a_search_uses_the_label_maps_of_the_data(images):
    from shiftproof import search

    options: dict[str, Any] = {"space": "camvid", "length": 2, "searcher": "random", "budget": 3, "device": "cpu"}
    found = search(ColourNet(), images, fitness="mean_iou", **options)
    assert found.clean == pytest.approx(plain(images, ColourNet()).value)
    assert found.worst < found.clean
    assert search(ColourNet(), images, **options).trace.trials == found.trace.trials
    with pytest.raises(ConfigurationError, match="operations that move content"):
        search(ColourNet(), images, fitness="mean_iou", **{**options, "space": "geometric"})
    with pytest.raises(DataError, match="nothing to compare with"):
        search(ColourNet(), images, fitness="accuracy", **options)


@pytest.fixture(scope="module")
def asked_alike(images, tmp_path_factory):
    """Audit by the sections that ask the same of classes and of label maps, by the same code."""
    from shiftproof.audits.sections import spectrum

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spectrum, "SIZES", {"quick": spectrum.SpectrumSize(40, 5)})
        yield audit(
            ColourNet(),
            images,
            sections=["clean", "confidence", "spectrum", "stability"],
            shifts=["contrast", "elastic_transform"],
            severities=[3],
            methods=["bn", "lame"],
            out=tmp_path_factory.mktemp("alike"),
            device="cpu",
        )


def _rows(found, kind):
    from shiftproof.audits.audit_record import AuditRecord
    from shiftproof.audits.sections.measuring import rows
    from shiftproof.runs import Store

    with Store(found.folder) as store:
        results = AuditRecord.of(store).results
    return rows([one for some in results.values() for one in some], kind)


def test_spectra_are_those_of_a_plain_loop(asked_alike, images):
    from shiftproof.audits.sections.spectrum import Wave

    waves = _rows(asked_alike, Wave)
    data = load_masks(images).take(40)
    (batch,) = data.batches(40)
    values: dict[Any, float] = {}
    for task, row in waves[:3]:
        _, height, width = data.shape
        shift = dataclasses.replace(
            task.shift, i=int(task.shift.i * height / task.side), j=int(task.shift.j * width / task.side)
        )
        with torch.no_grad():
            scores = ColourNet()(shift(batch.inputs, batch.keys))
        values[task.frequency] = Overlap(count_overlap(data.labels, scores.argmax(1), 4, 255)).value
        assert row["miou"] == pytest.approx(values[task.frequency], abs=1e-6)
    assert asked_alike.numbers["worst_wave_miou"] <= min(values.values()) + 1e-9
    assert {"spectrum.low", "spectrum.high"} <= asked_alike.numbers.keys()


def test_bands_are_what_images_add(asked_alike):
    from shiftproof.audits.sections import section
    from shiftproof.audits.sections.spectrum import Amplitudes, NoiseSet, Wave
    from shiftproof.runs import Result

    results = [
        Result(task, row, None, 0.0) for kind in (Wave, NoiseSet, Amplitudes) for task, row in _rows(asked_alike, kind)
    ]
    found = section("spectrum", task="segmentation").per_image(results)
    for name, held in found.items():
        assert held.values.mean() == pytest.approx(asked_alike.numbers[name]), name
        assert held.interval() is not None


def test_streams_move_label_maps_with_images(asked_alike, images):
    from shiftproof.audits.sections.stability import LongStream
    from shiftproof.streams import make_stream

    (source,) = [(task, row) for task, row in _rows(asked_alike, LongStream) if task.method.name == "source"]
    task, row = source
    stream = make_stream(
        "ccc",
        load_masks(images).take(40),
        shifts=[shift.name for shift in task.shifts],
        severity=3.0,
        length=task.images,
        speed=task.speed,
        seed=task.seed,
        batch_size=task.batch,
    )
    right = []
    for batch in stream:
        assert batch.labels is not None
        with torch.no_grad():
            scores = ColourNet()(batch.inputs)
        right.append(Overlap(count_overlap(batch.labels, scores.argmax(1), 4, 255)).per_image.sum())
    assert row["batches"]["right"] == pytest.approx(right)
    assert 0 < sum(right) / task.images < 1
    assert {"stability.bn", "stability.collapsed"} <= asked_alike.numbers.keys()
    assert "stability.lame" not in asked_alike.numbers  # it learns from whole images


@pytest.mark.parametrize("shift", ["flip", "rotate=90", "translate_x=0.25"])
def test_a_painted_pattern_stays_painted_along_a_stream(shift):
    from shiftproof.shifts import as_image_shift
    from shiftproof.streams import evaluate, make_stream

    _, maps = painted(8, height=24, width=24)
    known = np.where(maps == 255, 0, maps)
    data = load_masks((COLOURS[known], known), ignore_label=255)
    options: dict[str, Any] = {"shifts": [as_image_shift(shift)], "length": 8, "batch_size": 4}
    trace = evaluate(ColourNet(), make_stream("concatenated", data, **options))
    assert trace.accuracy == pytest.approx(1.0)
    unmoved = make_stream("concatenated", data, **options)
    unmoved.__class__ = type("Still", (type(unmoved),), {"task": _Still()})
    assert evaluate(ColourNet(), unmoved).accuracy < 0.9


class _Still(MapPrediction):
    """A task that forgets to move label maps."""

    def moved(self, shift, labels, keys, seed):
        return labels


def test_calibration_is_told_by_shift(asked_alike):
    assert asked_alike.numbers["ece.clean"] == pytest.approx(asked_alike.numbers["calibration_error"], abs=1e-4)
    shifts = [asked_alike.numbers[f"ece.{name}"] for name in ("contrast", "elastic_transform")]
    assert asked_alike.numbers["ece"] == pytest.approx(np.mean(shifts))
    page = asked_alike.report.read_text()
    assert "Most confident mistakes" not in page  # no single image is right or wrong
    assert "Confidence and accuracy of pixels are" in page
    assert "mIoU by frequency of a wave" in page
    assert "mean of each image" in page


def streams(right: dict[str, float]) -> list[Result]:
    """Return streams of 40 images of 100 pixels of two classes, of which a method gets so many right in each image."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0, 5, 40)
    found = []
    for name, share in right.items():
        method = None if name == "source" else find_method(name)
        task = AdaptedMaps(as_image_shift("fog@5"), method, 0, 40, 0)
        hits = (100 * share + hard + rng.normal(0, 0.5, 40)).round().clip(0, 100)
        counts = np.stack([np.stack([hits, hits]), np.full((2, 40), 100), np.full((2, 40), 100)]).transpose(2, 0, 1)
        packed = Overlap(counts.astype(np.int64)).pack()
        found.append(Result(task, {"images": 40, "classes": 2, "overlap": packed, "present": [0, 1]}, None, 0.0))
    return found


@pytest.mark.parametrize(
    ("right", "told", "advised"),
    [
        ({"source": 0.5, "bn": 0.7, "tent": 0.701}, "Adapting by bn", '"bn"'),  # within noise: the cheapest
        ({"source": 0.5, "bn": 0.6, "rdumb": 0.8}, "Adapting by rdumb", '"rdumb"'),  # clearly better, and goes back
        ({"source": 0.5, "bn": 0.6, "tent": 0.8}, "Adapting by bn", '"bn"'),  # learns without end
        ({"source": 0.5, "tent": 0.8}, "Adapting by tent", None),
        ({"source": 0.7, "bn": 0.5}, "No method of adaptation raises", None),
    ],
)
def test_the_cheapest_method_within_noise_is_advised(right, told, advised):
    view = MapAdaptation().view(streams(right))
    assert view.verdict[0].text.startswith(told)
    assert [action.code.split("adapt(model, ")[1].split(")")[0] for action in view.actions] == [advised] * bool(advised)
