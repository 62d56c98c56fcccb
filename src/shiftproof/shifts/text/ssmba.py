"""SSMBA: mask some tokens and let a masked language model fill them in anew (Ng et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.errors import ConfigurationError
from shiftproof.models.huggingface import import_transformers, load_network, load_tokenizer, longest
from shiftproof.shifts.base import reads_files
from shiftproof.shifts.text.base import TextShift, some

MASKED, REPLACED = 0.8, 0.1
"""Of the chosen tokens, the shares that are masked and replaced at random; the rest are kept as they are."""

BATCH = 64

Tokens = NDArray[np.int64]


class Corrupted(NamedTuple):
    """A text's tokens with some of them corrupted, and the places of these."""

    tokens: Tokens
    places: list[int]


def corrupt_tokens(
    tokens: Tokens, free: Sequence[int], share: float, *, mask: int, vocabulary: Tokens, rng: np.random.Generator
) -> Corrupted:
    """Corrupt a share of the tokens at the `free` places: 80% become `mask`, 10% a random token, 10% stay.

    The expected number of chosen tokens is exactly the share of the free ones. Random tokens are of the `vocabulary`.
    """
    places = [free[number] for number in some(len(free), share, rng)]
    made = tokens.copy()
    for place, kind in zip(places, rng.random(len(places)).tolist(), strict=True):
        if kind < MASKED:
            made[place] = mask
        elif kind < MASKED + REPLACED:
            made[place] = vocabulary[rng.integers(len(vocabulary))]
    return Corrupted(made, places)


@dataclass(frozen=True)
class Ssmba(TextShift):
    """A text from the neighbourhood of another on the manifold of texts, as a masked language model knows it.

    `model` is a folder with a masked language model of `transformers` and its tokenizer. Of the tokens, a share (15% at
    severity 2) is corrupted and then sampled from what the model says stands there. Texts longer than it reads are cut.
    """

    name: str = field(default="ssmba", init=False)
    model: str = ""
    device: str | None = None
    strengths: ClassVar[tuple[float, ...]] = (0, 0.07, 0.15, 0.25, 0.40, 0.60)
    category: ClassVar[str] = "language model"

    def files(self) -> tuple[str, ...]:
        """Return the folder of the language model."""
        return (self.model,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ConfigurationError(
                "The shift ssmba needs a masked language model.",
                expected="a folder that save_pretrained wrote: ssmba@2[model=FOLDER]",
            )

    def edit_all(self, texts: list[str], generators: Sequence[np.random.Generator]) -> list[str]:
        """Corrupt the tokens of every text, and let the model fill them in, texts of one length at a time."""
        language = load_masked_model(self.model, self.device or "cpu")
        corrupted = [
            corrupt_tokens(
                tokens,
                [place for place, token in enumerate(tokens.tolist()) if token not in language.special],
                self.strength,
                mask=language.tokenizer.mask_token_id,
                vocabulary=language.vocabulary,
                rng=rng,
            )
            for tokens, rng in zip(language.encode(texts), generators, strict=True)
        ]
        made = list(texts)
        # Texts of one length need no padding, on which what a model says depends a little.
        lengths = np.array([len(one.tokens) for one in corrupted])
        for length in np.unique(lengths).tolist():
            same = np.flatnonzero(lengths == length).tolist()
            for start in range(0, len(same), BATCH):
                group = [row for row in same[start : start + BATCH] if corrupted[row].places]
                filled = language.fill([corrupted[row] for row in group], [generators[row] for row in group])
                for row, tokens in zip(group, filled, strict=True):
                    made[row] = language.decode(tokens)
        return made

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Return one text from the neighbourhood."""
        return self.edit_all([text], [rng])[0]


class MaskedModel(NamedTuple):
    """A masked language model with its tokenizer, the tokens that mark places, and those that stand for words."""

    network: Any
    tokenizer: Any
    special: frozenset[int]
    vocabulary: Tokens
    max_length: int
    device: str

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the tokens of every text."""
        encoded = self.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]
        return [np.array(row, np.int64) for row in encoded]

    def fill(self, corrupted: Sequence[Corrupted], generators: Sequence[np.random.Generator]) -> list[Tokens]:
        """Return tokens in which every corrupted place is sampled anew; all texts have one length."""
        if not corrupted:
            return []
        marks = torch.tensor(sorted(self.special), device=self.device)  # which are not words
        likely = self.scores(corrupted).double().index_fill_(1, marks, -torch.inf).softmax(1)
        levels = iter(likely.cumsum(1).cpu().numpy())
        filled = []
        for one, rng in zip(corrupted, generators, strict=True):
            tokens = one.tokens.copy()
            for place in one.places:
                below = next(levels)
                tokens[place] = min(int(np.searchsorted(below, rng.random() * below[-1], "right")), len(below) - 1)
            filled.append(tokens)
        return filled

    def scores(self, corrupted: Sequence[Corrupted]) -> Tensor:
        """Return what the model says of every corrupted place, text by text, [places, vocabulary]."""
        batch = torch.from_numpy(np.stack([one.tokens for one in corrupted])).to(self.device)
        rows = torch.tensor([row for row, one in enumerate(corrupted) for _ in one.places], device=self.device)
        columns = torch.tensor([place for one in corrupted for place in one.places], device=self.device)
        # Scores of every word take most of the time and memory: the last layer sees the places asked for, no others.
        last = self.network.get_output_embeddings()
        hook = None if last is None else last.register_forward_pre_hook(lambda _, found: (found[0][rows, columns],))
        try:
            with torch.no_grad():
                found: Tensor = self.network(input_ids=batch, attention_mask=torch.ones_like(batch)).logits
        finally:
            if hook is not None:
                hook.remove()
        return found if found.dim() == 2 else found[rows, columns]  # models that do not use that layer

    def decode(self, tokens: Tokens) -> str:
        """Return the text of tokens."""
        text: str = self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True)
        return text


@reads_files
@lru_cache(maxsize=2)
def load_masked_model(folder: str, device: str) -> MaskedModel:
    """Return the masked language model in a folder, on a device."""
    transformers = import_transformers()
    network = load_network(transformers.AutoModelForMaskedLM, folder, "masked language model").to(device)
    tokenizer = load_tokenizer(folder)
    if tokenizer.mask_token_id is None:
        raise ConfigurationError(f"The tokenizer in {folder!r} has no mask token.", expected="a masked language model")
    special = frozenset(tokenizer.all_special_ids)
    words = np.array([token for token in range(network.config.vocab_size) if token not in special], np.int64)
    return MaskedModel(network, tokenizer, special, words, longest(network, tokenizer), device)
