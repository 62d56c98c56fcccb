"""Calibrate: measure, for one model, the pairs of corruptions a CCC run needs, and only where its path may go.

First every corruption alone at severity 5, which tells who can reach the target; then, for the pairs of the run, both
alone and together on a coarse grid up to where they pass the target; then the places of the best path so far, on ever
more images, until the accuracy over every stretch of the path is known to a given precision, or the pair strays.
Accuracies are fitted to all that was counted for a pair (`measures.surfaces`): raw counts would make the search choose
the places that were lucky.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path as FilePath

from shiftproof.data import DataLike
from shiftproof.errors import ConfigurationError
from shiftproof.measures.windows import WINDOW
from shiftproof.models import ModelLike
from shiftproof.models.identity import digest
from shiftproof.runs import Executor, OnProgress, Plan, Store, choose_executor
from shiftproof.shifts import corruption
from shiftproof.streams.ccc.probing import WHOLE, Condition, Probe
from shiftproof.streams.ccc.schedule import LENGTH, SEED, SPEED, MissingPairError, Pair, Schedule
from shiftproof.streams.ccc.stream_calibration import FILE, StreamCalibration, Variant
from shiftproof.streams.ccc.surveying import Route, Survey, find_routes
from shiftproof.streams.ccc.targets import Target, accuracy_at, read_target, released_corruptions
from shiftproof.streams.orders import corruptions
from shiftproof.subjects import Subject
from shiftproof.version import __version__

IMAGES = 4000
"""Images a place is measured on, at most."""
PRECISION = 0.01
"""Standard error of the accuracy at every place of a path."""
STEADY = 0.02
"""A path that strays from the target by more than this, over a window, is avoided: difficulty shall be constant."""
REACH = 0.02
"""A corruption that stays above the target by no more than this at severity 5 still counts as reaching it."""
SURVEY_LOOKS = 4
"""Corruptions alone at severity 5 are counted on up to 1,000 images."""
SURE = 3.0
"""Standard errors that such a count must be off the target for no more to be counted."""
CLEAN_LOOKS = 5
"""Clean accuracy, which named targets are shares of, is counted on 2,000 images."""
IMAGES_PER_STEP, USUAL_STEPS, IMAGES_PER_PAIR = 2_500, 10, 8_000
"""What a forecast knows before anything is measured, counted as so many steps and as one pair: images that a step of a
stream costs, and a pair."""


def calibrate(
    model: ModelLike = "demo",
    data: DataLike = "demo",
    *,
    target: Target = "easy",
    speed: int = SPEED,
    shifts: Sequence[str] | None = None,
    calibration_images: int = IMAGES,
    precision: float = PRECISION,
    crop: float | None = None,
    steady: float | None = STEADY,
    variant: Variant = "steady",
    images: int = LENGTH,
    seed: int = SEED,
    device: str = "auto",
    batch_size: int | None = None,
    out: str | FilePath = "shiftproof-calibration",
    executor: str | Executor = "inline",
    on_progress: OnProgress | None = None,
) -> StreamCalibration:
    """Calibrate a CCC stream: measure how hard pairs of corruptions are for a model. Writes calibration.json.

    A later call with a longer stream or another target measures only what is missing. Where the steps of severity are
    too coarse for a model, or one corruption undoes part of the other, as blur does with noise, no path keeps the
    accuracy constant.

    Args:
        model: Anything `load_model` accepts.
        data: Anything `load_data` accepts.
        target: Accuracy of the model along the stream: easy, medium, hard, or a number such as 0.34.
        speed: Images per step of severity.
        shifts: Shifts or families; holdout is for choosing hyper-parameters.
        calibration_images: Largest number of images to measure per pair of severities.
        precision: Target standard error of the accuracy over any two steps of a path (over one if a step has more than
            1,000 images).
        crop: Smallest area of the random crops, as a fraction of the image. Default: chosen by image size.
        steady: Avoid pairs that cannot stay within this distance of the target; 1 avoids none, as published.
        variant: How paths keep to the target. steady: over any 2,000 images; exact: in the mean of a path, as
            published; release: with the corruptions and path search of the released generator, which avoids no pair.
        images: Length of the stream.
        seed: Seed of the stream.
        device: auto, cpu, cuda or cuda:1; auto uses CUDA if available.
        batch_size: Inputs per forward pass. Default: chosen by device and image size.
        out: Run directory; the same call resumes it.
        executor: inline, processes, processes:4, ray or ray:16. Does not affect the numbers.
        on_progress: Called as on_progress(done, total, result); counts are images, and the total is an estimate.

    >>> import torch
    >>> images = torch.linspace(0.3, 0.7, 40)[:, None, None, None].expand(40, 3, 32, 32).clone()
    >>> images[::2, :, ::2] += 0.3  # class 0 has stripes
    >>> found = calibrate(
    ...     lambda images: torch.stack([images.std((1, 2, 3)), torch.full((len(images),), 0.08)], 1),
    ...     (images, [0, 1] * 20),
    ...     target=0.75,
    ...     shifts=["contrast", "fog"],
    ...     calibration_images=20,
    ...     images=200,
    ...     speed=100,
    ...     out=folder,
    ... )
    >>> found.target
    0.75
    """
    length, images = images, calibration_images
    target = read_target(target)
    if length < 1 or speed < 1 or images < 1 or precision <= 0:
        raise ConfigurationError(
            "Invalid calibration settings.",
            expected="length, speed and images of 1 or more, a precision above 0",
            got=f"length {length}, speed {speed}, images {images}, precision {precision:g}",
        )
    tested = Subject.of(model, data, device=device, batch_size=batch_size)
    probe = Probe(tested, crop)
    images = min(images, len(probe.pool))
    identity = {"model": tested.model_fingerprint, "data": probe.whole.fingerprint}
    subject = {"version": __version__, **identity, "calibration": digest([images, probe.area])}
    together = 2 if 2 * speed <= WINDOW else 1
    where = choose_executor(executor, device=tested.device)
    with Store(FilePath(out), subject) as store, where.open(probe) as pool:
        tested.check_answers(store)
        survey = Survey(pool, Plan((), subject), store, on_progress, images)
        survey.measure([WHOLE], CLEAN_LOOKS)
        right, seen = survey.counted(WHOLE)
        clean, classes = right / seen, survey.classes
        goal = accuracy_at(target, clean=clean, classes=classes)
        released = variant == "release"
        if released:
            chosen = corruptions(shifts) if shifts else released_corruptions(goal, clean=clean, classes=classes)
            noises, left_out = chosen, dict[str, float]()
        else:
            noises, left_out = _who_reaches(survey, corruptions(shifts), goal)
        limit = inf if steady is None or released else steady
        routes: dict[Pair, Route] = {}
        off_target: dict[Pair, float] = {}
        begun, steps = survey.spent, -(-length // speed)
        while True:
            missing, reached = _missing(noises, routes, off_target, seed, steps)
            if missing is None:
                break
            untried = len(noises) * (len(noises) - 1) - len(routes)
            by_pair = (survey.spent - begun + IMAGES_PER_PAIR) / (len(routes) + 1)
            by_step = (survey.spent - begun + USUAL_STEPS * IMAGES_PER_STEP) / (reached + USUAL_STEPS)
            survey.forecast = survey.spent + round(min(by_step * (steps - reached), by_pair * untried))
            routes |= find_routes(
                survey, [missing], goal, variant=variant, together=together, precision=precision, limit=limit
            )
            if (stray := routes[missing].straying(goal)) > limit:
                off_target[missing] = stray
        survey.finish()
        made = StreamCalibration(
            **identity,
            target=goal,
            clean=clean,
            classes=classes,
            images=images,
            seed=0,
            crop=probe.area,
            variant=variant,
            noises=noises,
            left_out=left_out,
            measured=survey.measured,
            paths={pair: route.path for pair, route in routes.items()},
            expected={pair: route.accuracy for pair, route in routes.items()},
            errors={pair: max(route.error) for pair, route in routes.items()},
            off_target=off_target,
            name=tested.name if isinstance(getattr(model, "given", model), str | FilePath) else "",
            length=length,
            speed=speed,
            stream_seed=seed,
        )
        made.save(FilePath(out) / FILE)
    return made


def _who_reaches(survey: Survey, names: Sequence[str], target: float) -> tuple[tuple[str, ...], dict[str, float]]:
    """Return the corruptions that bring the model down to the target alone, or the two that come nearest."""
    strongest = {name: Condition.of(corruption(name, 5)) for name in names}
    open_names, accuracy = list(names), dict[str, float]()
    for looks in range(1, SURVEY_LOOKS + 1):
        survey.measure([strongest[name] for name in open_names], looks)
        counts = {name: survey.counted(strongest[name], looks) for name in open_names}
        accuracy |= {name: right / images for name, (right, images) in counts.items()}
        open_names = [name for name in open_names if abs(accuracy[name] - target - REACH) < SURE * counts[name].error]
    reaching = [name for name in names if accuracy[name] <= target + REACH]
    if len(reaching) < 2:
        reaching = sorted(names, key=lambda name: accuracy[name])[:2]
    return tuple(reaching), {name: accuracy[name] for name in names if name not in reaching}


def _missing(
    noises: Sequence[str], routes: Mapping[Pair, Route], off_target: Mapping[Pair, float], seed: int, steps: int
) -> tuple[Pair | None, int]:
    """Return the pair without a path that a run of so many steps needs next, if any, and how many steps are covered.

    It is one at a time: if it strays, the run goes on to others than if it does not.
    """
    schedule = Schedule(noises, {pair: route.path for pair, route in routes.items()}, seed, off_target)
    try:
        schedule.segments(steps)
    except MissingPairError as error:
        return error.pair, schedule.reached()
    return None, steps
