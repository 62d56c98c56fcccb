"""What the failures of a model have to say, in a report and at a terminal."""

from __future__ import annotations

import time

from shiftproof.audits.sections.failures import slice_table
from shiftproof.audits.sections.measuring import picture
from shiftproof.audits.sections.wording import percent
from shiftproof.data import ImageSet
from shiftproof.diagnoses.finding_failures import Failures
from shiftproof.reports.view import Gallery, Masthead, Picture, Sentence, Tile, View
from shiftproof.version import __version__

SHOWN_SLICES, SHOWN_FAILURES, TOLD = 30, 8, 3
RULE = "groups on which accuracy is lower than on the rest beyond chance, of all that were tested"


def masthead(found: Failures, command: str) -> Masthead:
    """Return what was looked at."""
    return Masthead(
        found.model,
        found.data,
        {"images": f"{found.slices.images:,}", "written": time.strftime("%Y-%m-%d %H:%M")},
        command,
        {
            "version": f"shiftproof {__version__}",
            "slices": "Fisher's exact test against what a slice is part of; false discovery rate 5%",
            "files": ", ".join(path.name for path in found.files),
            **({"data": " ".join(found.notes)} if found.notes else {}),
        },
        kind="Failure analysis",
    )


def views(found: Failures, data: ImageSet) -> tuple[View, ...]:
    """Return the views of slices, of single failures and of the data's faults."""
    return _slices(found), _examples(found, data), _quality(found)


def verdict(found: Failures) -> list[Sentence]:
    """Return the worst slices in sentences, or that there is none."""
    if not found.slices.slices:
        return [Sentence(f"No weak slice was found. {found.slices.power_note}")]
    return [Sentence(f"{each}.", "bad") for each in found.slices.slices[:TOLD]]


def _slices(found: Failures) -> View:
    slices = found.slices.slices
    return View(
        "slices",
        "Weak slices",
        "On which groups of images is the model worse than on the rest?",
        verdict=tuple(verdict(found)),
        tiles=(
            *(Tile(f"accuracy, {shift}", percent(value)) for shift, value in found.slices.accuracies.items()),
            Tile("weak slices", str(len(slices)), level="bad" if slices else "plain", rule=RULE),
        ),
        blocks=(slice_table(slices[:SHOWN_SLICES]),) if slices else (),
        notes=(
            found.slices.power_note,
            "A slice is compared with the rest of what it is part of: a pair of attributes with each of them, so that "
            "a hard class is told once. Intervals hold on average over the named slices.",
        ),
        numbers={"weak_slices": float(len(slices))},
    )


def _examples(found: Failures, data: ImageSet) -> View:
    wrong = found.failures(most=SHOWN_FAILURES)
    blocks = []
    for shift, severity in dict.fromkeys(zip(wrong["shift"], wrong["severity"], strict=True)):
        rows = [
            row
            for row in range(len(wrong["file"]))
            if (wrong["shift"][row], wrong["severity"][row]) == (shift, severity)
        ]
        under = str(shift) if not severity else f"{shift}@{float(str(severity)):g}"
        chosen = data.subset([int(str(wrong["index"][row])) for row in rows])
        (batch,) = chosen.batches(len(rows))
        pictures = tuple(
            Picture(picture(image), _caption(wrong, row), right=False)
            for image, row in zip(batch.inputs, rows, strict=True)
        )
        blocks.append(
            Gallery(f"Most confident mistakes, {under}", pictures, "The files as they are, before the shift.")
        )
    count = sum(right is False for right in found.table["right"])
    return View(
        "mistakes",
        "Most confident mistakes",
        "Which single images fail?",
        verdict=(
            Sentence(f"{count:,} of {len(found.table['right']):,} answers are wrong; {found.files[0].name} has all."),
        ),
        blocks=tuple(blocks),
        numbers={"failures": float(count)},
    )


def _caption(table: dict[str, list[str | float | int | bool | None]], row: int) -> str:
    sure = table["confidence"][row]
    told = f", confidence {float(str(sure)):.2f}" if sure is not None else ""
    return f"{table['file'][row]}: {table['label'][row]}, predicted {table['prediction'][row]}{told}"


def _quality(found: Failures) -> View:
    files = found.table["file"][: found.slices.images]
    told = found.quality.sentences([str(file) for file in files], found.classes)
    return View(
        "data",
        "Data quality",
        "Is the data to blame?",
        verdict=tuple(Sentence(each, "watch") for each in told) or (Sentence("No fault of the data was found."),),
        notes=("Nothing was removed. Copies are images with the same pixels.",),
    )
