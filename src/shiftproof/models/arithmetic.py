"""How much arithmetic a model does for one input: counted, not timed, so that it is the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from shiftproof.errors import ModelError
from shiftproof.models.outputs import logits

PER_PIXEL = 160_000.0
"""Operations per pixel of a ResNet-50, which stands for models whose arithmetic cannot be seen."""


def operations(model: Callable[[Any], Any], inputs: Tensor | list[Any]) -> float:
    """Return the floating-point operations of a forward pass per input, multiplications and additions both counted.

    Matrix products, convolutions and attention count. A model that computes outside PyTorch, such as an ONNX session,
    shows none; for images it is taken to do as much per pixel as a ResNet-50, and for texts nothing is known: 0.
    """
    counter = _Counter()
    try:
        with counter:
            logits(model, inputs)
    except ModelError:  # the model's own failure, or one to be counted; whoever uses the model next will tell
        pass
    counted = counter.counted / len(inputs)
    if counted == 0 and isinstance(inputs, Tensor):
        return PER_PIXEL * inputs.shape[-2] * inputs.shape[-1]
    return counted


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what PyTorch's `FlopCounterMode` does, by its formulas, without a compiler that takes seconds to load."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counted = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep PyTorch from wrapping the mode in what loads the compiler; nothing is compiled while it counts."""
        return False

    def __torch_dispatch__(
        self,
        func: OpOverload[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        kwargs = kwargs or {}
        formula = flop_registry.get(func._overloadpacket)
        if formula is None:
            with self:  # what an operation is made of may count
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        out = func(*args, **kwargs)
        if formula is not None:
            self.counted += float(formula(*args, **kwargs, out_val=out))
        return out
