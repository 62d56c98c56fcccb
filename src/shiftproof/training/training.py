"""`train`: a network, labelled images and a recipe in; a trained network out, and a folder that `load_model` takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data import ImageSet, load_images, matched
from shiftproof.errors import DataError, ModelError
from shiftproof.models import choose_device, logits
from shiftproof.models.class_names import with_class_names
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.runs import Json
from shiftproof.shifts.catalogue import OTHERS
from shiftproof.training.feed import HELD, Feed, labels_of
from shiftproof.training.loop import Loop, evaluating
from shiftproof.training.recipes import Recipe
from shiftproof.training.recipes import recipe as find_recipe
from shiftproof.training.running import OnProgress, Runner, run
from shiftproof.training.settings import Settings
from shiftproof.training.start import Start
from shiftproof.training.team import device_here, join
from shiftproof.training.trained import Trained, architecture, write_model
from shiftproof.training.tuples import TupleSearch
from shiftproof.version import __version__


def train(
    model: Any,
    data: Any,
    *,
    recipe: str | Recipe = "erm",
    sigma: float | None = None,
    options: dict[str, Any] | None = None,
    out: str | Path | None = None,
    validation: Any = None,
    device: str = "auto",
    weights: str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    images: int | None = None,
    size: int | None = None,
    labels: str | Path | None = None,
    classes: str | Path | Sequence[str] = "auto",
    split: str | None = None,
    workers: int = 0,
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> Trained:
    """Train a network by a recipe and return it with its log.

    `model` is the name of a reference network, which starts from random weights (or from `weights`), or anything that
    `load_model` makes a module of; a module that is given is copied. `data` is what `load_data` takes, all of it or
    `images` of them. Its classes are matched to the network's outputs by name where the network has names, or stand in
    the order of the list `classes`; those of `validation` are matched to the classes of `data`. `recipe` is one of
    `RECIPES`, with its own `options` ({"lam": 20}), and `sigma` its noise. Further keywords are
    `Settings`: `epochs`, `batch_size`, `lr`, `schedule`, `ema`, `clip`, `seed` and so on.

    A reference network normalises with `mean` and `std`: by default those of CIFAR-10, or none where the recipe adds
    noise, as in the papers on certified robustness.

    With a run directory `out`, a checkpoint is written every epoch, or every `checkpoint_every` steps, and the same
    call after a kill goes on from the last one to the same weights, bit for bit on a CPU. `log.jsonl` grows as it goes;
    at the end there are `model.safetensors` and `model.json`, and `load_model(out)` returns the network. The accuracy
    on `validation` is taken at every checkpoint. `on_progress(step, steps, row)` hears of progress.

    >>> trained = train("convnet", "demo", images=64, batch_size=32, epochs=1)
    >>> trained.to_row()["steps"], trained.model.training
    (2, False)
    """
    chosen = find_recipe(recipe, **(options or {}))
    noise = chosen.sigma(sigma)
    loop_settings = make_settings(chosen, settings)
    where = torch.device(device_here(choose_device(device)))
    loaded = _loaded(data, images, loop_settings.seed, size=size, labels=labels, classes=classes, split=split)
    start = Start(model, loaded, chosen, seed=loop_settings.seed, weights=weights, mean=mean, std=std)
    network = start.network()
    with evaluating(network):  # two images are tried before any long work
        loaded = matched(loaded, network)
        _check_fit(network, loaded, labels_of(loaded))
    held_out = None if validation is None else _loaded(validation, None, 0, size=size, classes=classes)
    with_class_names(network, loaded.classes)
    if held_out is not None:
        with evaluating(network):
            held_out = matched(held_out, network)
    begun = "" if out is None else start.identity(network)
    subject = _subject(begun, loaded, held_out, chosen, noise, loop_settings, where)
    team = join(where)
    feed = Feed(loaded, chosen, loop_settings, device=where, team=team, workers=workers)
    search = None
    if chosen.tuples is not None and chosen.tuples.searcher is not None and team.leads:
        search = TupleSearch(chosen.tuples, loaded, seed=loop_settings.seed, device=str(where), batch_size=feed.batch)
    loop = Loop(network, feed, sigma=noise, search=search)
    folder = None if out is None else Path(out)
    runner = Runner(loop, folder, held_out if team.leads else None, on_progress if team.leads else None)
    log = team.tell(run(runner, subject, team))
    final = runner.finish()
    facts: dict[str, Json] = {
        "model": architecture(model),
        "recipe": chosen.name,
        "options": {name: str(value) for name, value in chosen.options().items()},
        "sigma": noise,
        "settings": loop_settings.told(),
        "data": loaded.name,
        "classes": list(loaded.classes),
        "last": dict(log[-1]),
    }
    if folder is not None and team.leads:
        write_model(folder, final.state_dict(), facts)
    tuples = chosen.tuples
    found = () if tuples is None else tuple(tuples.chain(genes).label for genes in loop.found)
    return Trained(final, chosen.name, noise, tuple(log), found, folder)


def make_settings(recipe: Recipe, given: dict[str, Any]) -> Settings:
    """Return the settings of the loop: the recipe's own defaults, and what was given."""
    return Settings().changed(
        {**recipe.defaults, **{name: value for name, value in given.items() if value is not None}}
    )


def _loaded(data: Any, images: int | None, seed: int, **options: Any) -> ImageSet:
    given = {name: value for name, value in options.items() if value is not None}
    loaded = load_images(data, **given)
    loaded = loaded.take(images, seed=seed)
    if len(loaded) == 0:
        raise DataError("There are no images to train on.", got=loaded.name)
    loaded = loaded.in_memory() if loaded.nbytes <= HELD else loaded
    labels_of(loaded)
    return loaded


def _check_fit(network: nn.Module, data: ImageSet, labels: Tensor) -> None:
    """Refuse a network, in evaluation mode, without a score for every class."""
    batch = next(iter(data.subset(range(2)).batches(2)))
    scores = logits(network, batch.inputs)
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
    settings: Settings,
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
        **settings.told(),
        "data": data.fingerprint,
        "validation": "none" if validation is None else validation.fingerprint,
        "model": start,
        **{f"code of {name}": code for name, code in plugin_codes(OTHERS, f"{recipe} {settings}").items()},
    }
