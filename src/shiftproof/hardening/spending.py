"""What hardening spends its time on: how much of it is training or model passes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from shiftproof.runs import Json, Store

NOTE = "seconds"
TRAINING = "training"


@dataclass
class Stage:
    """A stage: the seconds it took, and those of them in training or model passes; all of them by default."""

    seconds: float = 0.0
    working: float | None = None


@dataclass(frozen=True)
class Spending:
    """Stages by name, each as it went when it was first finished: a resumed run does not spend that again."""

    stages: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> Spending:
        """Return what a run directory notes."""
        noted: Mapping[str, list[float]] = json.loads(store.about().get(NOTE, "{}"))
        return cls({name: (values[0], values[1]) for name, values in noted.items()})

    @contextmanager
    def timed(self, store: Store, name: str) -> Iterator[Stage]:
        """Time a stage, and note it where it was never finished before."""
        stage, begun = Stage(), time.perf_counter()
        yield stage
        stage.seconds = time.perf_counter() - begun
        if name not in self.stages:
            working = stage.seconds if stage.working is None else min(stage.working, stage.seconds)
            self.stages[name] = (round(stage.seconds, 2), round(working, 2))
            store.note({NOTE: json.dumps(self.stages)})

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(seconds for seconds, _ in self.stages.values())

    @property
    def working(self) -> float | None:
        """The share in training or model passes; None where nothing was timed."""
        return sum(working for _, working in self.stages.values()) / self.seconds if self.seconds else None

    def __str__(self) -> str:
        share = self.working
        return f"{self.seconds:.0f} s" + ("" if share is None else f", {share:.0%} in training or model passes")

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON-compatible values."""
        share = self.working
        parts: dict[str, Json] = {name: seconds for name, (seconds, _) in self.stages.items()}
        return {
            "all": round(self.seconds, 1),
            "share in training or model passes": None if share is None else round(share, 4),
            "stages": parts,
        }
