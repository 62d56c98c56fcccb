"""The network that training begins with: one seed, one start; and what of it a run directory is about."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn

from shiftproof.data import ImageSet
from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models import NETWORKS, ModelLike, ModelSpec, build_network, fingerprint, load_model
from shiftproof.models.class_names import read_class_names, with_class_names
from shiftproof.models.heads import with_new_head
from shiftproof.models.identity import digest
from shiftproof.models.python_file import is_python_file, split_python_file
from shiftproof.training.denoiser_training import DenoiserInTraining
from shiftproof.training.feed import labels_of
from shiftproof.training.recipes import Recipe
from shiftproof.training.seeding import seeded


class Start:
    """What makes the network to begin with."""

    def __init__(
        self,
        model: ModelLike,
        data: ImageSet,
        recipe: Recipe,
        *,
        seed: int,
        sigma: float = 0.0,
        head: str = "keep",
    ) -> None:
        spec = model if isinstance(model, ModelSpec) else ModelSpec(model)
        self.model, self.options, self.data, self.recipe, self.seed = spec.given, spec.options, data, recipe, seed
        self.sigma = sigma
        self.outputs = max(len(data.classes), int(labels_of(data).max()) + 1) if head == "new" else None
        """How many outputs a new last layer has; None where the model keeps its own."""
        self.text = str(self.model) if isinstance(self.model, str | Path) else ""

    @property
    def is_drawn(self) -> bool:
        """Whether it is a reference network whose weights are drawn at random."""
        return self.text in NETWORKS and self.options.get("weights") is None

    def network(self) -> nn.Module:
        """Return the network: whatever it draws at random, the seed decides."""
        if self.recipe.objective.anchored and self.is_drawn:
            raise ConfigurationError(
                f"The recipe {self.recipe.name!r} needs a trained network to fine-tune.",
                expected="a network with weights",
                got=f"{self.text}, whose weights are random",
                fix="train it first, with --recipe erm or mixed+jsd",
            )
        return self._network(self.seed)

    def identity(self, network: nn.Module) -> str:
        """Return what tells a start from another: given weights count, weights that were drawn do not.

        What a seed draws may differ in its last bits on another machine, and what a `build()` draws from elsewhere
        differs every time; a run goes on from its own checkpoint in any case. So a network that comes without weights
        counts with its architecture and the user's own file, and with those of its tensors that another seed leaves as
        they are: a `build()` may well read trained weights itself.
        """
        if self.options.get("weights") is not None or not (self.text in NETWORKS or is_python_file(self.text)):
            return fingerprint(network)
        other = self._network(self.seed + 1)
        known = dict(_tensors(network))
        with torch.no_grad():
            for name, tensor in _tensors(other):
                if name not in known or not torch.equal(tensor, known[name]):
                    tensor.zero_()
        if self.text in NETWORKS:
            return fingerprint(other)
        path, function = split_python_file(self.text)
        return digest([fingerprint(other), function, path.read_bytes()])

    def _network(self, seed: int) -> nn.Module:
        denoising = self.recipe.denoising
        classifier = self._classifier(seed)
        if denoising is None:
            return classifier
        with seeded(seed):
            return DenoiserInTraining(classifier, self.data.shape[0], self.sigma, denoising)

    def _classifier(self, seed: int) -> nn.Module:
        with seeded(seed):
            if self.is_drawn:
                return self._reference()
            loaded = load_model(self.model, **self.options)
        if not isinstance(loaded, nn.Module):
            raise ModelError(
                "A black box cannot be trained.",
                expected=f"a PyTorch module: {', '.join(NETWORKS)}, file.py:build, torchvision:NAME, timm:NAME",
                got=f"{loaded!r}, which has no weights to change",
            )
        if not any(parameter.requires_grad for parameter in loaded.parameters()):
            raise ModelError(
                "The model has no trainable weights.",
                got="no parameter that requires gradients",
                fix="call requires_grad_(True) on the weights to train; --freeze keeps others as they are",
            )
        network = copy.deepcopy(loaded)
        if self.outputs is None:
            return network
        with seeded(seed):
            return with_class_names(with_new_head(network, self.outputs), self.data.classes)

    def _reference(self) -> nn.Module:
        """Return a reference network with random weights, for the classes and channels of the data."""
        channels, mean, std = self.data.shape[0], self.options.get("mean"), self.options.get("std")
        if self.sigma > 0.0 and mean is None and std is None:
            mean, std = (0.0,) * channels, (1.0,) * channels
        given = self.options.get("classes")
        names = self.data.classes if given is None else read_class_names(given)
        classes = max(2, len(names), 0 if given else int(labels_of(self.data).max()) + 1)
        made = build_network(self.text, classes=classes, channels=channels, mean=mean, std=std)
        return with_class_names(made, names)


def _tensors(network: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(network.named_parameters(remove_duplicate=False), network.named_buffers(remove_duplicate=False))
