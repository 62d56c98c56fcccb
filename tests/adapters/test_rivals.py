"""RDumb++, ASR and PeTTA against plain loops over the same batches, in double precision."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shiftproof.adapters import Adapter, adapt
from shiftproof.adapters.catalogue import method
from shiftproof.adapters.rotta import Bank, Entry
from tests.adapters.networks import convolutional, stream
from tests.adapters.test_methods import in_training

CLOSE: dict[str, Any] = {"rtol": 0, "atol": 1e-9}
MARGIN, COSINE, RATE = 0.9, 0.97, 0.003


def sure(center: Callable[[nn.Module], nn.Module] = in_training) -> nn.Sequential:
    """Return a network whose answers differ and are neither all sure nor all unsure."""
    model = convolutional().double()
    head = model[-1]
    assert isinstance(head, nn.Linear)
    torch.manual_seed(1)
    head.weight.data = 40 * torch.randn(5, 8, dtype=torch.float64)
    head.bias.data.zero_()
    head.bias.data -= center(model)(torch.rand(64, 3, 16, 16, dtype=torch.float64)).mean(0).detach()
    return model


def drifting(batches: int = 14, size: int = 16) -> list[Tensor]:
    """Batches whose contrast changes abruptly."""
    return [
        (0.5 + (batch.double() - 0.5) * (0.2 if 5 <= place < 8 else 1.0)).clamp(0, 1)
        for place, batch in enumerate(stream(batches, size))
    ]


def entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(-1)
    return -(p * p.log()).sum(-1)


class PlainEta:
    """ETA written out once more: which images count, for how much, and the mean prediction."""

    def __init__(self, model: nn.Module, lr: float) -> None:
        self.start, self.model, self.lr = in_training(model), in_training(model), lr
        self.names = ["1.weight", "1.bias", "4.weight", "4.bias"]
        self.forget()

    def forget(self) -> None:
        self.momentum: dict[str, Tensor] = {}
        self.mean: Tensor | None = None

    def parameters(self, model: nn.Module | None = None) -> list[Tensor]:
        named = dict((model or self.model).named_parameters())
        return [named[name] for name in self.names]

    def gradients(self, logits: Tensor) -> list[Tensor] | None:
        bound, kept = MARGIN * math.log(5), []
        for row in range(len(logits)):
            p = logits[row].detach().softmax(0)
            novel = self.mean is None or float(p @ self.mean / p.norm() / self.mean.norm()) < COSINE
            if entropy(logits[row].detach()) < bound and novel:
                kept.append(row)
        if not kept:
            return None
        new = torch.stack([logits[row].detach().softmax(0) for row in kept]).mean(0)
        self.mean = new if self.mean is None else 0.9 * self.mean + 0.1 * new
        each = [entropy(logits[row]) * math.exp(bound - float(entropy(logits[row].detach()))) for row in kept]
        return list(torch.autograd.grad(torch.stack(each).mean(), self.parameters()))

    def step(self, gradients: list[Tensor]) -> None:
        with torch.no_grad():
            for name, parameter, gradient in zip(self.names, self.parameters(), gradients, strict=True):
                self.momentum[name] = 0.9 * self.momentum[name] + gradient if name in self.momentum else gradient
                parameter.sub_(self.lr * self.momentum[name])


OPTIONS: dict[str, Any] = {"lr": RATE, "entropy_margin": MARGIN, "similarity": COSINE}


def assert_follows(adapter: Adapter, plain: PlainEta) -> None:
    for name, expected in zip(plain.names, plain.parameters(), strict=True):
        torch.testing.assert_close(adapter.trained[name].detach(), expected.detach(), **CLOSE)


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["entropy", "prediction"])
def test_rdumbpp_goes_back_when_what_it_watches_rises(kind: str, share: float) -> None:
    bound, rate = (0.3, 1e-4) if kind == "entropy" else (1.0, RATE)  # learning lowers entropies
    options = {"drift": kind, "deviations": bound, "keep_drift": 0.8, "warm_up": 2, "cool_down": 3}
    adapter = adapt(sure(), "rdumbpp", return_share=share, **options, **(OPTIONS | {"lr": rate}))  # type: ignore[arg-type]
    plain, resets = PlainEta(sure(), rate), 0
    mean = square = known = None
    since = 3
    for place, batch in enumerate(drifting()):
        logits = plain.model(batch)
        if kind == "entropy":
            value = float(entropy(logits.detach()).mean())
        else:
            p = logits.detach().softmax(1).mean(0)
            value = 0.0 if known is None else float((p * (p.log() - known.log())).sum())
            known = p if known is None else 0.9 * known + 0.1 * p
        mean = value if mean is None else 0.8 * mean + 0.2 * value
        square = value**2 if square is None else 0.8 * square + 0.2 * value**2
        spread = math.sqrt(max(square - mean**2, 1e-12))
        if place >= 2 and since >= 3 and (value - mean) / spread > bound:
            resets, since = resets + 1, 0
            with torch.no_grad():
                for parameter, start in zip(plain.parameters(), plain.parameters(plain.start), strict=True):
                    parameter.copy_((1 - share) * parameter + share * start)
            if share == 1:
                plain.forget()
            logits = plain.model(batch)
        since += 1
        torch.testing.assert_close(adapter(batch), logits.detach(), **CLOSE)
        gradients = plain.gradients(logits)
        if gradients:
            plain.step(gradients)
        assert_follows(adapter, plain)
    assert adapter.resets == resets > 0
    assert adapter.updates > 8


def test_asr_returns_in_part_and_holds_on_to_what_mattered() -> None:
    options: dict[str, Any] = {
        "level_share": 0.6,
        "follow": 0.4,
        "keep_share": 0.8,
        "keep_slope": 0.9,
        "anchor_weight": 5.0,
    }
    adapter = adapt(sure(), "asr", **options, **OPTIONS)
    plain, resets, kept_share = PlainEta(sure(), RATE), 0, []
    start_level = math.log(0.6 * 5)
    level, steps, pull = start_level, 0, 0.0
    sums: dict[str, list[Tensor]] = {}
    kept: dict[str, list[Tensor]] = {}
    for batch in drifting():
        logits = plain.model(batch)
        torch.testing.assert_close(adapter(batch), logits.detach(), **CLOSE)
        gradients = plain.gradients(logits)
        if gradients:
            for place, (name, parameter) in enumerate(zip(plain.names, plain.parameters(), strict=True)):
                new = [gradients[place] ** 2, parameter.detach().clone()]
                sums[name] = [a + b for a, b in zip(sums[name], new, strict=True)] if name in sums else new
            if kept:
                parameters = plain.parameters()
                term = sum(
                    (kept[name][0] * (parameter - kept[name][1]) ** 2).sum()
                    for name, parameter in zip(plain.names, parameters, strict=True)
                )
                assert isinstance(term, Tensor)
                pulls = torch.autograd.grad(pull * term, parameters)
                gradients = [a + b for a, b in zip(gradients, pulls, strict=True)]
            plain.step(gradients)
        steps += 1
        flips = float((plain.start(batch).argmax(1) != logits.argmax(1)).double().mean())
        pull = 5.0 * flips**2
        now = float(entropy(logits.detach().mean(0)))
        if now < level:
            resets += 1
            for name, totals in sums.items():
                means = [total / steps for total in totals]
                kept[name] = [0.9 * a + 0.1 * b for a, b in zip(kept.get(name, means), means, strict=True)]
            scope = max(0.8 - 0.9 * (level - now), 0.0)
            kept_share.append(scope)
            with torch.no_grad():
                pairs = zip(plain.parameters(), plain.parameters(plain.start), strict=True)
                for place, (parameter, start) in enumerate(pairs):
                    if place >= scope * 4:
                        parameter.copy_(start)
            plain.forget()
            sums, steps, level = {}, 0, start_level
        else:
            mu = 0.4 * flips + 1 - 0.4
            level = mu * level + (1 - mu) * now
        assert_follows(adapter, plain)
    assert adapter.resets == resets >= 2
    assert any(0 < share < 0.8 for share in kept_share)
    assert adapter.updates > 8


class Robust(nn.Module):
    """The batch norm of RoTTA: while it gathers, running statistics take in a share of each batch and normalise."""

    def __init__(self, norm: nn.BatchNorm2d, share: float) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        self.weight, self.bias = (nn.Parameter(tensor.detach().clone()) for tensor in (norm.weight, norm.bias))
        self.mean, self.var, self.eps, self.share = norm.running_mean.clone(), norm.running_var.clone(), norm.eps, share
        self.gathers = False

    def forward(self, x: Tensor) -> Tensor:
        mean, var = self.mean, self.var
        if self.gathers:
            mean = (1 - self.share) * mean + self.share * x.mean((0, 2, 3))
            var = (1 - self.share) * var + self.share * x.var((0, 2, 3), unbiased=False)
            self.mean, self.var = mean.detach(), var.detach()
        each = (x - mean[None, :, None, None]) / (var[None, :, None, None] + self.eps).sqrt()
        return each * self.weight[None, :, None, None] + self.bias[None, :, None, None]


def robust(model: nn.Sequential, share: float) -> nn.Sequential:
    made = copy.deepcopy(model).requires_grad_(False)
    for place in (1, 4):
        norm = made[place]
        assert isinstance(norm, nn.BatchNorm2d)
        made[place] = Robust(norm, share)
    return made.eval()


def gathering(model: nn.Sequential, gathers: bool) -> nn.Sequential:
    for place in (1, 4):
        model[place].gathers = gathers  # type: ignore[assignment]
    return model


def cross(logits: Tensor, target: Tensor) -> Tensor:
    return -(target.softmax(1) * logits.log_softmax(1)).sum(1)


@pytest.mark.parametrize("compare", ["teacher", "symmetric"])
def test_petta_is_held_back_as_features_diverge(compare: str) -> None:
    source = torch.rand(200, 3, 16, 16, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    darker = lambda images, keys, seed: images * 0.9  # noqa: E731
    options = {"source": source, "augment": darker, "capacity": 12, "update_every": 8, "ema": 0.1}
    adapter = adapt(sure(copy.deepcopy), "petta", compare=compare, keep_weights=0.7, lr=0.02, **options)  # type: ignore[arg-type]
    teacher, student, start = (robust(sure(copy.deepcopy), 0.1) for _ in range(3))
    parameters, slow = ([p for p in model.parameters() if p.requires_grad] for model in (student, teacher))
    first = [p.detach().clone() for p in parameters]
    optimizer = torch.optim.Adam(parameters, lr=0.02, betas=(0.9, 0.999))
    features = start[:-1](source).detach()
    labels = start(source).argmax(1)
    means0 = torch.stack([features[labels == c].mean(0) for c in range(5)])
    vars0 = torch.stack([features[labels == c].var(0) for c in range(5)])
    means, images = means0.clone(), torch.empty(0, 3, 16, 16, dtype=torch.float64)
    bank, gammas = Bank(12, 5, []), []
    for batch in drifting(8, 8):
        with torch.no_grad():
            feats = gathering(teacher, False)[:-1](batch)
            logits = teacher(batch)
        torch.testing.assert_close(adapter(batch), logits, **CLOSE)
        chosen = logits.argmax(1)
        present = sorted(set(chosen.tolist()))
        distances = [((means[c] - means0[c]) ** 2 / (vars0[c] + 1e-6)).mean() for c in present]
        gamma = 1 - math.exp(-float(sum(distances) / len(distances)))
        gammas.append(gamma)
        for c in present:
            means[c] = 0.95 * means[c] + 0.05 * feats[chosen == c].mean(0)
        for row in range(len(batch)):
            bank.add(Entry(len(images) + row, int(chosen[row]), float(entropy(logits[row]))))
        images = torch.cat([images, batch])
        kept = images[[entry.place for entry in bank.entries]]
        with torch.no_grad():
            target, anchor = gathering(teacher, True)(kept), gathering(start, True)(kept)
        plain, view = gathering(student, True)(kept), student(kept * 0.9)
        loss = cross(view, target).mean()
        if compare == "symmetric":
            loss = (cross(plain, target) + cross(target, plain) + cross(view, target) + cross(target, view)).mean() / 4
        cosines = [F.cosine_similarity(p[None], q[None])[0] for p, q in zip(parameters, first, strict=True)]
        loss = loss + cross(view, anchor).mean() - 10 * gamma * torch.stack(cosines).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate = 0.3 * (1 - gamma)
        with torch.no_grad():
            for old, new in zip(slow, parameters, strict=True):
                old.copy_((1 - rate) * old + rate * new)
    torch.testing.assert_close(adapter.trained["4.bias"].detach(), student[4].bias.detach(), **CLOSE)  # type: ignore[operator]
    assert adapter.updates == 8
    assert max(gammas) > 0.01


@pytest.mark.parametrize(
    ("preset", "classes", "share"), [("imagenet", 1000, 0.8997), ("imagenet_vit", 1000, 0.2330), ("cifar", 10, 0.6990)]
)
def test_asr_takes_the_constants_of_the_kind_of_model(preset: str, classes: int, share: float) -> None:
    """Of ResNet-50 and ViT-B/16 as the release has them; its departures say what they come to for other models."""
    options = method("asr").options(preset, "paper", {}).to_dict()
    assert (options["follow"], options["keep_slope"]) == ((0.99, 50) if preset == "imagenet_vit" else (0.15, 20))
    assert math.log(options["level_share"] * classes) / math.log(classes) == pytest.approx(share, abs=1e-4)
    assert options["lr"] == method("eta").options(preset, "paper", {}).to_dict()["lr"]
    assert "ViT-B/16" in method("asr").departures
