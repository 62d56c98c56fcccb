"""`train`: a network, labelled images and a recipe in; a trained network out, and a folder that `load_model` takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data import DataLike, ImageSet, as_images, load_images
from shiftproof.errors import DataError, ModelError
from shiftproof.models import ModelLike, choose_device
from shiftproof.models.class_names import with_class_names
from shiftproof.models.denoising import DENOISER, save_denoiser
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.prediction_tasks import task_of
from shiftproof.runs import Json
from shiftproof.shifts.catalogue import OTHERS
from shiftproof.training.denoiser_training import DenoiserInTraining
from shiftproof.training.dense import check_dense, check_same_task
from shiftproof.training.feed import HELD_BYTES, Feed, labels_of
from shiftproof.training.loop import Loop, evaluating
from shiftproof.training.recipes import Recipe
from shiftproof.training.recipes import recipe as find_recipe
from shiftproof.training.running import OnProgress, Runner, run
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.start import Start
from shiftproof.training.team import device_here, join
from shiftproof.training.trained import Trained, architecture, write_model
from shiftproof.training.tuples import TupleSearch
from shiftproof.version import __version__


def train(
    model: ModelLike = "resnet20",
    data: DataLike = "demo-source",
    *,
    recipe: str | Recipe = "erm",
    sigma: float | None = None,
    options: Mapping[str, Any] | None = None,
    validation: DataLike | None = None,
    decoders: int = 0,
    images: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> Trained:
    """Train a network robustly. Writes model.safetensors, which `--model DIR` loads, and log.jsonl.

    The recipe denoiser leaves the network as it is and trains a denoiser for it, to be put before it: it writes
    denoiser.safetensors, which `certify --denoiser DIR` loads.

    With a run directory a checkpoint is written every epoch, or every `checkpoint_every` steps, and the same call after
    a kill resumes to the same weights, bit for bit on a CPU; at the end `load_model(out)` returns the network. Classes
    of the data are matched to the network's outputs by name where it has names. A reference network normalises with the
    mean and std of its `ModelSpec`: by default those of CIFAR-10, or none where the recipe adds noise, as in the papers
    on certified robustness.

    Args:
        model: resnet20, resnet110, wrn16_4, convnet, for segmentation unet (from random weights, or those of a
            `ModelSpec`), or what `load_model` makes a module of; a module is copied.
        data: Images with labels or label maps: what `load_data` takes or returned.
        recipe: erm, gaussian, augmix+jsd, fouriermix+hcr, esda, denoiser, ...
        sigma: Standard deviation of the noise. Default: 0.25, where a recipe has noise.
        options: The recipe's own settings, such as lam=20; in Python also {"lam": 20}.
        validation: Images to take the accuracy on at every checkpoint, under the recipe's noise.
        decoders: Processes that decode images, where they are not held in memory.
        images: Use this many inputs, drawn in proportion to the classes. Default: all.
        device: auto, cpu, cuda or cuda:1; auto is CUDA where there is one.
        out: Run directory; the same call resumes it.
        on_progress: Called as on_progress(step, steps, row).
        settings: `TrainingSettings` by name: epochs, batch_size, lr, schedule, ema, clip, seed, ...

    >>> trained = train("convnet", "demo", images=64, batch_size=32, epochs=1)
    >>> trained.to_row()["steps"], trained.model.training
    (2, False)
    """
    chosen = find_recipe(recipe, **(options or {}))
    noise = chosen.sigma(sigma)
    loop_settings = make_settings(chosen, settings)
    where = torch.device(device_here(choose_device(device)))
    loaded = _loaded(data, images, loop_settings.seed)
    if isinstance(recipe, str):
        chosen = chosen.fitting(loaded.side or 0, options or {})
    start = Start(model, loaded, chosen, seed=loop_settings.seed, sigma=noise)
    network = start.network()
    task = task_of(loaded)
    with evaluating(network):  # two images are tried before any long work
        loaded = as_images(task.matched(loaded, network))
        _check_fit(network, loaded, labels_of(loaded))
    held_out = None if validation is None else _loaded(validation, None, 0)
    with_class_names(network, loaded.classes)
    if held_out is not None:
        with evaluating(network):
            check_same_task(loaded, held_out)
            held_out = as_images(task.matched(held_out, network))
    begun = "" if out is None else start.identity(network)
    subject = _subject(begun, loaded, held_out, chosen, noise, loop_settings, where)
    team = join(where)
    feed = Feed(loaded, chosen, loop_settings, device=where, team=team, decoders=decoders)
    if task.per_pixel:
        check_dense(chosen, feed.framing, feed.augment)
    search = None
    if chosen.tuples is not None and chosen.tuples.searcher is not None and team.leads:
        search = TupleSearch(chosen.tuples, loaded, seed=loop_settings.seed, device=str(where), batch_size=feed.batch)
    loop = Loop(network, feed, sigma=noise, search=search)
    folder = None if out is None else Path(out)
    runner = Runner(loop, folder, held_out if team.leads else None, on_progress if team.leads else None)
    log = team.tell(run(runner, subject, team))
    final = runner.finish()
    facts: dict[str, Json] = {
        "model": architecture(start.model),
        "recipe": chosen.name,
        "options": {name: str(value) for name, value in chosen.options().items()},
        "sigma": noise,
        "settings": loop_settings.to_texts(),
        "data": loaded.name,
        "classes": list(loaded.classes),
        "last": dict(log[-1]),
    }
    if folder is not None and team.leads:
        if isinstance(final, DenoiserInTraining):
            save_denoiser(folder / DENOISER, final.denoiser, facts)
        else:
            write_model(folder, final.state_dict(), facts)
    tuples = chosen.tuples
    found = () if tuples is None else tuple(tuples.chain(genes).label for genes in loop.found)
    return Trained(final, chosen.name, noise, tuple(log), found, folder)


def make_settings(recipe: Recipe, given: dict[str, Any]) -> TrainingSettings:
    """Return the settings of the loop: the recipe's own defaults, and what was given."""
    return TrainingSettings().changed(
        {**recipe.defaults, **{name: value for name, value in given.items() if value is not None}}
    )


def _loaded(data: DataLike, images: int | None, seed: int) -> ImageSet:
    loaded = load_images(data).take(images, seed=seed)
    if len(loaded) == 0:
        raise DataError("There are no images to train on.", got=loaded.name)
    loaded = loaded.in_memory() if loaded.nbytes <= HELD_BYTES else loaded
    labels_of(loaded)
    return loaded


def _check_fit(network: nn.Module, data: ImageSet, labels: Tensor) -> None:
    """Refuse a network, in evaluation mode, without a score for every class."""
    batch = next(iter(data.subset(range(2)).batches(2)))
    scores = task_of(data).scores(network, batch.inputs)
    if scores.shape[1] <= int(labels.max()):
        raise ModelError(
            "The model has too few classes for the data.",
            expected=f"{int(labels.max()) + 1} scores or more per image",
            got=f"{scores.shape[1]}",
        )


def _subject(
    start: str,
    data: ImageSet,
    validation: ImageSet | None,
    recipe: Recipe,
    sigma: float,
    settings: TrainingSettings,
    device: torch.device,
) -> dict[str, str]:
    """Return what a run directory is about: everything that decides the weights and the log."""
    return {
        "version": __version__,
        "recipe": recipe.name,
        "options": str(sorted(recipe.options().items())),
        "content": digest([recipe.objective, recipe.augment, recipe.noise, recipe.tuples]),
        "sigma": str(sigma),
        "device": device.type,
        **settings.to_texts(),
        "data": data.fingerprint,
        "validation": "none" if validation is None else validation.fingerprint,
        "model": start,
        **{f"code of {name}": code for name, code in plugin_codes(OTHERS, f"{recipe} {settings}").items()},
    }
