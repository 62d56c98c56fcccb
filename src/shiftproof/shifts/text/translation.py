"""Back-translation: into another language and back, with words sampled on the way (Xie et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from shiftproof.errors import ConfigurationError
from shiftproof.models.huggingface import import_transformers, load_network, load_tokenizer, longest
from shiftproof.shifts.base import reads_files
from shiftproof.shifts.text.base import TextShift


@dataclass(frozen=True)
class BackTranslation(TextShift):
    """A text translated into a pivot language by the model in the folder `there`, and back by the one in `back`.

    Both sample their words; the temperature is 0.7 at severity 2, as in Ng et al. 2023. Texts are translated one at a
    time, so that what is drawn for a text does not depend on its batch.
    """

    name: str = field(default="back_translation", init=False)
    there: str = ""
    back: str = ""
    device: str | None = None
    strengths: ClassVar[tuple[float, ...]] = (0, 0.35, 0.7, 1.0, 1.3, 1.6)
    category: ClassVar[str] = "language model"

    def files(self) -> tuple[str, ...]:
        """Return the folders of the two models."""
        return self.there, self.back

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.there or not self.back:
            raise ConfigurationError(
                "The shift back_translation needs two translation models.",
                expected="folders that save_pretrained wrote: back_translation@2[there=FOLDER,back=FOLDER]",
            )

    def edit(self, text: str, rng: np.random.Generator) -> str:
        """Translate a text there and back."""
        for folder in (self.there, self.back):
            translator = load_translator(folder, self.device or "cpu")
            text = translator(text, self.strength, int(rng.integers(2**31))) or text
        return text


class Translator(NamedTuple):
    """A translation model with its tokenizer."""

    network: Any
    tokenizer: Any
    max_length: int
    device: str

    def __call__(self, text: str, temperature: float, seed: int) -> str:
        """Return a translation whose words are sampled at a temperature."""
        encoded = self.tokenizer([text], truncation=True, max_length=self.max_length, return_tensors="pt")
        inputs = {name: encoded[name].to(self.device) for name in ("input_ids", "attention_mask")}
        devices = [self.device] if self.device.startswith("cuda") else []
        with torch.random.fork_rng(devices), torch.no_grad():
            torch.manual_seed(seed)
            out = self.network.generate(
                **inputs, do_sample=True, num_beams=1, top_k=0, temperature=temperature, max_length=self.max_length
            )
        made: str = self.tokenizer.decode(out[0].tolist(), skip_special_tokens=True)
        return made.strip()


@reads_files
@lru_cache(maxsize=2)
def load_translator(folder: str, device: str) -> Translator:
    """Return the translation model in a folder, on a device."""
    transformers = import_transformers()
    network = load_network(transformers.AutoModelForSeq2SeqLM, folder, "translation model").to(device)
    tokenizer = load_tokenizer(folder)
    return Translator(network, tokenizer, longest(network, tokenizer), device)
