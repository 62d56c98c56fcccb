"""Recipes of robust training: a recipe is an augmentation, a noise and a loss, and nothing else.

Written `augmentation` or `augmentation+loss`: `fouriermix+hcr`, `augmix`, `gaussian+jsd`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from shiftproof.errors import ConfigurationError
from shiftproof.options import Options
from shiftproof.registry import Registry, unknown
from shiftproof.training.adversarial_augmentation import AdversarialAugmentation
from shiftproof.training.denoiser_training import Denoising
from shiftproof.training.objectives import (
    Adversarial,
    Anchored,
    CertifiedRadius,
    Consistency,
    CrossEntropy,
    Hierarchical,
    Objective,
    ThreeWay,
)
from shiftproof.training.tuples import Tuples

Noise = Literal["none", "half", "all"]

SMALL_SIDE = 96
"""Up to so many pixels a side, images are trained on as CIFAR's are; larger ones as ImageNet's."""
SIGMA = 0.25
"""The standard deviation of the noise where none is named: the papers' on CIFAR."""


@dataclass(frozen=True)
class Recipe:
    """A training recipe: loss, augmentation, noise and default settings.

    `noise` is added to all images, to half of them (each with probability one half, and only if sigma is given), or to
    none.

    Args:
        name: Name of the recipe.
        does: Short description.
        paper: Reference.
        objective: The loss, and what it needs.
        augment: Text form of a shift applied to every image.
        noise: Which images get Gaussian noise: `all`, `half` or `none`.
        tuples: How chains of transformations are searched for during training.
        defaults: The paper's training settings that differ from the usual ones.
        large: Options for ImageNet-sized images that differ from those for CIFAR.
        departures: Where it differs from the paper or its code.

    >>> Recipe("mine", does="trains under fog", paper="none", augment="fog@2").noise
    'none'
    """

    name: str
    does: str
    paper: str
    objective: Objective = field(default_factory=CrossEntropy)
    augment: str | None = None
    noise: Noise = "none"
    tuples: Tuples | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, float | str] = field(default_factory=dict)
    departures: str = ""

    @property
    def passes(self) -> int:
        """Forward passes per image of a batch."""
        return self.objective.passes

    @property
    def denoising(self) -> Denoising | None:
        """How a denoiser is trained; None if the recipe does not train one."""
        return self.objective if isinstance(self.objective, Denoising) else None

    def with_options(self, **options: Any) -> Recipe:
        """Return the recipe with other options of its loss, its chains or its augmentation.

        >>> recipe("fouriermix+hcr").with_options(lam=20).objective.lam
        20.0
        """
        for name, value in options.items():
            if not self.options():
                raise ConfigurationError(f"The recipe {self.name!r} has no options of its own.", got=f"{name}={value}")
            if name not in self.options():
                raise unknown(f"option of {self.name!r}", name, self.options())
        changes: dict[str, Any] = {"augment": str(options["augment"])} if "augment" in options else {}
        for place, part in self._parts().items():
            given = {name: value for name, value in options.items() if name in part.to_dict()}
            changes |= {place: part.changed(given, self.name)} if given else {}
        return replace(self, **changes) if changes else self

    def fitting(self, side: float, given: Collection[str]) -> Recipe:
        """Return the recipe for an image side in pixels: for large images, options not given are set from `large`.

        >>> recipe("fouriermix+hcr").fitting(224, ["eta"]).options()["lam"]
        5.0
        """
        if side <= SMALL_SIDE:
            return self
        return self.with_options(**{name: value for name, value in self.large.items() if name not in given})

    def options(self) -> dict[str, Any]:
        """Return the options of the recipe, by name."""
        own = {name: value for part in self._parts().values() for name, value in part.to_dict().items()}
        return own if self.augment is None else {**own, "augment": self.augment}

    def _parts(self) -> dict[str, Options]:
        return {"objective": self.objective} | ({} if self.tuples is None else {"tuples": self.tuples})

    def sigma(self, given: float | None) -> float:
        """Return the noise to train with; an error if it does not suit the recipe."""
        if self.noise == "none":
            if given:
                raise ConfigurationError(
                    f"The recipe {self.name!r} adds no noise.",
                    got=f"sigma {given:g}",
                    fix="leave sigma out, or choose a recipe with noise, such as gaussian or fouriermix+hcr",
                )
            return 0.0
        usual = SIGMA if self.noise == "all" else 0.0  # published without noise, where it is on half of the images
        value = usual if given is None else float(given)
        least = "0 (no noise) or more" if self.noise == "half" else "more than 0"
        if not 0.0 <= value < 10.0 or (self.noise == "all" and value == 0.0):
            raise ConfigurationError(
                f"The recipe {self.name!r} cannot use this sigma.",
                expected=f"sigma {least}, on the [0, 1] scale of images, such as 0.25",
                got=f"{value:g}",
            )
        return value


_LARGE_AUGMENT = {
    "autoaugment": {"augment": "auto_augment[policy=imagenet]"},
    "fouriermix": {"augment": "fouriermix[preset=imagenet]"},
}
_LARGE_HCR = {"lam": 5.0, "eta": 5.0}
"""Of Sun et al. 2022, on ImageNet."""
_AUGMENTED = {
    "autoaugment": ("auto_augment", "Cubuk et al. 2019", ("jsd",)),
    "augmix": ("augmix", "Hendrycks et al. 2020", ("jsd", "hcr")),
    "fouriermix": ("fouriermix", "Sun et al. 2022", ("jsd", "hcr")),
    "prime": ("prime", "after Modas et al. 2022", ("jsd", "anchor")),
    "spectra": ("random_blur + coloured_noise", "this package", ("jsd", "anchor")),
    "mixed": ("prime + random_blur + coloured_noise", "this package", ("jsd", "anchor")),
}
_UNPROVEN = "experimental: there is no recorded run that certifies more than gaussian"
_SEARCHED = "searches go on after the rate begins to fall, and 200 epochs hold 39 of the 100"
_HALF = "noise goes on each image with probability one half, by its key, rather than on half of a batch"


def _recipes() -> dict[str, Recipe]:
    """Return every recipe, with the losses that the papers train it with."""
    volpi = "Volpi & Murino 2019"
    plain = [
        Recipe("erm", "cross-entropy of framed images", "the usual training"),
        Recipe("gaussian", "noise on every image", "Cohen et al. 2019", noise="all"),
        Recipe("gaussian+jsd", "consistency of two noisy copies", "Jeong & Shin 2020", Consistency(), noise="all"),
        Recipe(
            "smoothadv",
            "attack on the smoothed classifier",
            "Salman et al. 2019",
            Adversarial(),
            noise="all",
            departures=_UNPROVEN,
        ),
        Recipe(
            "macer",
            "maximise the certified radius",
            "Zhai et al. 2020",
            CertifiedRadius(),
            noise="all",
            defaults={"lr": 0.01, "batch_size": 64},
            departures=_UNPROVEN,
        ),
        Recipe(
            "denoiser",
            "a denoiser for a classifier that stays as it is",
            "Salman et al. 2020",
            Denoising(),
            noise="all",
            defaults={"lr": 0.001, "optimizer": "adam", "schedule": "cosine", "epochs": 90, "ema": 0.999},
            departures="a U-net that is told the noise rather than a DnCNN; cosine schedule; an average of the weights",
        ),
        Recipe(
            "ada",
            "images moved to where the loss is higher, and features are not far",
            "Volpi et al. 2018",
            AdversarialAugmentation(),
            departures="images are moved in the step that trains on them, by its weights, and not the whole set a few "
            "times in between; they stay in [0, 1]",
        ),
        Recipe("rda", "a random chain of operations per batch", volpi, tuples=Tuples()),
        Recipe(
            "rsda",
            "chains of transformations the network is weak to, by random search",
            volpi,
            tuples=Tuples(searcher="random", budget=100),
            departures=_SEARCHED,
        ),
        Recipe(
            "esda",
            "chains of transformations the network is weak to, by evolution",
            volpi,
            tuples=Tuples(searcher="evolution", budget=110),
            departures=f"{_SEARCHED}; evolution selects by rank, not by 1 / f",
        ),
    ]
    made = {each.name: each for each in plain}
    for name, (shift, paper, losses) in _AUGMENTED.items():
        large = _LARGE_AUGMENT.get(name, {})
        made[name] = Recipe(
            name,
            f"{name} views; with sigma, noise on half of them",
            paper,
            augment=shift,
            noise="half",
            large=large,
            departures=_HALF,
        )
        if "jsd" in losses:
            does = f"divergence of an image and two {name} views"
            made[f"{name}+jsd"] = replace(made[name], name=f"{name}+jsd", does=does, objective=ThreeWay())
        if "anchor" in losses:
            does = f"fine-tuning that stays close to the original network's outputs, also under {name} views"
            made[f"{name}+anchor"] = replace(made[name], name=f"{name}+anchor", does=does, objective=Anchored())
        if "hcr" in losses:
            made[f"{name}+hcr"] = Recipe(
                f"{name}+hcr",
                f"hierarchical consistency over {name} views and noise",
                "Sun et al. 2022",
                Hierarchical(),
                augment=shift,
                noise="all",
                large={**large, **_LARGE_HCR},
            )
    return made


ALIASES: Mapping[str, str] = MappingProxyType({"jsd": "gaussian+jsd"})

RECIPES: Registry[Recipe] = Registry(
    "recipe",
    "shiftproof.recipes",
    _recipes(),
    lambda found: isinstance(found, Recipe),
    "a training.Recipe",
    lambda: ALIASES,
)
"""Name -> recipe, in the order tables list them; others add theirs."""


def recipe(name: str | Recipe, **options: Any) -> Recipe:
    """Return a recipe by name, with options: `recipe("esda", length=3)`.

    Args:
        name: The name of a recipe (`shiftproof list recipes`), or a `Recipe`.
        options: Options of the recipe.

    >>> recipe("fouriermix+hcr").passes
    6
    """
    if isinstance(name, Recipe):
        return name.with_options(**options)
    text = name.replace(" ", "").lower()
    text = ALIASES.get(text, text)
    return RECIPES.load(text).with_options(**options)
