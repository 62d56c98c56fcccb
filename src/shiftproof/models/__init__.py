"""What is tested: loading models, normalisation, reference networks, black boxes.

model = load_model("demo")
scores = logits(model, images)          # images [N, C, H, W] in [0, 1]; scores [N, K], checked
"""

from shiftproof.models.adaptive import Adaptive
from shiftproof.models.array_models import channels_last
from shiftproof.models.blackbox import BlackBox, Model
from shiftproof.models.class_names import class_names, label_numbers
from shiftproof.models.devices import choose_device
from shiftproof.models.identity import fingerprint
from shiftproof.models.input_size import InputSize, input_size
from shiftproof.models.layers import has_batch_norm
from shiftproof.models.loading import FORMS, load_model
from shiftproof.models.memory import BatchFitter
from shiftproof.models.named import card
from shiftproof.models.networks import NETWORKS, build_network
from shiftproof.models.normalize import Normalize
from shiftproof.models.outputs import device_of, logits
from shiftproof.models.specs import ModelLike, ModelSpec
from shiftproof.models.statistics import StatisticsTap, collect_statistics, source_statistics
from shiftproof.models.weights import load_weights, read_weights

__all__ = [
    "FORMS",
    "NETWORKS",
    "Adaptive",
    "BatchFitter",
    "BlackBox",
    "InputSize",
    "Model",
    "ModelLike",
    "ModelSpec",
    "Normalize",
    "StatisticsTap",
    "build_network",
    "card",
    "channels_last",
    "choose_device",
    "class_names",
    "collect_statistics",
    "device_of",
    "fingerprint",
    "has_batch_norm",
    "input_size",
    "label_numbers",
    "load_model",
    "load_weights",
    "logits",
    "read_weights",
    "source_statistics",
]
