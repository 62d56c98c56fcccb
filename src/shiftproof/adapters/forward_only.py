"""FOA: prompts found by forward passes alone, and features shifted to the source's (Niu et al. 2024)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn

from shiftproof.adapters import losses
from shiftproof.adapters.evolution import Evolution
from shiftproof.adapters.features import features_and_logits, last_linear
from shiftproof.adapters.fisher import StreamOrImages
from shiftproof.adapters.method import Method, Parts
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import SourceStatistics
from shiftproof.options import Count, NotNegative, Positive, Share, Words

if TYPE_CHECKING:
    from shiftproof.adapters.adapter import Adapter

PREFIX = "foa/"


class ForwardOnlyOptions(MethodOptions):
    """Options of FOA."""

    source: Annotated[
        StreamOrImages,
        "Where the features of the source come from: images of it, or, short of these, the stream's first batch.",
    ] = "stream"
    prompts: Annotated[Count, "Tokens that are added to those of an image."] = 3
    population: Annotated[
        Count | Literal["auto"],
        Words("a number, or auto: 4 + 3 ln of the size of the prompts"),
        "Prompts tried on a batch, beside the best of the one before.",
    ] = "auto"
    step: Annotated[Positive, "How far prompts are drawn about 0 at the start."] = 1.0
    discrepancy: Annotated[NotNegative, "The weight of the distance to the source's statistics, per 64 images."] = 0.4
    keep_shift: Annotated[Share, "How much of the mean that features are shifted by a batch keeps."] = 0.9


class Seen(NamedTuple):
    """Of a batch under some prompts: logits, what enters the last layer, and what the blocks give, [N, ...] each."""

    logits: Tensor
    features: Tensor
    layers: Tensor


def token_blocks(model: nn.Module) -> Sequence[nn.Module]:
    """Return the blocks of a transformer: the first list of modules of one class with layer normalisation in them.

    None where there is no such list: then there are no tokens that prompts could join.
    """
    for module in model.modules():
        blocks = list(module) if isinstance(module, nn.Sequential | nn.ModuleList) else []
        alike = len(blocks) > 1 and len({type(block) for block in blocks}) == 1
        if alike and all(any(isinstance(part, nn.LayerNorm) for part in block.modules()) for block in blocks):
            return blocks
    return ()


@contextmanager
def prompted(blocks: Sequence[nn.Module], prompts: Tensor | None) -> Iterator[list[Tensor]]:
    """Add prompts [P, D] to the tokens of the first block, and take them away after the last; note what blocks give.

    That is the first token, where it is one more than a square of them, and else the mean.
    """
    caught: list[Tensor] = []
    size = [0]

    def enter(_: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        tokens = given[0]
        size[0] = tokens.shape[1]
        more = () if prompts is None else (prompts.to(tokens).expand(len(tokens), -1, -1),)
        return torch.cat([tokens, *more], dim=1), *given[1:]

    def note(_: nn.Module, given: object, tokens: Tensor) -> None:
        own = tokens[:, : size[0]]
        caught.append(own.mean(1) if math.isqrt(size[0]) ** 2 == size[0] else own[:, 0])

    def leave(_: nn.Module, given: object, tokens: Tensor) -> Tensor:
        return tokens[:, : size[0]]

    hooks = [block.register_forward_hook(note) for block in blocks]
    hooks += [blocks[0].register_forward_pre_hook(enter), blocks[-1].register_forward_hook(leave)] if blocks else []
    try:
        yield caught
    finally:
        for hook in hooks:
            hook.remove()


def look(adapter: Adapter, images: Tensor, prompts: Tensor | None) -> Seen:
    """Return what a batch gives under prompts."""
    with prompted(token_blocks(adapter.model), prompts) as caught:
        features, logits = features_and_logits(adapter.model, adapter.run, images)
    return Seen(logits, features, torch.cat([each.to(features) for each in caught] or [features], dim=1))


def fitness(seen: Seen, mean: Tensor, spread: Tensor, weight: float) -> Tensor:
    """Return what is to be least: the entropies of a batch, and how far its statistics are from the source's."""
    apart = (seen.layers.mean(0) - mean).square().sum() + (_spread(seen.layers) - spread).square().sum()
    return losses.entropy(seen.logits).sum() + weight * len(seen.logits) / 64 * apart


def _spread(values: Tensor) -> Tensor:
    return values.std(0, correction=0)


def _forward_only(o: ForwardOnlyOptions) -> Parts:
    def learn(adapter: Adapter, images: Tensor) -> Tensor:
        memory = adapter.memory
        if PREFIX + "source" not in memory:
            take_source(adapter, images)
        best = look(adapter, images, memory.get(PREFIX + "best"))
        blocks = token_blocks(adapter.model)
        if blocks:
            best = evolve(adapter, images, best)
        kept = memory.get(PREFIX + "mean", best.features.mean(0))
        memory[PREFIX + "mean"] = o.keep_shift * kept + (1 - o.keep_shift) * best.features.mean(0)
        return shifted(adapter, best.logits)

    def evolve(adapter: Adapter, images: Tensor, last: Seen) -> Seen:
        """Try prompts, let the search learn of them, and return what the best gives: of the last best, or of these."""
        memory = adapter.memory
        width = last.layers.shape[1] // len(token_blocks(adapter.model))
        size = o.prompts * width
        search = Evolution(size, 4 + int(3 * math.log(size)) if o.population == "auto" else o.population)
        state = {name.removeprefix("cma/"): each for name, each in memory.items() if name.startswith("cma/")}
        state = state or search.start(last.features.new_zeros(size), o.step)
        tried = search.ask(state, adapter.rng("prompts", search.population).normal(shape=(size,)).to(last.features))
        seen = [look(adapter, images, each.view(o.prompts, width)) for each in tried]
        against = (memory[PREFIX + "layer_mean"], memory[PREFIX + "layer_spread"], o.discrepancy)
        values = torch.stack([fitness(each, *against) for each in seen]).nan_to_num(torch.inf)
        memory |= {f"cma/{name}": each for name, each in search.tell(state, tried, values).items()}
        place = int(values.argmin())
        if PREFIX + "best" in memory and bool(fitness(last, *against) <= values[place]):
            return last
        memory[PREFIX + "best"] = tried[place].view(o.prompts, width)
        return seen[place]

    def shifted(adapter: Adapter, logits: Tensor) -> Tensor:
        """Return the logits of features moved by as much as their mean has left the source's: the head is linear."""
        memory = adapter.memory
        moved = memory[PREFIX + "source"] - memory[PREFIX + "mean"]
        return logits + (moved.to(logits) @ last_linear(adapter.model).weight.to(logits).T)

    def take_source(adapter: Adapter, images: Tensor) -> None:
        given = o.source
        batches = (
            [images] if isinstance(given, str) else torch.split(given, 512) if isinstance(given, Tensor) else given
        )
        parts = [look(adapter, batch, None) for batch in batches]
        layers = torch.cat([part.layers for part in parts])
        adapter.memory |= {
            PREFIX + "source": torch.cat([part.features for part in parts]).mean(0),
            PREFIX + "layer_mean": layers.mean(0),
            PREFIX + "layer_spread": _spread(layers),
        }

    def predict(adapter: Adapter, images: Tensor) -> Tensor:
        seen = look(adapter, images, adapter.memory.get(PREFIX + "best"))
        return shifted(adapter, seen.logits) if PREFIX + "mean" in adapter.memory else seen.logits

    return Parts(norm=SourceStatistics(), learn=learn, predict=predict)


FOA = Method(
    name="foa",
    paper="Niu et al. 2024",
    parts=_forward_only,
    defaults=ForwardOnlyOptions(),
    needs_gradients=False,
    needs_norm_layers=False,
    needs_features=True,
    own_memory=True,
    passes=(28, 0),
    departures="statistics of the source come from source=images, or, short of these, from the stream's first batch; "
    "networks without a class token have the mean of their tokens in its place, and those without blocks of tokens are "
    "shifted without prompts, in one pass; the shift is of what enters the last linear layer; the best prompts of the "
    "batch before can answer, and the search does not learn of them",
)
