"""Classifiers saved by Hugging Face's `transformers`: a folder with a configuration, weights, and here a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shiftproof.errors import DataError, ModelError
from shiftproof.models.normalize import Normalize
from shiftproof.models.texts import Text, parts
from shiftproof.runs.files import is_file, read_json

CONFIGURATION = "config.json"
SEGMENTERS = {
    "ForSemanticSegmentation": "AutoModelForSemanticSegmentation",
    "ForUniversalSegmentation": "AutoModelForUniversalSegmentation",
    "ForInstanceSegmentation": "AutoModelForUniversalSegmentation",
}
"""How names of segmenters end -> what loads them."""
PADDED = 2.0
"""Texts that are read together have at most so many times the letters of the shortest of them."""
LETTERS = 8
"""Letters of a token, at most, where texts are long enough to be cut."""
LONGEST = 512
"""Tokens read at most where neither the tokenizer nor the configuration says how many."""


class HuggingFaceClassifier(nn.Module):
    """A sequence classifier with its tokenizer: texts, or pairs of them, to logits.

    Texts longer than `max_length` tokens are cut. What is saved does not tell whether it was trained on pairs.
    """

    pairs: bool | None = None

    def __init__(self, network: nn.Module, tokenizer: Any) -> None:
        super().__init__()
        self.network = network
        self.tokenizer = tokenizer
        self.max_length = longest(network, tokenizer)

    def forward(self, texts: Sequence[Text]) -> Tensor:
        """Return logits [N, classes] of N texts, or pairs of them."""
        if isinstance(texts, Tensor):
            raise DataError("The model reads texts, and these are images.", expected="a list of texts", got="images")
        device = next(self.network.parameters()).device
        letters = [min(sum(map(len, parts(text))), LETTERS * self.max_length) for text in texts]
        groups = [list(range(len(texts)))] if self.training else of_like_length(letters)
        found = []
        for places in groups:
            encoded = self.tokenizer(
                *_sides([texts[place] for place in places]),
                padding=True,
                truncation=True,
                max_length=self.max_length,
                return_tensors="pt",
            )
            found.append(self.network(**{name: tensor.to(device) for name, tensor in encoded.items()}).logits)
        order = torch.tensor([place for places in groups for place in places], device=device)
        return torch.cat(found)[order.argsort()]

    def decides_outputs(self) -> object:
        """Return what decides the logits besides the network: how texts are cut into tokens, and how many are read.

        A tokenizer keeps the padding of its last call and the folder it came from, which do not.
        """
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            return [self.max_length, type(self.tokenizer), sorted(self.tokenizer.get_vocab().items())]
        told = json.loads(backend.to_str())
        return [self.max_length, {name: part for name, part in told.items() if name not in ("padding", "truncation")}]

    def lengths(self, texts: Sequence[Text]) -> list[int]:
        """Return how many tokens each text has, with those that mark its ends."""
        return [len(row) for row in self.tokenizer(*_sides(texts), truncation=False, verbose=False)["input_ids"]]


def of_like_length(lengths: Sequence[int]) -> list[list[int]]:
    """Return the places of texts in groups of like lengths, shortest first: the shorter ones are padded to the longest.

    >>> of_like_length([30, 4, 5, 31, 4])
    [[1, 4, 2], [0, 3]]
    """
    groups: list[list[int]] = []
    for place in sorted(range(len(lengths)), key=lambda each: lengths[each]):
        if groups and lengths[place] <= PADDED * lengths[groups[-1][0]]:
            groups[-1].append(place)
        else:
            groups.append([place])
    return groups


def is_huggingface_folder(path: Path) -> bool:
    """Whether a folder holds a model that `transformers` saved."""
    return is_file(path / CONFIGURATION)


def load_huggingface(folder: Path, normalize: Normalize | None = None) -> nn.Module:
    """Return the classifier of texts or images saved in a folder. Nothing is fetched and no code in it is run.

    `normalize` is that of images, where the folder does not say it.
    """
    transformers = import_transformers()
    try:
        configuration = read_json(folder / CONFIGURATION)
        kinds = list(configuration.get("architectures") or [])
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ModelError(
            f"Cannot read the configuration in {str(folder)!r}.",
            expected="a folder that save_pretrained wrote",
            got=str(error),
        ) from error
    if not kinds and "architecture" in configuration:
        raise _of_timm(folder, configuration["architecture"])
    if any(name in str(kind) for kind in kinds for name in ("ForImageClassification", *SEGMENTERS)):
        from shiftproof.models.huggingface_images import load_image_model

        segments = next((name for name in SEGMENTERS if any(name in str(kind) for kind in kinds)), None)
        kind = "AutoModelForImageClassification" if segments is None else SEGMENTERS[segments]
        return load_image_model(folder, normalize, kind)
    if kinds and not any(str(kind).endswith("ForSequenceClassification") for kind in kinds):
        raise ModelError(
            f"The model in {str(folder)!r} classifies neither texts nor images.",
            expected="a classifier or segmenter, such as BertForSequenceClassification, ViTForImageClassification or "
            "SegformerForSemanticSegmentation",
            got=", ".join(map(str, kinds)),
        )
    network = load_network(transformers.AutoModelForSequenceClassification, folder)
    return HuggingFaceClassifier(network, load_tokenizer(folder))


def _of_timm(folder: Path, architecture: object) -> ModelError:
    weights = next((path for path in sorted(folder.iterdir()) if path.suffix in (".safetensors", ".bin")), "FILE")
    return ModelError(
        f"The folder {str(folder)!r} is timm's, not one of transformers.",
        expected="a folder that save_pretrained wrote",
        got=f"the architecture {architecture} in {CONFIGURATION}",
        fix=f"--model timm:{architecture} --weights {weights}, and --classes FILE with its label_names, one per line",
    )


def load_network(kind: Any, folder: str | Path, what: str = "model") -> Any:
    """Return a network from a local folder, in evaluation mode; one whose weights are not all there is refused."""
    network, told = _load(kind, folder, what, output_loading_info=True)
    missing = sorted(told["missing_keys"])
    if missing:
        raise ModelError(
            f"Weights of the {what} in {str(folder)!r} are missing.",
            expected=f"all weights of a {type(network).__name__}",
            got=f"none for {', '.join(missing[:3])}" + (f" and {len(missing) - 3} more" if len(missing) > 3 else ""),
            fix="save the model after it was trained for the task",
        )
    return network.eval()


def load_tokenizer(folder: str | Path) -> Any:
    """Return a tokenizer from a local folder."""
    return _load(import_transformers().AutoTokenizer, folder, "tokenizer")


def _load(kind: Any, folder: str | Path, what: str, **options: Any) -> Any:
    if not Path(folder).is_dir():
        raise ModelError(f"There is no folder {str(folder)!r} with a {what}.", expected="what save_pretrained wrote")
    try:
        with _quiet():
            return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # damaged files make transformers fail in many ways
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            f"Cannot load the {what} in {str(folder)!r}.",
            expected="a folder that save_pretrained wrote, with the model and its tokenizer",
            got=lines[0],
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep progress bars and warnings of `transformers` off the terminal, and leave its settings as they were."""
    log = import_transformers().utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def longest(network: nn.Module, tokenizer: Any) -> int:
    """Return how many tokens a network reads at most."""
    configured = getattr(getattr(network, "config", None), "max_position_embeddings", None)
    # RoBERTa's positions begin after its padding index, so that two of them are never used.
    positions = configured - 2 if configured and getattr(network.config, "model_type", "") == "roberta" else configured
    known = [value for value in (positions, tokenizer.model_max_length) if value and value < 10**6]
    return min(known, default=LONGEST)


def import_transformers() -> Any:
    """Return the package `transformers`, or say how to get it."""
    try:
        import transformers
    except (ImportError, RuntimeError) as error:
        raise ModelError(
            "Hugging Face models need the package transformers.",
            fix="pip install 'shiftproof[text]'",
            reason=str(error).splitlines()[0],
        ) from error
    return transformers


def _sides(texts: Sequence[Text]) -> tuple[list[str], ...]:
    """Return the texts, or the first and the second texts of pairs."""
    if all(isinstance(text, str) for text in texts):
        return ([str(text) for text in texts],)
    return [text[0] for text in texts], [text[1] for text in texts]
