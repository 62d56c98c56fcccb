"""`search`: the chain of transformations that a model is most vulnerable to."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from shiftproof.data import DataLike, as_images
from shiftproof.data.images.arrays import read_array
from shiftproof.data.images.mask_values import IGNORE
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.models import BlackBox, Model, ModelLike, load_model
from shiftproof.models.answers import check_behaviour
from shiftproof.models.sources import SOURCE
from shiftproof.prediction_tasks import TASKS
from shiftproof.runs import Executor, OnProgress, Store, choose_executor
from shiftproof.searchers.applying import MEMORY
from shiftproof.searchers.catalogue import searcher as find_searcher
from shiftproof.searchers.constraint import Constraint
from shiftproof.searchers.evaluator import Evaluation, Evaluator, hold
from shiftproof.searchers.fitness import Fitness, make_fitness
from shiftproof.searchers.search_result import Search
from shiftproof.searchers.service import Service
from shiftproof.searchers.space import Space, SpaceLike, check_length, make_space
from shiftproof.shifts.moving import moves_content
from shiftproof.subjects import Subject
from shiftproof.version import __version__

BATCH_SIZES = {"cpu": 64, "cuda": 512}


def search(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    space: SpaceLike = "cifar",
    length: int = 5,
    searcher: str = "evolution",
    budget: int = 1000,
    fitness: str | Callable[..., Any] | Fitness | None = None,
    targets: str | Path | ArrayLike | Tensor | None = None,
    ignore: int | None = None,
    similarity: float | None = None,
    agreement: float | None = None,
    reference: ModelLike | None = None,
    memory: int = MEMORY,
    images: int | None = None,
    seed: int = 0,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | Path | None = None,
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Search:
    """Search for the chain of transformations that a model is most vulnerable to. Writes search.json and worst.png.

    Implements the search of Volpi & Murino 2019, and others. With `similarity` or a `reference`, it searches for the
    worst chain that preserves the content; the worst chain overall is reported too. The trace does not depend on
    `batch_size`, `memory` or `executor`.

    Args:
        model: Anything `load_model` accepts; in Python also a `Service`.
        data: Anything `load_data` accepts.
        space: mnist, cifar, camvid, faces, geometric, corruptions, or a JSON file; in Python also a list of operations
            with levels.
        length: Transformations in a chain.
        searcher: random, evolution, climbing, racing, optuna, cma, or the name of a plugin.
        budget: Number of chains to evaluate.
        fitness: accuracy, detection_rate, or with label maps pixel_accuracy, mean_iou; in Python also a function from
            images, uint8 [N, H, W, C], and their labels to a number, or one per image, in [0, 1]. Default: accuracy;
            with label maps mean_iou.
        targets: Label maps for segmentation, integers [N, H, W]: a .npy file; in Python also an array. Default: those
            of the data, if any.
        ignore: With targets, the class of pixels to ignore.
        similarity: Content constraint: smallest mean structural similarity (SSIM) to the clean images, such as 0.8.
            Default: none.
        agreement: Content constraint: smallest share of images to which the reference gives the same class as before.
            Default: 0.9, with a reference.
        reference: Content constraint: a second model whose predictions must not change. Default: none.
        memory: Bytes for caching images after the first steps that chains share.
        images: Number of inputs to use, drawn in proportion to the classes. Default: all.
        seed: Seed of every random draw.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: chosen by device and image size.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result).
        options: Options of the searcher, such as variant=release or population=20 for evolution.

    >>> found = search("demo", "demo", images=20, length=2, searcher="random", budget=4)
    >>> len(found.trace), found.worst <= found.clean
    (4, True)
    """
    chosen = make_space(space)
    check_length(length)
    check_budget(budget)
    subject = Subject.of(
        _as_model(model), data, images=images, seed=seed, device=device, batch_size=batch_size, tasks=tuple(TASKS)
    )
    device, tested = subject.device, _served(subject.loaded_model)
    maps = subject.task.per_pixel
    fitness = fitness or ("mean_iou" if maps or targets is not None else "accuracy")
    if maps or targets is not None:
        _check_still(chosen)
    ignore = IGNORE if maps and ignore is None else ignore
    by_name = targets is None and fitness == "accuracy" and not maps and not isinstance(tested, Service)
    tested = subject.model if by_name else tested  # whose answers need not be logits, and may be counted
    whole = as_images(subject.data if by_name else subject.unmatched_data).in_memory()
    truth = whole.labels if targets is None else _targets(targets, subject)
    size_of_batch = batch_size or BATCH_SIZES.get(device.partition(":")[0], 64)
    measured = make_fitness(fitness, tested, truth, images=len(whole), ignore=ignore)
    kept_by = None if reference is None else _served(load_model(_as_model(reference), device=device))
    constraint = Constraint(similarity, agreement, kept_by)
    run = find_searcher(searcher, images=len(whole), **options)
    identity = {"version": __version__, "fitness": measured.fingerprint, "data": whole.fingerprint}
    fingerprints = {**identity, "constraint": constraint.fingerprint}
    evaluator = Evaluator(
        chosen, hold(whole, device), measured, constraint, batch_size=size_of_batch, seed=seed, memory=memory
    )
    with (
        tempfile.TemporaryDirectory() as temporary,
        Store(Path(out or temporary), identity) as store,
        choose_executor(executor, device=device).open(evaluator) as pool,
    ):
        if not isinstance(tested, Service):  # whose calls may be counted
            check_behaviour(store, tested, whole)
        evaluation = Evaluation(evaluator, store, fingerprints, pool, _within(on_progress, budget))
        (clean,) = evaluation([()])
        trace = run(chosen, evaluation, length=length, budget=budget, seed=seed)
        found = Search(trace, clean.objective, len(whole), measured.name, constraint, subject.name, whole.name)
        if out is not None:
            found.write(Path(out), evaluator)
    return found


def _check_still(space: Space) -> None:
    """Refuse operations that move content where labels are maps, which stay where they are in a search."""
    moving = [step.label for step in space.steps if moves_content(step)]
    if moving:
        raise ConfigurationError(
            "Not available for segmentation: a search over operations that move content.",
            expected="a space whose operations leave content where it is, such as camvid",
            got=f"{', '.join(moving[:3])}{', ...' if len(moving) > 3 else ''}",
        )


def check_budget(budget: int) -> None:
    """Refuse a search that may try nothing."""
    if budget < 1:
        raise ConfigurationError("The budget must be positive.", expected="1 evaluation or more", got=str(budget))


def _targets(targets: str | Path | ArrayLike | Tensor, subject: Subject) -> Tensor:
    """Return what the model is to say of the chosen images."""
    held = read_array(Path(targets)) if isinstance(targets, str | Path) else targets
    truth = torch.as_tensor(np.array(held))  # a copy: an array may not be writable
    if len(truth) != len(subject.loaded_data):
        raise DataError(
            "Every image needs a target.", expected=f"{len(subject.loaded_data)} targets", got=f"{len(truth)}"
        )
    return truth[subject.unmatched_places]


def _as_model(model: ModelLike) -> ModelLike:
    """Return a service as a black box, which every front door takes."""
    return BlackBox(model, name=model.name) if isinstance(model, Service) else model


def _served(model: Model) -> Model | Service:
    """Return the service inside a black box, with the files it came from; any other model as it is."""
    inside = getattr(model, "function", None)
    if not isinstance(inside, Service):
        return model
    if SOURCE in vars(model):
        setattr(inside, SOURCE, vars(model)[SOURCE])
    return inside


def _within(on_progress: OnProgress | None, budget: int) -> OnProgress | None:
    """Return what hears of the tuples tried so far and tells of them as a part of the budget."""
    return None if on_progress is None else lambda done, _, result: on_progress(min(done, budget), budget, result)
