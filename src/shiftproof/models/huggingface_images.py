"""Image classifiers and segmenters of Hugging Face's `transformers`: what their processor does becomes part of them.

Its file is read as it is, since the processor itself would need torchvision, and works on single images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from shiftproof.errors import ModelError
from shiftproof.models.huggingface import import_transformers, load_network
from shiftproof.models.input_size import InputSize, with_input_size
from shiftproof.models.normalize import Normalize
from shiftproof.models.returned import Logits
from shiftproof.runs.files import read_json

PROCESSOR = "preprocessor_config.json"


def load_image_model(folder: Path, normalize: Normalize | None, kind: str) -> nn.Module:
    """Return the image classifier or segmenter saved in a folder, from images in [0, 1] to logits, with class names.

    `kind` is the class of `transformers` that loads it. `normalize` is for a folder without a processor; where there is
    one, it is the processor's. A classifier is told the size of its images; a segmenter takes any.
    """
    network = load_network(getattr(import_transformers(), kind), folder)
    facts = _processor(folder)
    if facts is None and normalize is None:
        raise ModelError(
            f"The model in {str(folder)!r} does not say how its images are normalised.",
            expected=f"{PROCESSOR}, as processor.save_pretrained writes it",
            fix="save the processor too, or pass mean and std, on the [0, 1] scale, as the network was trained",
        )
    if facts is not None and normalize is not None:
        raise ModelError(
            f"The model in {str(folder)!r} has its own normalisation.",
            got=f"mean and std in {PROCESSOR}",
            fix="leave out mean and std",
        )
    layer = normalize or _normalization(facts or {})
    model = nn.Sequential(layer, Logits(network))
    return with_input_size(model, _size(facts or {})) if kind == "AutoModelForImageClassification" else model


def _processor(folder: Path) -> Mapping[str, Any] | None:
    if not (folder / PROCESSOR).is_file():
        return None
    try:
        facts = read_json(folder / PROCESSOR)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"Cannot read the processor of the model in {str(folder)!r}.",
            expected=f"{PROCESSOR}, as processor.save_pretrained writes it",
            got=str(error),
        ) from error
    return facts if isinstance(facts, Mapping) else {}


def _normalization(facts: Mapping[str, Any]) -> Normalize:
    """Return the normalisation of images in [0, 1]; the processor's is of levels of 0 to 255 times its factor."""
    factor = 255.0 * float(facts.get("rescale_factor", 1 / 255)) if facts.get("do_rescale", True) else 255.0
    means, stds = _per_channel(facts.get("image_mean", 0.5)), _per_channel(facts.get("image_std", 0.5))
    if not facts.get("do_normalize", True):
        means, stds = [0.0] * len(means), [1.0] * len(stds)
    offset = 1.0 if facts.get("rescale_offset") else 0.0  # which takes images to [-1, 1] first
    return Normalize([(mean + offset) / factor for mean in means], [std / factor for std in stds])


def _per_channel(value: Any) -> list[float]:
    return [float(one) for one in value] if isinstance(value, list) else [float(value)] * 3


def _size(facts: Mapping[str, Any]) -> InputSize | None:
    """Return the size of images; a processor that stretches them to a square gets their centre instead."""
    if not facts.get("do_resize", True):
        return None
    resize = _side(facts.get("size"))
    if resize is None:
        return None
    if facts.get("crop_pct") and resize < 384:  # ConvNeXt's rule
        return InputSize(int(resize / float(facts["crop_pct"])), resize)
    crop = _side(facts.get("crop_size")) if facts.get("do_center_crop") else None
    stretched = isinstance(facts["size"], Mapping) and "shortest_edge" not in facts["size"]
    return InputSize(resize, crop or resize, stretched=stretched)


def _side(value: Any) -> int | None:
    """Return a side from the ways in which processors write one."""
    if isinstance(value, Mapping):
        value = value.get("shortest_edge") or value.get("height")
    return int(value) if isinstance(value, int | float) else None
