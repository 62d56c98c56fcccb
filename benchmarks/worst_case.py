"""The worst chains of an audit beside those of a longer search by hand, and on images that neither saw.

    python -m benchmarks.worst_case --fresh cifar10/test.npz --out runs/worst_case
    python -m benchmarks.worst_case --fresh cifar10/test.npz --out runs/worst_case --model cifar10-gaussian-jsd

For every seed, the section `worst_case` of an audit of the demo's images, and `search` of each of its spaces with twice
the evaluations of all its runs, on all images that had a part in the audit's choice. Chains of both are measured on the
audit's other images, and on CIFAR-10 test images that the demo does not have. What was measured is kept, and the same
call resumes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from shiftproof import audit, load_data
from shiftproof.audits.audit_record import AuditRecord
from shiftproof.audits.audit_settings import AuditSettings, BudgetName
from shiftproof.audits.sections.worst_case import NAMES
from shiftproof.audits.sections.worst_case_search import SearchedSpace
from shiftproof.data import ImageSet, as_images
from shiftproof.data.images.arrays import from_arrays
from shiftproof.models import logits
from shiftproof.runs import Row, Store
from shiftproof.searchers import Search, search
from shiftproof.shifts import parse
from shiftproof.subjects import Subject

DATA, TIMES, FRESH, BATCH = "demo", 2, 2000, 100


@dataclass(frozen=True)
class Chain:
    """A chain: its accuracy on the images that it was chosen by, on the audit's others, and on fresh ones."""

    label: str
    chosen: float
    held_out: float
    fresh: float


@dataclass(frozen=True)
class Compared:
    """The worst chains of a kind: the audit's, as it was told, and that of a search by hand."""

    kind: str
    evaluations: int
    audit: Chain
    hand: Chain


def accuracy(subject: Subject, data: ImageSet, label: str) -> float:
    """Return the accuracy on images under a chain."""
    shift, right = parse(label), 0
    for batch in data.batches(BATCH):
        assert batch.labels is not None
        right += int((logits(subject.fast_model, shift(batch.inputs, batch.keys)).argmax(1) == batch.labels).sum())
    return right / len(data)


def audited(
    model: str, seed: int, budget: BudgetName, out: Path
) -> tuple[AuditSettings, list[tuple[SearchedSpace, Row]]]:
    """Return the settings of an audit, and what it found in every space."""
    audit(model, DATA, sections=["worst_case"], budget=budget, seed=seed, device="cpu", out=out)
    with Store(out) as store:
        record = AuditRecord.of(store)
    found = [
        (result.task, result.row)
        for result in record.everything()
        if isinstance(result.task, SearchedSpace) and result.row is not None
    ]
    return record.scope.settings, found


def searched(
    model: str, seed: int, budget: BudgetName, out: Path
) -> tuple[AuditSettings, list[tuple[SearchedSpace, Row, Search]]]:
    """Return the settings of an audit, and of every space what it found and what a search by hand does."""
    settings, found = audited(model, seed, budget, out / f"audit-{seed}")
    images, rows = as_images(_subject(model, settings).data), []
    for task, row in found:
        by_hand = search(
            model,
            images.subset(range(task.parts.known)),
            space=task.space,
            length=task.length,
            similarity=task.similarity,
            budget=TIMES * task.budget * task.runs,
            seed=seed,
            device="cpu",
            out=out / f"hand-{seed}-{task.space.name}",
        )
        rows.append((task, row, by_hand))
        print(f"seed {seed}, {task.space.name}: {row['label']} against {_chosen(task, by_hand)[0]}", flush=True)
    return settings, rows


def compared(
    model: str, settings: AuditSettings, rows: list[tuple[SearchedSpace, Row, Search]], fresh: ImageSet
) -> list[Compared]:
    """Measure the chains of both on images that neither saw."""
    subject, made = _subject(model, settings), []
    for task, row, by_hand in rows:
        others = as_images(subject.data).subset(range(task.parts.known, task.parts.all))
        told, (label, fitness) = str(row["label"]), _chosen(task, by_hand)
        measured = cast(int, row["right"]) / cast(int, row["images"])
        made.append(
            Compared(
                NAMES[task.space.name],
                task.budget * task.runs,
                Chain(told, cast(float, row["before"]), measured, accuracy(subject, fresh, told)),
                Chain(label, fitness, accuracy(subject, others, label), accuracy(subject, fresh, label)),
            )
        )
    return made


def _subject(model: str, settings: AuditSettings) -> Subject:
    return Subject.of(model, DATA, images=settings.images, seed=settings.seed, device="cpu")


def _chosen(task: SearchedSpace, found: Search) -> tuple[str, float]:
    """Return the worst chain of a search that keeps the content, and its accuracy where it was searched."""
    worst = found.best if task.similarity is None else found.best_admissible
    assert worst is not None
    assert worst.score.fitness is not None
    return found.trace.space.label(worst.genes), worst.score.fitness


def fresh_images(path: Path) -> ImageSet:
    """Return CIFAR-10 images that the demo does not have."""
    with np.load(path) as held:
        images, labels = held["images"], held["labels"].astype(np.int64).ravel()
    used = set()
    for name in ("demo", "demo-source"):
        for batch in as_images(load_data(name)).batches(500):
            pixels = (batch.inputs * 255).round().byte().permute(0, 2, 3, 1).contiguous().numpy()
            used |= {image.tobytes() for image in pixels}
    free = [place for place, image in enumerate(images) if image.tobytes() not in used][:FRESH]
    return from_arrays(images[free], labels[free])


def told(rows: list[Compared], seed: int) -> list[str]:
    """Return the lines of a table for a seed: every kind, and the worst of all."""
    worst = Compared(
        "**worst of all**",
        sum(row.evaluations for row in rows),
        min((row.audit for row in rows), key=lambda chain: chain.chosen),
        min((row.hand for row in rows), key=lambda chain: chain.chosen),
    )
    lines = []
    for row in (*rows, worst):
        sides = (
            f"{chain.label} | {100 * chain.chosen:.1f} | {100 * chain.held_out:.1f} | {100 * chain.fresh:.1f}"
            for chain in (row.audit, row.hand)
        )
        difference = 100 * (row.audit.held_out - row.hand.held_out)
        lines.append(f"| {seed} | {row.kind} | {row.evaluations} | {' | '.join(sides)} | {difference:+.1f} |")
    return lines


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--fresh", type=Path, required=True, help="CIFAR-10's test images, .npz of images and labels")
    parser.add_argument("--budget", default="quick")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/worst_case"))
    given = parser.parse_args()
    out = given.out / given.model.replace("/", "_")
    found = [searched(given.model, seed, given.budget, out) for seed in range(given.seeds)]
    fresh = fresh_images(given.fresh)
    rows = [told(compared(given.model, *each, fresh), seed) for seed, each in enumerate(found)]
    chain = "chain | chosen by | held out | fresh"
    print(f"| seed | kind | evaluations | audit: {chain} | hand: {chain} | difference |")
    print("|---:|---|---:|" + "---|---:|---:|---:|" * 2 + "---:|")
    print("\n".join(line for some in rows for line in some))


if __name__ == "__main__":
    main()
