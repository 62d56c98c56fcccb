"""Every form of model that people bring, as a table: name -> what makes it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
import transformers
from safetensors.torch import save_file
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from torch import Tensor, nn

from shiftproof.models import BlackBox, Normalize, channels_last
from tests.ecosystem.bench import CLASSES, HALF, IMAGENET, Bench, Brought, Net, normalised

K = len(CLASSES)


def on(network: Any, constants: tuple[list[float], list[float]] = IMAGENET) -> Callable[[Tensor], Tensor]:
    """Return what a network answers to images in [0, 1] in a script of its user's."""

    def plain(images: Tensor) -> Tensor:
        with torch.no_grad():
            out = network(normalised(images, constants))
        scores: Tensor = out if isinstance(out, Tensor) else out.logits
        return scores

    return plain


def saved(network: nn.Module, path: Path, form: str) -> Path:
    """Write weights as people keep them."""
    tensors = {name: part.contiguous() for name, part in network.state_dict().items()}
    match form:
        case "safetensors":
            save_file(tensors, path)
        case "lightning":
            inside = {f"model.{name}": part for name, part in tensors.items()}
            whole = {
                "state_dict": {**inside, "loss.weight": torch.ones(K)},
                "hyper_parameters": {"lr": 0.1},
                "epoch": 1,
            }
            torch.save({**whole, "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}}]}, path)
        case "ddp":
            torch.save({"model": {f"module.{name}": part for name, part in tensors.items()}, "epoch": 3}, path)
        case "lightning ddp":
            torch.save({"state_dict": {f"module.net.{name}": part for name, part in tensors.items()}}, path)
        case "backbone":
            torch.save({"state_dict": {f"backbone.{name}": part for name, part in tensors.items()}}, path)
        case "compiled":
            torch.save({f"_orig_mod.{name}": part for name, part in tensors.items()}, path)
        case "timm":
            torch.save({"state_dict": tensors, "args": Namespace(lr=0.1), "arch": "net", "metric": 91.0}, path)
        case _:
            torch.save(tensors, path)
    return path


def of_timm(bench: Bench, name: str, form: str) -> Brought:
    network = timm.create_model(name, num_classes=K)
    constants = (list(network.pretrained_cfg["mean"]), list(network.pretrained_cfg["std"]))
    bench.trained(network, constants)
    return Brought(f"timm:{name}", on(network, constants), {"weights": saved(network, bench.root / "weights", form)})


def of_torchvision(bench: Bench, name: str, form: str) -> Brought:
    network = bench.trained(torchvision.models.get_model(name, num_classes=K))
    path = saved(network, bench.root / "weights.pth", form)
    return Brought(f"torchvision:{name}", on(network), {"weights": path, "num_classes": K})


def timm_constants(bench: Bench) -> Brought:
    network = bench.trained(timm.create_model("test_resnet", num_classes=K))
    options = {"weights": saved(network, bench.root / "w.pth", ""), "mean": IMAGENET[0], "std": IMAGENET[1]}
    return Brought("timm:test_resnet", on(network), options)


def of_huggingface(bench: Bench, kind: str) -> Brought:
    labels: dict[str, Any] = {"id2label": dict(enumerate(CLASSES)), "label2id": {n: i for i, n in enumerate(CLASSES)}}
    if kind == "vit":
        shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        config = transformers.ViTConfig(**shape, image_size=32, patch_size=8, **labels)
        network, constants = transformers.ViTForImageClassification(config), HALF
        facts: dict[str, Any] = {"size": {"height": 32, "width": 32}, "image_mean": HALF[0], "image_std": HALF[1]}
    else:
        config = transformers.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", **labels
        )
        network, constants = transformers.ResNetForImageClassification(config), IMAGENET
        facts = {"size": {"shortest_edge": 32}, "image_mean": IMAGENET[0], "image_std": IMAGENET[1]}
    bench.trained(network, constants)
    if kind == "object":
        options = {"mean": constants[0], "std": constants[1]}
        return Brought(network, on(network, constants), options)
    folder = bench.root / "saved"
    network.save_pretrained(folder)
    transformers.ViTImageProcessor(**facts).save_pretrained(folder)
    return Brought(str(folder), on(network, constants))


def own(bench: Bench, form: Callable[[Tensor, Tensor], Any] | None = None, **options: Any) -> Brought:
    """Return a user's own module that returns its scores in some form."""
    network = bench.trained(Net())
    returns = Net(form)
    returns.load_state_dict(network.state_dict())
    return Brought(returns.eval(), on(network), {"mean": IMAGENET[0], "std": IMAGENET[1], **options})


def in_a_file(bench: Bench, form: str, wrapped: bool) -> Brought:
    network = bench.trained(Net())
    body = "nn.Sequential(Normalize(*IMAGENET), Net())" if wrapped else "Net()"
    (bench.root / "own_model.py").write_text(
        "from torch import nn\nfrom shiftproof.models import Normalize\n"
        f"from tests.ecosystem.bench import IMAGENET, Net\n\ndef build():\n    return {body}\n"
    )
    options: dict[str, Any] = {"weights": saved(network, bench.root / "weights", form)}
    if not wrapped:
        options |= {"mean": IMAGENET[0], "std": IMAGENET[1]}
    return Brought(f"{bench.root / 'own_model.py'}:build", on(network), options)


def by_module_path(bench: Bench) -> Brought:
    made = in_a_file(bench, "", wrapped=True)
    package = bench.root / f"package_{bench.root.name.replace('-', '_')}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (bench.root / "own_model.py").rename(package / "models.py")
    sys.path.insert(0, str(bench.root))  # as an installed package's
    return Brought(f"{package.name}.models:build", made.plain, made.options)


def probabilities(bench: Bench, **options: Any) -> Brought:
    network = bench.trained(Net())
    return Brought(lambda images: on(network)(images).softmax(1), on(network), options)


def estimator(bench: Bench, made: Any, labels: str = "numbers") -> Brought:
    given = {
        "numbers": bench.labels.numpy(),
        "names": [CLASSES[label] for label in bench.labels.tolist()],
        "gaps": (2 * bench.labels + 1).numpy(),
    }
    made.fit(bench.rows, given[labels])
    answer = "predict_proba" if hasattr(made, "predict_proba") else "decision_function"
    rows = partial(_answered, made, answer)
    return Brought(made, rows, folder=labels)


def _answered(made: Any, answer: str, images: Tensor) -> Tensor:
    return torch.tensor(getattr(made, answer)(images.permute(0, 2, 3, 1).flatten(1).numpy()))


def numbered_by_the_alphabet(bench: Bench) -> Brought:
    """Return a network whose outputs are called by the numbers of the classes, in another order than theirs."""
    order = [2, 0, 1]
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label=dict(enumerate("201"))
    )
    network: Any = bench.trained(transformers.ResNetForImageClassification(config))
    turned = transformers.ResNetForImageClassification(config).eval()
    state = dict(network.state_dict())
    state |= {name: part[order] for name, part in state.items() if name.startswith("classifier")}
    turned.load_state_dict(state)
    turned.save_pretrained(bench.root / "saved")
    facts: dict[str, Any] = {"size": {"shortest_edge": 32}, "image_mean": IMAGENET[0], "image_std": IMAGENET[1]}
    transformers.ViTImageProcessor(**facts).save_pretrained(bench.root / "saved")
    return Brought(str(bench.root / "saved"), on(network), folder="numbers")


class Taking(nn.Module):
    """A network that takes channels last, or levels of 0 to 255, as those made for serving do."""

    def __init__(self, network: nn.Module, kind: str) -> None:
        super().__init__()
        self.network, self.kind = network, kind

    def forward(self, images: Tensor) -> Any:
        if "uint8" in self.kind:
            images = images.float() / 255
        return self.network(images.permute(0, 3, 1, 2) if "last" in self.kind else images)


def numpy_function(bench: Bench, last: bool) -> Brought:
    network = bench.trained(Net())
    if last:
        return Brought(
            channels_last(lambda images: on(network)(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()), on(network)
        )
    return Brought(BlackBox(lambda images: on(network)(images).tolist(), name="remote"), on(network))


def exported(bench: Bench, kind: str) -> Brought:
    network = bench.trained(Net())
    whole: nn.Module = nn.Sequential(Normalize(*IMAGENET), network).eval()
    path = bench.root / f"model.{kind}"
    example = bench.images[:2]
    match kind:
        case _ if "onnx" in kind:
            whole = Taking(whole, kind).eval()
            example = example.permute(0, 2, 3, 1) if "last" in kind else example
            example = (example * 255).to(torch.uint8) if "uint8" in kind else example
            example = example[:1] if "one" in kind else example
            names: dict[str, Any] = {
                "input_names": ["x"],
                "output_names": ["y"],
                **({} if "one" in kind else {"dynamic_axes": {"x": {0: "n"}, "y": {0: "n"}}}),
            }
            torch.onnx.export(whole, (example,), str(path), dynamo=False, **names)
        case "pt2":
            batch = torch.export.Dim("n", min=1, max=256)
            torch.export.save(torch.export.export(whole, (example,), dynamic_shapes=({0: batch},)), path)
        case _:
            torch.jit.trace(whole, example).save(str(path))
    return Brought(str(path), on(network))


def named_by_a_file(bench: Bench) -> Brought:
    network = bench.trained(Net())
    order = [2, 0, 1]
    turned = Net()
    state = dict(network.state_dict())
    state["head.weight"], state["head.bias"] = state["head.weight"][order], state["head.bias"][order]
    turned.load_state_dict(state)
    (bench.root / "classes.txt").write_text("\n".join(CLASSES[place] for place in order))
    options = {"mean": IMAGENET[0], "std": IMAGENET[1], "classes": bench.root / "classes.txt"}
    return Brought(turned.eval(), on(network), options)


def held_to_some(bench: Bench) -> Brought:
    network: Any = bench.trained(Net())
    wide = Net()
    wide.head = nn.Linear(128, 5)
    state = {name: part for name, part in network.state_dict().items() if not name.startswith("head")}
    wide.load_state_dict(state, strict=False)
    with torch.no_grad():
        wide.head.weight[[0, 2, 4]], wide.head.bias[[0, 2, 4]] = network.head.weight, network.head.bias
        wide.head.bias[[1, 3]] = 1e3
    names = [CLASSES[0], "fox", CLASSES[1], "owl", CLASSES[2]]
    options = {"mean": IMAGENET[0], "std": IMAGENET[1], "classes": names, "only_classes": bench.root / "names"}
    return Brought(wide.eval(), on(network), options)


def named_network(bench: Bench) -> Brought:
    """Return the demo's network as a module: of its ten classes, three are in the folder."""
    from shiftproof import load_model

    network: Any = load_model("demo")
    return Brought("demo", lambda images: network(images).detach()[:, [3, 5, 8]], {"only_classes": list(CLASSES)})


MODELS: Mapping[str, Callable[[Bench], Brought]] = {
    **{
        f"timm, {form}": partial(of_timm, name="test_resnet", form=form)
        for form in ("state dict", "safetensors", "lightning", "ddp", "lightning ddp", "backbone", "compiled", "timm")
    },
    "timm, efficientnet": partial(of_timm, name="test_efficientnet", form="state dict"),
    "timm, convnext": partial(of_timm, name="test_convnext", form="safetensors"),
    "timm, other mean and std": timm_constants,
    **{
        f"torchvision, {form}": partial(of_torchvision, name="squeezenet1_1", form=form)
        for form in ("state dict", "safetensors", "lightning", "ddp")
    },
    "torchvision, shufflenet": partial(of_torchvision, name="shufflenet_v2_x0_5", form="state dict"),
    "transformers, ViT saved": partial(of_huggingface, kind="vit"),
    "transformers, ResNet saved": partial(of_huggingface, kind="resnet"),
    "transformers, an object": partial(of_huggingface, kind="object"),
    "transformers, numbers as names": numbered_by_the_alphabet,
    "own module": own,
    "own module, tuple": partial(own, form=lambda scores, features: (scores, features)),
    "own module, dict": partial(own, form=lambda scores, features: {"features": features, "logits": scores}),
    "own module, out": partial(own, form=lambda scores, features: {"out": scores, "aux": features}),
    "own module, ModelOutput": partial(
        own, form=lambda scores, features: transformers.modeling_outputs.ImageClassifierOutput(logits=scores)
    ),
    "own module, key": partial(own, form=lambda scores, features: {"a": features, "b": scores}, output="b"),
    "own module, number": partial(own, form=lambda scores, features: (features, scores), output=1),
    "file, state dict": partial(in_a_file, form="state dict", wrapped=False),
    "file, lightning": partial(in_a_file, form="lightning", wrapped=False),
    "file, bare weights behind a Normalize": partial(in_a_file, form="safetensors", wrapped=True),
    "module path": by_module_path,
    "probabilities, said": partial(probabilities, probabilities=True),
    "probabilities, found": probabilities,
    "function of NHWC arrays": partial(numpy_function, last=True),
    "function that returns lists": partial(numpy_function, last=False),
    "scikit-learn, logistic regression": lambda bench: estimator(bench, LogisticRegression(C=0.01, max_iter=500)),
    "scikit-learn, random forest of names": lambda bench: estimator(
        bench, RandomForestClassifier(5, max_depth=2, random_state=0), "names"
    ),
    "scikit-learn, SVC of labels with gaps": lambda bench: estimator(bench, SVC(C=0.1), "gaps"),
    "scikit-learn, pipeline": lambda bench: estimator(
        bench, make_pipeline(StandardScaler(), LogisticRegression(C=0.001, max_iter=500)), "names"
    ),
    "ONNX": partial(exported, kind="onnx"),
    "ONNX, one image at a time": partial(exported, kind="one.onnx"),
    "ONNX, channels last": partial(exported, kind="last.onnx"),
    "ONNX, uint8": partial(exported, kind="uint8.onnx"),
    "ONNX, one image of uint8, channels last": partial(exported, kind="one.last.uint8.onnx"),
    "torch.export": partial(exported, kind="pt2"),
    "TorchScript": partial(exported, kind="ts"),
    "class names in a file": named_by_a_file,
    "some of its classes": held_to_some,
    "the demo's network": named_network,
}
"""Name -> a model with what the plain path answers."""
