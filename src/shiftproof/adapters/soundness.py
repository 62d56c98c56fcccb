"""Whether logits and gradients were finite, asked of a device as late as can be.

An answer from a device waits for all the work before it, and a device that is waited for then waits itself for the next
work. So answers travel to the host on their own and are read once they have arrived: those about logits while the
update is still under way, those about updates steps later, or when somebody wants to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MAX_PENDING_FLAGS = 8
"""So many updates may be under way before the first of them is asked about."""


class NotFiniteError(ArithmeticError):
    """A model put out NaN or infinity: the batch cannot be learnt from. Adapters catch it; users never see it."""


class AsyncFlag:
    """A flag, [] bool, on its way from its device to the host."""

    def __init__(self, flag: Tensor) -> None:
        self.flag = flag
        self._copy = flag.to("cpu", non_blocking=True)
        self._sent = torch.cuda.current_stream(flag.device).record_event() if flag.is_cuda else None

    def __bool__(self) -> bool:
        if self._sent is not None:
            self._sent.synchronize()
        return bool(self._copy)


class FiniteGuard:
    """What a stream's batches were like: `updates` made, `skipped` batches, and this batch's logits so far."""

    def __init__(self) -> None:
        self._logits: list[AsyncFlag] = []
        self._late: deque[AsyncFlag] = deque()
        self._before = 0
        self.set_counts(0, 0)

    def begin(self) -> None:
        """Start with a batch."""
        self._logits = []
        while len(self._late) > MAX_PENDING_FLAGS:
            self._count(self._late.popleft())
        self._before = len(self._late)

    def note_logits(self, logits: Tensor) -> None:
        """Ask whether logits are finite; `check` hears the answer."""
        self._logits.append(AsyncFlag(logits.detach().isfinite().all()))

    def check(self) -> None:
        """Raise `NotFiniteError` if logits of this batch were not finite."""
        if not all(self._logits):
            raise NotFiniteError
        self._logits = []

    def usable(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return whether a step along gradients is sound, [] bool on their device: they and the logits are finite."""
        finite = all_finite(gradients)
        for answer in self._logits:
            finite = finite & answer.flag.to(finite.device)
        return finite

    def note_update(self, made: Tensor) -> None:
        """Count an update, or a batch skipped, by a flag on the device."""
        self._late.append(AsyncFlag(made))

    def skip(self) -> None:
        """Count the batch as skipped, whatever became of its updates."""
        while len(self._late) > self._before:
            self._late.pop()
        self._skipped += 1

    @property
    def updates(self) -> int:
        """How many updates were made."""
        return self.counts()[0]

    @property
    def skipped(self) -> int:
        """How many batches could not be learnt from."""
        return self.counts()[1]

    def counts(self) -> tuple[int, int]:
        """Return updates and skipped batches, all of them: this waits for the device."""
        while self._late:
            self._count(self._late.popleft())
        self._before = 0
        return self._updates, self._skipped

    def set_counts(self, updates: int, skipped: int) -> None:
        """Go on from other counts."""
        self._late.clear()
        self._before, self._updates, self._skipped = 0, updates, skipped

    def _count(self, made: AsyncFlag) -> None:
        if made:
            self._updates += 1
        else:
            self._skipped += 1


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Return whether all values of all tensors are finite, [] bool on the device of the first."""
    if len({tensor.device for tensor in tensors}) != 1:
        return nn.utils.get_total_norm(tensors).isfinite()
    # What gradient scaling uses: one pass over all tensors, which a factor of 1 leaves as they are.
    found = torch.zeros((), device=tensors[0].device)
    torch._amp_foreach_non_finite_check_and_unscale_(list(tensors), found, torch.ones_like(found))
    return found == 0
