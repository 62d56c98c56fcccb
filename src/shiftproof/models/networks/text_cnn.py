"""The reference text classifier: a convolutional network over words (Kim 2014), with its own tokenizer.

It is called with texts and returns logits, so that it is audited, shifted and estimated like any other model.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.errors import DataError, ModelError
from shiftproof.models.class_names import with_class_names
from shiftproof.models.texts import Text, parts
from shiftproof.models.weights import load_weights
from shiftproof.runs import write_atomically
from shiftproof.runs.files import read_json

NAME = "text_cnn"
KERNELS = (3, 4, 5)
PADDING, UNKNOWN, SEPARATOR = "<pad>", "<unknown>", "<separator>"
SPECIAL = (PADDING, UNKNOWN, SEPARATOR)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?|[^\w\s]|_")


def words(text: str) -> list[str]:
    """Return the words and punctuation marks of a text, in lower case.

    >>> words("It's GOOD, really.")
    ["it's", 'good', ',', 'really', '.']
    """
    return _WORD.findall(text.lower())


def make_vocabulary(texts: Iterable[Text], size: int = 20_000) -> list[str]:
    """Return the most frequent words of some texts, after the three special ones."""
    counts = Counter(word for text in texts for part in parts(text) for word in words(part))
    return [*SPECIAL, *(word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:size])]


class TextCNN(nn.Module):
    """Word embeddings, stacks of convolutions of 3, 4 and 5 words, a maximum over the text, and an MLP.

    As in Ng et al. 2023 (section A.2): embeddings of 512 dimensions, 256 channels, one hidden layer of 512, dropout of
    0.2 on the inputs and in the MLP; `depth` convolutions are stacked. `pairs` says whether inputs are pairs of texts,
    which are read one after the other with a separator between them. Texts longer than `max_length` words are cut.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        classes: int = 2,
        embedding: int = 512,
        width: int = 256,
        depth: int = 1,
        hidden: int = 512,
        dropout: float = 0.2,
        max_length: int = 512,
        pairs: bool = False,
    ) -> None:
        super().__init__()
        self.vocabulary = list(vocabulary)
        self.settings: dict[str, Any] = {
            "classes": classes,
            "embedding": embedding,
            "width": width,
            "depth": depth,
            "hidden": hidden,
            "dropout": dropout,
            "max_length": max_length,
            "pairs": pairs,
        }
        self.pairs = pairs
        self.class_names: tuple[str, ...] | None = None
        self.max_length = max_length
        self._numbers = {word: number for number, word in enumerate(self.vocabulary)}
        self.embedding = nn.Embedding(len(self.vocabulary), embedding, padding_idx=0)
        # Vectors of length 1: from PyTorch's, of length sqrt(embedding), networks learn slower and generalise worse.
        with torch.no_grad():
            self.embedding.weight.mul_(embedding**-0.5)
        self.stacks = nn.ModuleList(_Stack(embedding, width, depth, kernel) for kernel in KERNELS)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Sequential(
            nn.Linear(width * len(KERNELS), hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes)
        )

    def forward(self, texts: Sequence[Text]) -> Tensor:
        """Return logits [N, classes] of N texts, or pairs of them."""
        if isinstance(texts, Tensor):
            raise DataError("The model reads texts, and these are images.", expected="a list of texts", got="images")
        return self.classify(self.encode(texts))

    def encode(self, texts: Sequence[Text]) -> Tensor:
        """Return the numbers of the words of every text, [N, longest] int64, padded with 0."""
        return padded(self.numbers(texts)).to(self.embedding.weight.device)

    def numbers(self, texts: Sequence[Text]) -> list[list[int]]:
        """Return the numbers of the words that are read of every text."""
        return [self._numbered(text)[: self.max_length] for text in texts]

    def classify(self, numbers: Tensor) -> Tensor:
        """Return logits of encoded texts; how far they are padded makes no difference."""
        there = (numbers != 0)[:, None]
        embedded = self.dropout(self.embedding(numbers)).transpose(1, 2)
        pooled = [stack(embedded, there) for stack in self.stacks]
        logits: Tensor = self.head(torch.cat(pooled, dim=1))
        return logits

    def folded(self) -> Callable[[Tensor], Tensor]:
        """Return `classify` for networks that are not trained any more, with the first convolutions folded into tables.

        A convolution of embedded words is a sum of what each word contributes at each place of the kernel. Looking that
        up is several times faster than computing it, once a network has seen more words than its vocabulary has.
        """
        weights = self.embedding.weight.detach()
        stacks = cast("list[_Stack]", list(self.stacks))
        tables = [torch.cat([weights @ part.T for part in stack.first.weight.detach().unbind(2)]) for stack in stacks]

        @torch.no_grad()
        def classify(numbers: Tensor) -> Tensor:
            there = (numbers != 0)[:, None]
            pooled = []
            for stack, table in zip(stacks, tables, strict=True):
                windows = F.pad(numbers, stack.around).unfold(1, stack.kernel, 1)
                places = windows + len(weights) * torch.arange(stack.kernel, device=numbers.device)
                summed = F.embedding_bag(places.flatten(0, 1), table, mode="sum").view(*numbers.shape, -1)
                pooled.append(stack.rest((summed + cast(Tensor, stack.first.bias)).transpose(1, 2), there))
            logits: Tensor = self.head(torch.cat(pooled, dim=1))
            return logits

        return classify

    def lengths(self, texts: Sequence[Text]) -> list[int]:
        """Return how many words each text has."""
        return [len(self._numbered(text)) for text in texts]

    def save(self, folder: str | Path) -> None:
        """Write the network, its settings and its vocabulary to a folder that `load_model` reads."""
        from safetensors.torch import save

        out = Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        write_atomically(out / "model.safetensors", save(tensors))
        about = {"model": NAME, "settings": self.settings, "vocabulary": self.vocabulary}
        about["classes"] = list(self.class_names or ())
        write_atomically(out / "model.json", json.dumps(about, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> TextCNN:
        """Return the network that `save` wrote, in evaluation mode."""
        try:
            about = read_json(Path(folder) / "model.json")
            made = with_class_names(cls(about["vocabulary"], **about["settings"]), about.get("classes"))
        except Exception as error:  # settings that no network can have fail in any way there is
            raise ModelError(
                f"Cannot read how the text network in {str(folder)!r} was built.",
                expected="settings and a vocabulary in model.json",
                got=f"{type(error).__name__}: {error}",
            ) from error
        load_weights(made, Path(folder) / "model.safetensors")
        return made.eval()

    def _numbered(self, text: Text) -> list[int]:
        if isinstance(text, str) == self.pairs:
            kinds = ("pairs of texts", "single texts") if self.pairs else ("single texts", "pairs of texts")
            raise DataError(
                f"The model reads {kinds[0]}, and these are {kinds[1]}.",
                expected=kinds[0],
                got=kinds[1],
                fix="--text-column NAME reads one column as the text, --text-column ONE,OTHER two as a pair",
            )
        found = [[self._numbers.get(word, 1) for word in words(part)] for part in parts(text)]
        return found[0] if len(found) == 1 else [*found[0], self._numbers[SEPARATOR], *found[1]]


class _Stack(nn.Module):
    """Convolutions over the words of a text, and the largest value of every channel over all of them."""

    def __init__(self, channels: int, width: int, depth: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        # After a word an even kernel sees one more than before it.
        self.around = ((kernel - 1) // 2, kernel // 2)
        ins = [channels, *[width] * (depth - 1)]
        self.layers = nn.ModuleList(nn.Conv1d(size, width, kernel) for size in ins)

    @property
    def first(self) -> nn.Conv1d:
        """The convolution of the embedded words."""
        return cast(nn.Conv1d, self.layers[0])

    def forward(self, found: Tensor, there: Tensor) -> Tensor:
        """Return [N, width] for values [N, channels, words], of which some words are there, [N, 1, words]."""
        return self.rest(self.first(F.pad(found * there, self.around)), there)

    def rest(self, found: Tensor, there: Tensor) -> Tensor:
        """Return [N, width] for what the first convolution gives, [N, width, words]."""
        for layer in self.layers[1:]:
            found = layer(F.pad(torch.relu(found) * there, self.around))
        return (torch.relu(found) * there).amax(2)


def padded(rows: Sequence[list[int]]) -> Tensor:
    """Return numbers of words as [N, longest] int64, padded with 0, at least as long as the longest kernel."""
    longest = max([max(KERNELS), *map(len, rows)])
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows], dtype=torch.int64).view(len(rows), longest)
