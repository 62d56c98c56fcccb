"""What a run costs: the time that was announced and that it took, by section, and the most memory it used."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from shiftproof.audits.sections.base import Measurement
from shiftproof.runs import Json, Result, Store

PLANNED, BARE, MEMORY, ENDED, PACE = "planned", "bare", "memory", "ended", "pace"
"""Notes in a store: seconds each section should take, seconds of a pass of its tasks in the model alone, bytes of
memory by who used them, when measuring ended, and how the model was asked."""

MINUTE = "%Y-%m-%d %H:%M"


@dataclass(frozen=True)
class Costs:
    """Seconds by section as planned and as measured, the most memory, in bytes, of each that used some, and the end.

    A run that was stopped has not ended: it stands as it is now.
    """

    planned: Mapping[str, float]
    measured: Mapping[str, float]
    memory: Mapping[str, int]
    ended: str
    pace: Mapping[str, Json] | None = None
    """How the model was asked, where that was tried out."""
    passes: Mapping[str, float] = field(default_factory=dict)
    """Inputs that went through the model, by section, as planned for the tasks that were measured."""
    bare: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a pass in the model alone, by section, where that was tried out."""

    @classmethod
    def of(cls, store: Store, results: Sequence[Result]) -> Costs:
        """Return what a run cost so far."""
        noted = store.about()
        seconds: dict[str, float] = defaultdict(float)
        passes: dict[str, float] = defaultdict(float)
        for result in results:
            if isinstance(result.task, Measurement):
                seconds[result.task.section] += result.seconds
                passes[result.task.section] += result.task.passes
        ended = noted.get(ENDED) or time.strftime(MINUTE)
        planned, memory, pace, bare = (json.loads(noted.get(name, "{}")) for name in (PLANNED, MEMORY, PACE, BARE))
        return cls(planned, dict(seconds), memory, ended, pace or None, dict(passes), bare)

    def efficiency(self, *sections: str) -> float | None:
        """Return which share of the time of sections their passes take in the model alone; None where none was tried.

        Of all sections that make passes where none is named.
        """
        known = [name for name in sections or self.bare if name in self.bare and self.measured.get(name)]
        spent = sum(self.measured[name] for name in known)
        return sum(self.bare[name] * self.passes[name] for name in known) / spent if spent else None

    @property
    def times(self) -> dict[str, tuple[float | None, float]]:
        """Seconds by section: as planned, None where nothing was announced, and as measured."""
        return {name: (self.planned.get(name), seconds) for name, seconds in self.measured.items()}

    def told_pace(self, inputs: str) -> str:
        """Say how the model was asked; nothing where that was not tried out."""
        if self.pace is None:
            return ""
        parts = [f"batches of {self.pace['batch_size']}"]
        parts += ["batch normalisation folded"] if self.pace["folded"] else []
        parts += ["channels last"] if self.pace["layout"] in ("channels_last", "fused") else []
        parts += ["rectifiers as parts of convolutions"] if self.pace["layout"] == "fused" else []
        return f"{', '.join(parts)}: {self.pace['per_second']:,} {inputs}/s in a trial"

    def to_row(self) -> dict[str, Json]:
        """Return the costs as JSON values."""
        sections: dict[str, Json] = {
            name: {
                "planned": None if planned is None else round(planned, 1),
                "measured": round(measured, 1),
                "passes": round(self.passes.get(name, 0.0)),
                **({} if (share := self.efficiency(name)) is None else {"efficiency": round(share, 2)}),
            }
            for name, (planned, measured) in self.times.items()
        }
        return {
            "seconds": round(sum(self.measured.values()), 3),
            "sections": sections,
            "peak_memory_bytes": self.memory,
            **({} if self.pace is None else {"pace": dict(self.pace)}),
        }


def note_end(store: Store, device: str) -> None:
    """Keep when measuring ended, and how much memory a run used at most, over all the times it was started."""
    before: dict[str, int] = json.loads(store.about().get(MEMORY, "{}"))
    used = peak_memory(device)
    most = {**before, **{kind: max(size, before.get(kind, 0)) for kind, size in used.items()}}
    store.note({MEMORY: json.dumps(most), ENDED: time.strftime(MINUTE)})


def peak_memory(device: str = "cpu") -> dict[str, int]:
    """Return the most memory used so far, in bytes: of this process, of its largest child, and of the GPU it used."""
    found: dict[str, int] = {}
    try:
        import resource
    except ImportError:  # Windows has none
        pass
    else:
        unit = 1 if sys.platform == "darwin" else 1024
        found["process"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        if children := resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss:
            found["worker"] = children * unit
    if device.startswith("cuda"):
        import torch

        found["gpu"] = torch.cuda.max_memory_allocated(device)
    return found


def free_memory() -> float:
    """Return how many bytes of memory could be used now, by this machine and its control group; unknown is no limit."""
    found = [math.inf]
    with suppress(OSError, KeyError):
        found.append(1024 * _table("/proc/meminfo")["MemAvailable:"])
    with suppress(OSError, KeyError, ValueError):  # "max" is no limit
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text("ascii")) for name in ("max", "current"))
        found.append(limit - used + _table("/sys/fs/cgroup/memory.stat")["inactive_file"])  # copies of files can go
    return max(0, min(found))


def _table(file: str) -> dict[str, int]:
    """Return the numbers of a file of names and numbers."""
    lines = (line.split() for line in Path(file).read_text("ascii").splitlines())
    return {words[0]: int(words[1]) for words in lines}


def duration(seconds: float) -> str:
    """Write a time in the unit a person would use.

    >>> duration(12.3), duration(250), duration(9000)
    ('12 s', '4 min', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
