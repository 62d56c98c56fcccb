"""`search`: the transformation tuple that a model is most vulnerable to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from shiftproof.data import ImageSet, load_images, matched
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import BlackBox, choose_device, load_model
from shiftproof.models.answers import check_behaviour
from shiftproof.models.sources import SOURCE
from shiftproof.runs import Executor, OnProgress, Store, choose_executor
from shiftproof.searchers.applying import MEMORY
from shiftproof.searchers.catalogue import searcher as find_searcher
from shiftproof.searchers.constraint import Constraint
from shiftproof.searchers.evaluator import Evaluation, Evaluator, hold
from shiftproof.searchers.fitness import Fitness, Subject, make_fitness
from shiftproof.searchers.search_result import Search
from shiftproof.searchers.service import Service
from shiftproof.searchers.space import SpaceLike, check_length, make_space
from shiftproof.version import __version__

BATCH_SIZES = {"cpu": 64, "cuda": 512}


def search(
    model: Any = "demo",
    data: Any = "demo",
    *,
    space: SpaceLike = "cifar",
    length: int = 5,
    searcher: str = "evolution",
    budget: int = 1000,
    seed: int = 0,
    images: int | None = None,
    fitness: str | Callable[..., Any] | Fitness = "accuracy",
    targets: ArrayLike | Tensor | None = None,
    ignore: int | None = None,
    similarity: float | None = None,
    agreement: float | None = None,
    reference: Any = None,
    out: str | Path | None = None,
    device: str = "auto",
    batch_size: int | None = None,
    memory: int = MEMORY,
    weights: str | Path | None = None,
    size: int | None = None,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    executor: str | Executor = "inline",
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Search:
    """Search a space of transformation tuples for the one that lowers a model's fitness most (Volpi & Murino 2019).

    `model` is what `load_model` takes, or a black box: a `Service`, or a plain function from images, uint8
    [N, H, W, C], to labels (or rows of scores). `data` is what `load_data` takes, all of it or `images` of them.
    `space` is a name (`mnist`, `cifar`, `camvid`, `faces`, `geometric`, `corruptions`), a JSON file, or a list of
    operations with their levels; a tuple has `length` steps. `searcher` is one of `SEARCHERS`, with its own `options`
    (`variant="release"`, `population=20`), and `budget` the number of tuples it may try.

    `fitness` is `accuracy`, `pixel_accuracy` or `mean_iou` (with label maps [N, H, W] as `targets`, where pixels of the
    class `ignore` do not count), `detection_rate`, or a function from images, uint8 [N, H, W, C], and their labels to a
    number, or one per image, in [0, 1].

    With `similarity` (the least mean structural similarity) or a `reference` model and its `agreement`, the search is
    for the worst tuple that keeps the content; the worst of all that were tried is reported too.

    `device` is where images are transformed and models run, `auto` on CUDA where there is one.
    `out` is a run directory: every evaluation is kept there, the same call goes on where it stopped, and `search.json`
    and `worst.png` are written at the end. The trace depends on the seed alone, not on `batch_size` or `memory`, which
    bounds the bytes of images kept after first steps that tuples share. `executor` is `inline`, `processes` or `ray`,
    over which the tuples that a searcher asks for at a time are spread. `on_progress(done, all, result)` hears of
    progress.

    >>> found = search("demo", "demo", images=20, length=2, searcher="random", budget=4)
    >>> len(found.trace), found.worst <= found.clean
    (4, True)
    """
    chosen = make_space(space)
    check_length(length)
    check_budget(budget)
    device = choose_device(device, model)
    whole, truth = _data(data, targets, images, seed, {"size": size, "labels": labels, "classes": classes})
    subject = _subject(model, device, weights)
    if targets is None and fitness == "accuracy" and not isinstance(subject, Service):
        whole = matched(whole, subject)
        truth = whole.labels
    size_of_batch = batch_size or BATCH_SIZES.get(device.partition(":")[0], 64)
    if size_of_batch < 1:
        raise ConfigurationError("The batch size must be positive.", expected="1 or more", got=str(batch_size))
    measured = make_fitness(fitness, subject, truth, images=len(whole), ignore=ignore)
    reference = None if reference is None else _subject(reference, device, None)
    constraint = Constraint(similarity, agreement, reference)
    run = find_searcher(searcher, images=len(whole), **options)
    identity = {"version": __version__, "fitness": measured.fingerprint, "data": whole.fingerprint}
    fingerprints = {**identity, "constraint": constraint.fingerprint}
    evaluator = Evaluator(
        chosen, hold(whole, device), measured, constraint, batch_size=size_of_batch, seed=seed, memory=memory
    )
    with (
        tempfile.TemporaryDirectory() as temporary,
        Store(Path(out or temporary), identity) as store,
        choose_executor(executor, workers, device=device).open(evaluator) as crew,
    ):
        if not isinstance(subject, Service):  # whose calls may be counted
            check_behaviour(store, subject, whole)
        evaluation = Evaluation(evaluator, store, fingerprints, crew, _within(on_progress, budget))
        (clean,) = evaluation([()])
        trace = run(chosen, evaluation, length=length, budget=budget, seed=seed)
        found = Search(trace, clean.objective, len(whole), measured.name, constraint, _name(model, subject), whole.name)
        if out is not None:
            found.write(Path(out), evaluator)
    return found


def check_budget(budget: int) -> None:
    """Refuse a search that may try nothing."""
    if budget < 1:
        raise ConfigurationError("A search needs a budget.", expected="1 evaluation or more", got=str(budget))


def _data(
    data: Any, targets: ArrayLike | Tensor | None, images: int | None, seed: int, options: dict[str, Any]
) -> tuple[ImageSet, Tensor | None]:
    """Return the images, in a random order, and what the model is to say of them."""
    whole = load_images(data, **options)
    truth = None if targets is None else torch.as_tensor(np.array(targets))
    if truth is not None and len(truth) != len(whole):
        raise DataError("Every image needs a target.", expected=f"{len(whole)} targets", got=f"{len(truth)}")
    rows = whole.draw(images, seed=seed)
    taken = whole.subset(rows).in_memory()
    return taken, taken.labels if truth is None else truth[rows]


def _subject(model: Any, device: str, weights: str | Path | None) -> Subject:
    """Return the model: a service as it is or as a file built it, a plain function as a service."""
    if isinstance(model, Service):
        return model
    if callable(model) and not isinstance(model, nn.Module | BlackBox | type):
        return Service(model)
    loaded = load_model(model, device=device, weights=weights)
    inside = getattr(loaded, "function", None)
    if not isinstance(inside, Service):
        return loaded
    if SOURCE in vars(loaded):
        setattr(inside, SOURCE, vars(loaded)[SOURCE])
    return inside


def _within(on_progress: OnProgress | None, budget: int) -> OnProgress | None:
    """Return what hears of the tuples tried so far and tells of them as a part of the budget."""
    return None if on_progress is None else lambda done, _, result: on_progress(min(done, budget), budget, result)


def _name(given: Any, subject: Subject) -> str:
    return str(given) if isinstance(given, str | Path) else str(getattr(subject, "name", type(subject).__name__))
