"""`train`: a network, labelled images and a recipe in; a trained network out, and a folder that `load_model` takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.data import DataLike, ImageSet, as_images, load_images
from shiftproof.errors import ConfigurationError, DataError, ModelError, RunError
from shiftproof.models import ModelLike, choose_device
from shiftproof.models.class_names import with_class_names
from shiftproof.models.denoising import DENOISER, save_denoiser
from shiftproof.models.identity import digest, plugin_codes
from shiftproof.prediction_tasks import task_of
from shiftproof.runs import Json, Row
from shiftproof.shifts.catalogue import OTHERS
from shiftproof.training.denoiser_training import DenoiserInTraining
from shiftproof.training.dense import check_dense, check_same_task
from shiftproof.training.feed import HELD_BYTES, Feed, labels_of
from shiftproof.training.goals import best_step
from shiftproof.training.learning_layers import check_gradients, evaluating
from shiftproof.training.loop import DivergedError, Loop
from shiftproof.training.recipes import Recipe
from shiftproof.training.recipes import recipe as find_recipe
from shiftproof.training.record import trackers
from shiftproof.training.rehearsal import TrainingPlan, forecast
from shiftproof.training.running import OnProgress, Replan, Runner, run
from shiftproof.training.settings import TrainingSettings
from shiftproof.training.splitting import other_split, share_of, split_off
from shiftproof.training.start import Start
from shiftproof.training.team import Team, device_here, join
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
    validation: DataLike | float | None = None,
    track: Sequence[str] | None = None,
    decoders: int = 0,
    images: int | None = None,
    device: str = "auto",
    out: str | Path | None = None,
    on_progress: OnProgress | None = None,
    on_plan: Callable[[TrainingPlan], None] | None = None,
    replan: Replan | None = None,
    **settings: Any,
) -> Trained:
    """Train a network for robustness. Writes model.safetensors, which `--model DIR` loads, and log.jsonl.

    The recipe denoiser does not change the network but trains a denoiser to put in front of it. It writes
    denoiser.safetensors, which `certify --denoiser DIR` loads.

    With a run directory, a checkpoint is written every epoch, or every `checkpoint_every` steps, and the same call
    resumes an interrupted run to the same weights, bit for bit on a CPU. Afterwards `load_model(out)` returns the
    network. Classes of the data are matched to the network's outputs by name, if it has names. A reference network
    normalises with the mean and std of its `ModelSpec`: by default those of CIFAR-10, or none if the recipe adds noise,
    as in the papers on certified robustness. A finished run can continue with more epochs; its learning-rate schedule
    then starts again. Of a run that diverges, the weights of its best or last checkpoint are kept.

    Args:
        model: resnet20, resnet110, wrn16_4, convnet, cct6, or unet for segmentation (random weights, or those of a
            `ModelSpec`), or anything that `load_model` loads as a PyTorch module, which is copied.
        data: Images with labels or label maps: anything `load_data` accepts.
        recipe: erm, gaussian, augmix+jsd, fouriermix+hcr, esda, denoiser, ...
        sigma: Standard deviation of the Gaussian noise. Default: 0.25 for recipes with noise.
        options: Options of the recipe, such as lam=20; in Python also {"lam": 20}.
        validation: Images to measure accuracy on at every checkpoint, under the recipe's noise: a data set, split=val
            for another split of the data, or a share of the data to hold out, such as 0.1. Default: none.
        track: Also log to tensorboard, wandb or mlflow. Default: TensorBoard if installed.
        decoders: Processes that decode images that are not held in memory; 0 decodes in this one.
        images: Number of inputs to use, drawn in proportion to the classes. Default: all.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        out: Run directory; the same call resumes it.
        on_progress: Called as on_progress(step, steps, row).
        on_plan: Called with a forecast of the running time before any long work.
        replan: Called as replan(seconds, seconds_per_step) at the first checkpoint of a new run with a run directory,
            which must come within an epoch; returns how many epochs there are to be, as if that had been asked for.
        settings: Fields of `TrainingSettings` by name: epochs, batch_size, lr, schedule, ema, clip, seed, ...

    >>> trained = train("convnet", "demo", images=64, batch_size=32, epochs=1)
    >>> trained.to_row()["steps"], trained.model.training
    (2, False)
    """
    chosen = find_recipe(recipe, **(options or {}))
    noise = chosen.sigma(sigma)
    loop_settings = make_settings(chosen, settings)
    where = torch.device(device_here(choose_device(device)))
    loaded, held_out = _sets(data, validation, images, loop_settings.seed)
    _check_goal(loop_settings, held_out)
    _check_answers(loop_settings, chosen)
    if isinstance(recipe, str):
        chosen = chosen.fitting(loaded.side or 0, options or {})
    start = Start(model, loaded, chosen, seed=loop_settings.seed, sigma=noise, head=loop_settings.head)
    network = start.network()
    task = task_of(loaded)
    with evaluating(network):  # two images are tried before any long work
        loaded = as_images(task.matched(loaded, network))
        check_fit(network, loaded, labels_of(loaded))
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
        check_dense(loop_settings, chosen, feed.framing, feed.augment)
    if on_plan is not None and team.leads:
        on_plan(forecast(network, feed, sigma=noise))
    if replan is not None:
        _check_first_checkpoint(feed)
    search = None
    if chosen.tuples is not None and chosen.tuples.searcher is not None and team.leads:
        search = TupleSearch(chosen.tuples, loaded, seed=loop_settings.seed, device=str(where), batch_size=feed.batch)
    loop = Loop(network, feed, sigma=noise, search=search)
    folder = None if out is None else Path(out)
    watched = (held_out, on_progress) if team.leads else (None, None)
    runner = Runner(loop, folder, *watched, trackers=trackers(track), replan=replan)
    with closing(loop):
        log = _run(runner, subject, team)
        final = runner.finish()
    kept = best_step(log) if loop_settings.goal is not None else None
    tuples = chosen.tuples
    found = () if tuples is None else tuple(tuples.chain(genes).label for genes in loop.found)
    trained = Trained(final, chosen.name, noise, tuple(log), found, folder, kept)
    if folder is not None and team.leads:
        texts = {"epochs": str(loop.ends[-1] // feed.steps_per_epoch), **loop_settings.to_texts()}
        _write(trained, start, chosen, loaded.name, texts)
    if runner.diverged is not None:
        raise _with_kept(runner.diverged, trained)
    return trained


def _run(runner: Runner, subject: dict[str, str], team: Team) -> list[Row]:
    """Run what is missing, and return the log; of a run that diverged, up to its last checkpoint, where it has one."""
    try:
        return team.tell(run(runner, subject, team))
    except RunError as error:
        if runner.diverged is None:
            raise
        if runner.folder is None or not runner.log:
            raise runner.diverged from error
        return runner.log


def _with_kept(error: DivergedError, trained: Trained) -> DivergedError:
    kept = f"the weights of step {trained.row['step']}, in {str(trained.folder)!r}"
    return DivergedError(error.headline, **{**error.facts, "kept": kept})


def make_settings(recipe: Recipe, given: dict[str, Any]) -> TrainingSettings:
    """Return the settings of the loop: the recipe's own defaults, and what was given."""
    return TrainingSettings().changed(
        {**recipe.defaults, **{name: value for name, value in given.items() if value is not None}}
    )


def _write(trained: Trained, start: Start, recipe: Recipe, data: str, texts: dict[str, str]) -> None:
    """Write the model into the run directory, or the denoiser that was trained for it."""
    facts: dict[str, Json] = {
        "version": __version__,
        "model": architecture(start.model),
        "head": start.outputs,
        "recipe": recipe.name,
        "options": {name: str(value) for name, value in recipe.options().items()},
        "sigma": trained.sigma,
        "data": data,
    }
    if isinstance(trained.model, DenoiserInTraining) and trained.folder is not None:
        more: dict[str, Json] = {"settings": dict(texts), "last": dict(trained.row)}
        save_denoiser(trained.folder / DENOISER, trained.model.denoiser, {**facts, **more})
    else:
        write_model(trained, facts, texts)


def _sets(
    data: DataLike, validation: DataLike | float | None, images: int | None, seed: int
) -> tuple[ImageSet, ImageSet | None]:
    """Return what is trained on, and what is validated on: a share of the data, another split, another set or none."""
    loaded = labelled_images(data, images, seed)
    share = share_of(validation)
    if share is not None:
        loaded, held_out = split_off(loaded, share, seed=seed)
        labels_of(loaded)
        return loaded, held_out
    return loaded, None if validation is None else labelled_images(other_split(validation, data), None, 0)


def _check_goal(settings: TrainingSettings, validation: ImageSet | None) -> None:
    if settings.goal is not None and validation is None:
        raise ConfigurationError(
            f"The goal {settings.goal!r} needs a validation set.",
            expected="images that are not trained on",
            fix="--validation FOLDER, or --validation 0.1 for a tenth of the data (validation= in Python)",
        )


def _check_first_checkpoint(feed: Feed) -> None:
    every = feed.settings.checkpoint_every
    if every is not None and every > feed.steps_per_epoch:
        raise ConfigurationError(
            "Epochs can be planned anew only at a checkpoint within the first.",
            expected=f"checkpoint_every of {feed.steps_per_epoch} steps, an epoch, or fewer",
            got=f"{every}",
        )


def _check_answers(settings: TrainingSettings, recipe: Recipe) -> None:
    usual = TrainingSettings()
    asked = [
        name for name in ("label_smoothing", "mix", "class_weights") if getattr(settings, name) != getattr(usual, name)
    ]
    if asked and not recipe.objective.answers:
        raise ConfigurationError(
            f"The loss of {recipe.name!r} does not support modified labels.",
            got=", ".join(asked),
            fix="leave these out, or choose a recipe with a cross-entropy, such as gaussian or augmix+jsd",
        )


def labelled_images(data: DataLike, images: int | None, seed: int) -> ImageSet:
    """Return images to train on, in memory where they fit; refuse none, and those without labels."""
    loaded = load_images(data).take(images, seed=seed)
    if len(loaded) == 0:
        raise DataError("There are no images to train on.", got=loaded.name)
    loaded = loaded.in_memory() if loaded.nbytes <= HELD_BYTES else loaded
    labels_of(loaded)
    return loaded


def check_fit(network: nn.Module, data: ImageSet, labels: Tensor) -> None:
    """Refuse a network, in evaluation mode, without gradients or without a score for every class."""
    batch = next(iter(data.subset(range(2)).batches(2)))
    scores = task_of(data).scores(network, batch.inputs)
    if scores.shape[1] <= int(labels.max()):
        raise ModelError(
            "The model has too few classes for the data.",
            expected=f"{int(labels.max()) + 1} scores or more per image",
            got=f"{scores.shape[1]}",
            fix="shiftproof train --head new puts a new last layer into it, for the classes of the data",
        )
    check_gradients(network, batch.inputs)


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
