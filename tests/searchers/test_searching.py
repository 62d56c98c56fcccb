"""`search` as a whole: what it finds, what it keeps, and what it says when it cannot go on."""

import json
import shutil
import signal
import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import shiftproof
from shiftproof import shifts
from shiftproof.cli.showing import show_search
from shiftproof.data import load_data
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.models import load_model
from shiftproof.searchers import Constraint, Service, make_space, read, search
from tests.processes import Stop, measured, python
from tests.searchers.models import Greenness, label_green, pictures
from tests.searchers.test_applying import with_pillow

SMALL: dict[str, Any] = {"length": 3, "budget": 60, "searcher": "random", "space": "camvid"}


def test_the_verb_is_at_the_top():
    assert shiftproof.search is search


def test_the_demo_models_worst_case_is_reproduced_with_pillow_image_by_image():
    found = search("demo", "demo", images=30, length=3, budget=20, seed=1)
    steps = [found.trace.space.steps[gene] for gene in found.best.genes]
    data = load_data("demo").take(30, seed=1)
    batch = next(data.batches(30))
    arrays = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).numpy()
    shifted = np.stack([with_pillow(array, steps) for array in arrays])
    images = torch.from_numpy(shifted).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        right = (load_model("demo")(images).argmax(1).numpy() == np.asarray(batch.labels)).mean()
    assert found.worst == right
    assert found.worst < found.clean


@pytest.mark.slow
def test_evolution_finds_worse_tuples_for_the_demo_model_than_random_search():
    won = 0
    for seed in range(5):
        options: dict[str, Any] = {"images": 32, "budget": 400, "seed": seed}
        found = [search("demo", "demo", searcher=name, **options) for name in ("evolution", "random")]
        won += found[0].worst < found[1].worst
    assert won >= 4


@pytest.mark.parametrize("searcher", ["random", "evolution"])
def test_a_planted_weakness_is_found(searcher):
    """The model fails for tuples that turn an image grey after its red channel went down, and for no other."""
    space = make_space(["grayscale", ("red_shift", [-60, 60]), ("contrast", [0.95, 1.05]), ("color", [0.9, 1.1])])

    def fails_on_dark_greys(images):
        grey = (images.max(-1) == images.min(-1)).all((1, 2))
        dark = images.mean((1, 2, 3)) < 120
        return np.where(grey & dark, 1, 0)

    images = np.random.default_rng(0).integers(110, 150, (20, 12, 12, 3), dtype=np.uint8)
    found = search(
        Service(fails_on_dark_greys), (images, np.zeros(20, int)), space=space, length=3, budget=120, searcher=searcher
    )
    assert found.clean == 1.0
    assert found.worst == 0.0
    steps = [space.steps[gene].label for gene in found.best.genes]
    assert "red_shift=-60" in steps
    assert "grayscale" in steps
    harmless = [trial for _, trial in found.trace.full() if "grayscale" not in space.label(trial.genes)]
    assert harmless
    assert all(trial.score.fitness == 1.0 for trial in harmless)


@pytest.mark.parametrize("searcher", ["random", "evolution", "racing"])
def test_batches_memory_and_the_kind_of_model_do_not_change_the_trace(searcher):
    options = {**SMALL, "searcher": searcher, "seed": 2}
    ways: list[tuple[Any, dict[str, Any]]] = [
        (Greenness(), {"batch_size": 64}),
        (Greenness(), {"batch_size": 1, "memory": 0}),
        (Greenness(), {"batch_size": 7, "memory": 20_000}),
        (Service(label_green, batch_size=5), {}),
        (Service(label_green), {}),
        (Greenness().forward, {}),  # a plain function: of float images, as in every verb
    ]
    traces = [search(model, pictures(60), **options, **more).trace.to_json() for model, more in ways]
    assert all(trace == traces[0] for trace in traces)
    assert len({row["fitness"] for row in traces[0]["trials"]}) > 3


def test_racing_sees_far_fewer_images_and_ends_on_all_of_them():
    data, options = pictures(200), {**SMALL, "length": 2, "budget": 81}
    slow, fast = (search(Greenness(), data, **{**options, "searcher": name}) for name in ("random", "racing"))
    shares = fast.trace.image_evaluations(200) / slow.trace.image_evaluations(200)
    assert shares < 0.25
    assert fast.best.images is None
    assert fast.worst <= slow.worst + 0.05
    alone = {trial.genes: trial.score for _, trial in slow.trace.full()}
    assert all(alone[trial.genes] == trial.score for _, trial in fast.trace.full())


def test_what_was_evaluated_is_never_evaluated_again(tmp_path):
    calls = []

    def counting(images):
        calls.append(len(images))
        return label_green(images)

    service = Service(counting, fingerprint="one")
    first = search(service, pictures(), **SMALL, out=tmp_path)
    made = len(calls)
    again = search(service, pictures(), **SMALL, out=tmp_path)
    pictures_of_the_worst = 4  # those are made anew
    assert len(calls) - made <= pictures_of_the_worst
    assert again.trace.to_json() == first.trace.to_json()
    longer = search(service, pictures(), **{**SMALL, "budget": 90}, out=tmp_path)
    assert longer.trace.trials[:60] == first.trace.trials


def test_only_a_thousand_tuples_show_what_one_in_a_thousand_does():
    few, many = (search(Greenness(), pictures(8), **{**SMALL, "budget": budget, "length": 1}) for budget in (999, 1000))
    assert few.quantile is None
    assert "quantile_0.1%" not in few.to_json()
    assert many.quantile == pytest.approx(np.quantile(many.trace.fitness(), 0.001))


@pytest.mark.parametrize("searcher", ["random", "evolution", "racing"])
def test_a_worst_case_is_never_better_than_clean(searcher, tmp_path, capsys):
    """Where every tuple helps, nothing worse was found, and the images as they are stay the worst case."""
    data = pictures(20)
    known = {(image * 255).round().byte().numpy().tobytes() for image in next(iter(data.batches(20))).inputs}

    def fitness(images, labels):
        return [0.4 if image.transpose(2, 0, 1).tobytes() in known else 0.6 for image in images]

    space = [("contrast", [0.5, 0.7]), ("brightness", [0.6, 0.8])]
    options: dict[str, Any] = {"searcher": searcher, "budget": 12, "length": 2, "fitness": fitness, "space": space}
    found = search(Greenness(), data, **options, similarity=0.1, out=tmp_path)
    tried = found.trace.best()
    assert tried is not None
    assert tried.score.fitness == pytest.approx(0.6)
    assert found.clean == found.worst == found.worst_admissible == pytest.approx(0.4)
    assert found.best.genes == ()
    content = json.loads((tmp_path / "search.json").read_text())
    assert content["worst"] == content["clean"]
    assert content["worst_tuple"] == "identity"
    assert content["evaluations"] <= 12
    show_search(found, {"out": tmp_path})
    assert "no chain found that is worse than clean" in capsys.readouterr().out


def test_files(tmp_path):
    found = search(Greenness(), pictures(), **SMALL, out=tmp_path, similarity=0.7)
    content = json.loads((tmp_path / "search.json").read_text())
    assert content["worst"] == found.worst
    assert content["worst_admissible"] >= content["worst"]
    assert content["worst_tuples"][0]["fitness"] == content["worst"]
    assert "quantile_0.1%" not in content  # 60 tuples do not show what one in a thousand does
    assert len(content["trials"]) == 60
    assert shifts.parse(content["worst_tuple"]).label == content["worst_tuple"]
    assert read(tmp_path)["trace"].to_json() == found.trace.to_json()
    with Image.open(tmp_path / "worst.png") as sheet:
        assert sheet.width > 500
    with pytest.raises(RunError, match="no search"):
        read(tmp_path / "nowhere")


def test_both_optima_are_reported_under_a_constraint():
    free = search(Greenness(), pictures(), **SMALL)
    held = search(Greenness(), pictures(), **SMALL, similarity=0.9)
    assert free.best_admissible is None
    assert held.worst == free.worst
    assert held.best_admissible is not None
    assert held.worst_admissible is not None
    assert held.worst_admissible > held.worst
    assert not held.best.score.admissible
    for _, trial in held.trace.full():
        assert trial.score.similarity is not None
        assert trial.score.admissible == (trial.score.similarity >= 0.9)


def test_the_search_is_for_the_worst_admissible_tuple():
    options = {**SMALL, "searcher": "evolution", "budget": 150, "similarity": 0.85}
    steered = search(Greenness(), pictures(), **options)
    assert steered.best_admissible is not None
    drawn = search(Greenness(), pictures(), **{**options, "searcher": "random"})
    tried, by_chance = ([trial.score.admissible for trial in found.trace.trials] for found in (steered, drawn))
    assert np.mean(tried) > np.mean(by_chance) + 0.1


def test_a_reference_that_loses_sight_of_the_content_is_a_constraint():
    darkness = Service(lambda images: (images.mean((1, 2, 3)) > 110).astype(int))
    found = search(Greenness(), pictures(), **SMALL, reference=darkness, agreement=0.9)
    assert found.best_admissible is not None
    for _, trial in found.trace.full():
        assert trial.score.agreement is not None
        assert trial.score.admissible == (trial.score.agreement >= 0.9)
    assert {trial.score.admissible for _, trial in found.trace.full()} == {True, False}
    assert all(trial.score.similarity is None for _, trial in found.trace.full())


BOUNDS = [({"similarity": 2.0}, "Invalid bound"), ({"agreement": 0.9}, "reference model")]


@pytest.mark.parametrize(("bounds", "says"), BOUNDS)
def test_bounds_that_mean_nothing(bounds, says):
    with pytest.raises(ConfigurationError, match=says):
        Constraint(**bounds)


def test_a_segmenter_with_targets():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    masks = (images.mean(-1) > 127).astype(np.int64)
    masks[:, 0] = 9

    def segment(batch):
        return (batch.mean(-1) > 127).astype(int)

    for fitness in ("pixel_accuracy", "mean_iou"):
        found = search(Service(segment), images, **SMALL, fitness=fitness, targets=masks, ignore=9)
        assert found.clean == 1.0
        assert found.worst < 0.8
    with pytest.raises(DataError, match="needs a target"):
        search(Service(segment), images, **SMALL, fitness="mean_iou", targets=masks[:3])


def test_some_of_the_images_keep_their_own_targets():
    images = np.zeros((20, 8, 8, 3), np.uint8)
    images[:, 0, 0, 0] = range(20)
    masks = np.repeat(np.arange(20), 64).reshape(20, 8, 8)
    space = [("sharpness", [1.0])]
    found = search(
        Service(lambda batch: np.repeat(batch[:, 0, 0, 0], 64).reshape(-1, 8, 8)),
        images, space=space, length=1, budget=1, searcher="random", images=7,
        fitness="pixel_accuracy", targets=masks,
    )  # fmt: skip
    assert found.images == 7
    assert found.clean == 1.0


class Moody:
    """Labels by greenness, but raises for images whose red channel is mostly gone, as often as it is asked."""

    def __init__(self):
        self.calls = 0

    def __call__(self, images):
        self.calls += 1
        if images[..., 0].mean() < 60:
            raise ConnectionError("too dark for me")
        return label_green(images)


def test_tuples_that_a_black_box_fails_on_are_reported_and_the_others_are_kept(tmp_path):
    moody = Service(Moody(), retries=1, wait=0, fingerprint="moody")
    found = search(moody, pictures(), **SMALL, out=tmp_path)
    failed = found.trace.failures
    assert 0 < len(failed) < 60
    assert len(found.trace) == 60
    assert all("too dark for me" in str(trial.score.error) for trial in failed)
    assert found.worst < 1
    content = json.loads((tmp_path / "search.json").read_text())
    assert content["failures"] == len(failed)
    # Once the service is well again, the same search asks for what failed, and for nothing else.
    moody.function = label_green
    again = search(moody, pictures(), **SMALL, out=tmp_path)
    assert not again.trace.failures
    whole = search(Service(label_green), pictures(), **SMALL)
    assert [trial.score for trial in again.trace.trials] == [trial.score for trial in whole.trace.trials]


def test_a_black_box_that_fails_always_ends_the_search_with_its_reason():
    def down(images):
        raise ConnectionError("no route to host")

    with pytest.raises(RunError, match="no route to host"):
        search(Service(down, retries=0), pictures(), **SMALL)


BAD = {
    "empty space": ({"space": []}, ConfigurationError, "no operations"),
    "length 0": ({"length": 0}, ConfigurationError, "at least one transformation"),
    "no budget": ({"budget": 0}, ConfigurationError, "budget must be positive"),
    "fitness above 1": ({"fitness": lambda images, labels: 1.5}, ConfigurationError, r"is outside \[0, 1\]"),
    "fitness below 0": ({"fitness": lambda images, labels: [-1.0] * len(images)}, ConfigurationError, "outside"),
    "fitness NaN": ({"fitness": lambda images, labels: float("nan")}, ConfigurationError, "outside"),
    "no such searcher": ({"searcher": "annealing"}, ConfigurationError, "no searcher named"),
    "no such option": ({"temperature": 3}, ConfigurationError, "no option 'temperature'"),
    "batch size": ({"batch_size": -1}, ConfigurationError, "batch size"),
    "no images": ({"images": 0}, ConfigurationError, "images"),
}


@pytest.mark.parametrize(("options", "kind", "says"), BAD.values(), ids=BAD.keys())
def test_bad_input(options, kind, says):
    with pytest.raises(kind, match=says):
        search(Greenness(), pictures(), **{**SMALL, **options})


def test_a_model_that_is_none():
    with pytest.raises(ModelError, match="Unsupported model"):
        search(3, pictures(), **SMALL)  # type: ignore[arg-type]


def test_a_function_that_a_file_builds_can_be_a_service(tmp_path):
    (tmp_path / "api.py").write_text(
        textwrap.dedent("""
        from shiftproof.searchers import Service

        def build():
            return Service(lambda images: (images[..., 1].mean((1, 2)) > 127.5).astype(int), batch_size=3)
        """)
    )
    by_file = search(f"{tmp_path / 'api.py'}:build", pictures(), **SMALL)
    assert by_file.trace.to_json() == search(Service(label_green), pictures(), **SMALL).trace.to_json()


def test_a_killed_search_is_finished_by_the_same_call_with_the_same_trace(tmp_path):
    script = textwrap.dedent(f"""
        import time
        from shiftproof.searchers import Service, search
        from tests.searchers.models import label_green, pictures

        def slow(images):
            time.sleep(0.01)
            return label_green(images)

        search(Service(slow, fingerprint="slow"), pictures(), length=3, budget=100, space="camvid", seed=3,
               out={str(tmp_path / "killed")!r})
    """)
    for _ in range(20):  # anew where it ended before it could be killed, on a busy machine
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        ended = python(script, tmp_path, Stop(signal.SIGKILL, lambda: measured(tmp_path / "killed") >= 25))
        if ended.returncode == -signal.SIGKILL and measured(tmp_path / "killed") < 101:
            break
    assert 25 <= measured(tmp_path / "killed") < 101
    assert not (tmp_path / "killed" / "search.json").exists()
    again = python(script, tmp_path)
    assert again.returncode == 0, again.stderr
    whole = search(Service(label_green), pictures(), length=3, budget=100, space="camvid", seed=3)
    assert read(tmp_path / "killed")["trace"].to_json() == whole.trace.to_json()


def test_processes_find_the_same(tmp_path):
    options: dict[str, Any] = {"images": 8, "length": 2, "searcher": "evolution", "budget": 8, "population": 4}
    told: list[tuple[int, int]] = []
    inline = search("demo", "demo", **options)
    spread = search(
        "demo", "demo", executor="processes:1", on_progress=lambda done, total, _: told.append((done, total)), **options
    )
    assert spread.trace == inline.trace
    assert told == sorted(told)
    assert told[-1] == (8, 8)
