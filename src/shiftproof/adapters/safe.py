"""Safe by test: configurations run side by side, the source serves, and others only where labels certify a gain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import torch
from annotated_types import Gt, Le, Lt
from torch import Tensor, nn

from shiftproof.adapters.adapter import Adapter
from shiftproof.adapters.catalogue import adapt, method
from shiftproof.adapters.method import PRESETS, Method, Parts
from shiftproof.adapters.method_options import MethodOptions
from shiftproof.adapters.norms import SourceStatistics
from shiftproof.adapters.outputs_only import Outputs
from shiftproof.adapters.paired_audit import PairedAudit, Switch
from shiftproof.errors import ModelError
from shiftproof.options import Count, Positive

LEARNING, OF_OUTPUTS = ("bn", "rdumb"), ("prior", "lame_outputs")
"""Methods to choose from by default: for networks, and for black boxes, which have outputs alone."""


class SafeOptions(MethodOptions):
    """Options of the safe choice."""

    candidates: Annotated[
        tuple[str, ...] | None,
        "Methods to choose from, beside the source; by default bn and rdumb, for a black box prior and lame_outputs.",
    ] = None
    candidate_options: Annotated[
        Mapping[str, Mapping[str, object]] | None, "Options of single candidates, by name."
    ] = None
    label_share: Annotated[float, Gt(0), Le(1), "The share of images whose labels are asked for, at most."] = 0.02
    alpha: Annotated[float, Gt(0), Lt(1), "The probability of a switch that is no gain, after each switch."] = 0.05
    horizon: Annotated[Count, "The number of labels that this probability is for."] = 2000
    lr_scale: Annotated[Positive, "Learning rates of the candidates times this."] = 1.0
    preset: Annotated[str | None, "The preset of the candidates."] = None

    def check(self) -> None:
        """Candidates are several things, one of each."""
        named = (*LEARNING, *OF_OUTPUTS) if self.candidates is None else self.candidates
        self.require(
            len(set(named)) == len(named) > 0 and "source" not in named, "candidates, each once, beside the source"
        )
        self.require(set(self.candidate_options or ()) <= set(named), "options of candidates alone")

    def named(self, model: nn.Module) -> tuple[str, ...]:
        """Return the candidates for a model."""
        usual = OF_OUTPUTS if isinstance(model, Outputs) else LEARNING
        return usual if self.candidates is None else self.candidates


class Ledger(nn.Module):
    """An audit as part of a module, so that it is saved with it."""

    def __init__(self, audit: PairedAudit) -> None:
        super().__init__()
        self.audit = audit

    def get_extra_state(self) -> str:
        """Return the audit as text."""
        return self.audit.to_json()

    def set_extra_state(self, state: str) -> None:
        """Take over an audit."""
        self.audit.set_json(state)


class SafeAdapter(Adapter):
    """Serves the source model until labels certify that a candidate makes fewer errors; goes back as they say so.

    All configurations see every batch, so a batch costs what they cost together. `wanted` are the positions in the
    stream, from 0, of images whose labels would help: `tell({position: label})` takes them, at any time and in any
    order. Without labels it is the source model. `serving` names the configuration that answers, `switches` how it
    came to that, and `gain()` bounds what was won in accuracy over the source (`adapters.PairedAudit` says under what).

    A candidate that does not apply to the model is left out; `left_out` says why.

    Args:
        model: The module to adapt; it is copied.
        chosen: The method `safe`.
        options: Its options: candidates, share of labels, alpha.
    """

    options: SafeOptions
    names: tuple[str, ...]

    def __init__(self, model: nn.Module, chosen: Method, options: SafeOptions) -> None:
        super().__init__(model, chosen, options)
        self.left_out: dict[str, str] = {}
        self.candidates = nn.ModuleDict()
        for name in options.named(model):
            try:
                self.candidates[name] = self._candidate(model, name)
            except ModelError as error:
                self.left_out[name] = error.headline
        if not self.candidates:
            raise ModelError(
                f"No candidate applies to this model: {', '.join(self.left_out)}.",
                expected="a method among the candidates that the model can have",
                got="; ".join(self.left_out.values()),
                fix="choose methods that need less, for a black box candidates=prior,lame_outputs; `shiftproof list "
                "adapters` says what each needs",
            )
        self.names = ("source", *self.candidates)
        self.ledger = self._new_ledger()

    def _new_ledger(self) -> Ledger:
        o = self.options
        return Ledger(PairedAudit(len(self.names), o.label_share, o.alpha, o.horizon, o.seed))

    @property
    def audit(self) -> PairedAudit:
        """What was asked, answered and decided."""
        return self.ledger.audit

    def _candidate(self, model: nn.Module, name: str) -> Adapter:
        o, found = self.options, method(name)
        given = dict((o.candidate_options or {}).get(name, {}))
        common = {"amp": o.amp, "graph": o.graph, "seed": o.seed}
        if o.lr_scale != 1.0:
            rate = found.options(o.preset, "paper", given).to_dict().get("lr")
            given |= {} if rate is None else {"lr": rate * o.lr_scale}
        return adapt(model, found, preset=o.preset, variant="paper", **(common | given))

    def answer(self, images: Tensor) -> Tensor:
        """Return the logits of the configuration that serves, and note where the others answer otherwise."""
        answers: list[Tensor] = [self.run(images), *(candidate(images) for candidate in self.candidates.values())]
        self.finite_guard.check()
        classes = torch.stack([logits.argmax(1) for logits in answers]).cpu()
        self.audit.ask(classes.numpy())
        return answers[self.audit.serving]

    def peek(self, images: Tensor) -> Tensor:
        """Return the logits of the configuration that serves; nothing changes."""
        serving = self.serving
        if serving == "source":
            return self.run(images)
        candidate = self.candidates[serving]
        if not isinstance(candidate, Adapter):
            raise TypeError(f"{serving} is no adapter")
        return candidate.predict(images)

    @property
    def serving(self) -> str:
        """The name of the configuration that answers the next batch."""
        return self.names[self.audit.serving]

    @property
    def wanted(self) -> tuple[int, ...]:
        """Positions of the images whose labels were asked for and have not come."""
        return self.audit.wanted

    @property
    def switches(self) -> tuple[Switch, ...]:
        """Every change of the configuration that serves; `names` has their names."""
        return tuple(self.audit.switches)

    def tell(self, labels: Mapping[int, int]) -> None:
        """Take labels of wanted images, position -> class."""
        self.audit.tell(labels)
        self.resets = sum(switch.new == 0 for switch in self.audit.switches)

    def grade(self, labels: Tensor) -> None:
        """Take from the labels of the last batch, [N], those that were asked for."""
        first = self.audit.images - len(labels)
        self.tell({place: int(labels[place - first]) for place in self.wanted if place >= first})

    def gain(self) -> tuple[float, float]:
        """Return bounds on what was won in accuracy over the source so far; they hold at every time."""
        return self.audit.gain()

    @property
    def updates(self) -> int:
        """How many updates the candidates made."""
        return sum(candidate.updates for candidate in self.candidates.values() if isinstance(candidate, Adapter))

    def announce(self, shift: str) -> None:
        """Say it to all candidates."""
        super().announce(shift)
        for candidate in self.candidates.values():
            if isinstance(candidate, Adapter):
                candidate.announce(shift)

    def reset(self, *, optimizer: bool = True) -> None:
        """Start as for a new stream: with fresh candidates, the source serving, and positions counted from 0."""
        super().reset(optimizer=optimizer)
        for candidate in self.candidates.values():
            if isinstance(candidate, Adapter):
                candidate.reset(optimizer=optimizer)
        self.ledger = self._new_ledger()


def _safe(o: SafeOptions) -> Parts:
    return Parts(norm=SourceStatistics(), learn=SafeAdapter.answer, predict=SafeAdapter.peek)  # type: ignore[arg-type]


SAFE = Method(
    name="safe",
    paper="none: a choice of our own by the betting tests of Waudby-Smith & Ramdas 2024",
    parts=_safe,
    defaults=SafeOptions(),
    presets={name: {"preset": name} for name in PRESETS},
    needs_gradients=False,
    needs_norm_layers=False,
    own_memory=True,
    passes=(3, 1),
    shell=SafeAdapter,
    departures="asks for labels, of one image in 50 by default, and serves the source model until some have come",
)
