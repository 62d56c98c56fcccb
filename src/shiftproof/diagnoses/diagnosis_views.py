"""What a diagnosis has to say, in a report and at a terminal: never more than "behaves like"."""

from __future__ import annotations

import time

from shiftproof.audits.sections.measuring import picture
from shiftproof.audits.sections.wording import listed, percent
from shiftproof.data import ImageSet
from shiftproof.diagnoses.diagnosing import Diagnosis
from shiftproof.diagnoses.explaining import KnownShift
from shiftproof.diagnoses.knowledge import chain
from shiftproof.reports.view import Action, Column, Gallery, Masthead, Picture, Sentence, Table, Tile, View
from shiftproof.version import __version__

SHOWN, CLASSES = 6, 5
CAUSE = (
    "Similar behaviour does not prove the cause: kinds that are not among the known ones may be explained by "
    "others. The runners-up are what else could be it."
)


def masthead(found: Diagnosis, command: str) -> Masthead:
    """Return what was looked at."""
    return Masthead(
        found.model,
        f"{found.data} against {found.source}",
        {
            "new images": f"{found.images:,}",
            "labelled source": f"{found.source_images:,}",
            "written": time.strftime("%Y-%m-%d %H:%M"),
        },
        command,
        {"version": f"shiftproof {__version__}", **({"data": " ".join(found.notes)} if found.notes else {})},
        kind="Diagnosis of new images",
    )


def sentences(found: Diagnosis) -> list[Sentence]:
    """Return the diagnosis in sentences."""
    like = found.likeness
    told = [_first(found)]
    if like.shifts:
        nothing = "nothing measurable: " * (found.explained.low <= 0)
        told.append(Sentence(f"On the labelled source that costs {nothing}{found.explained}."))
    if found.lost is not None:
        told.append(Sentence(_balance(found)))
    if like.mix_changed:
        moved = f"about {percent(like.mix_distance)} of the images are of other classes than in the source"
        told.append(Sentence(f"The class mix changed: {moved} ({_classes(found)}).", "watch"))
    if like.runners_up and not like.unknown:
        told.append(Sentence(f"It could also be {listed([str(each) for each in like.runners_up])}."))
    return told


def views(found: Diagnosis, source: ImageSet, new: ImageSet, *, seed: int) -> tuple[View, ...]:
    """Return the diagnosis, and the faults of the new data."""
    like = found.likeness
    faults = found.quality.sentences(found.files, found.classes)
    return (
        View(
            "diagnosis",
            "Diagnosis",
            "Which known shifts make the source look like the new images?",
            verdict=tuple(sentences(found)),
            tiles=tuple(_tiles(found)),
            blocks=(*([_table(found)] if like.shifts else []), *_galleries(found, source, new, seed)),
            notes=(
                CAUSE,
                "Severities are those of the common corruptions, 1 to 5; two shifts are applied in the order told. "
                f"Where more than {percent(like.unknown_share)} of the change is left, nothing known is said to "
                "explain it: half, or what the other kinds leave of one that is left out nine times in ten at most. "
                f"Nine times in ten they leave {_left_out(found)} of one; known shifts fit up to a misfit of "
                f"{like.within_error:.1f} (here {like.misfit:.1f}, in squared sampling errors).",
            ),
            numbers={"explained": found.explained.value, "unexplained_share": like.unexplained},
            actions=_actions(found),
        ),
        View(
            "data",
            "Data quality",
            "Is the data to blame?",
            verdict=tuple(Sentence(each, "watch") for each in faults) or (Sentence("No fault of the data was found."),),
        ),
    )


def _first(found: Diagnosis) -> Sentence:
    like = found.likeness
    left = f"{percent(like.unexplained)} of the change is left unexplained"
    if like.nothing:
        return Sentence("To the model the new images look like the source's: no shift can be told from chance.", "good")
    if like.unknown:
        return Sentence(
            "The new images look different to the model, and no known shift explains it: of the nearest, "
            f"{_named(found)}, {left}.",
            "bad",
        )
    if not like.exact:
        return Sentence(
            f"The new images behave most like {_named(found)}, but not as these do: {left}, which is more than error. "
            f"It may be of an unknown kind: of one, known kinds leave {_left_out(found)} nine times in ten.",
            "watch",
        )
    return Sentence(f"The new images behave like {_named(found)}; {left}.", "watch")


def _left_out(found: Diagnosis) -> str:
    low, high = found.likeness.left_out
    return f"{percent(low)} to {percent(high)}"


def _named(found: Diagnosis) -> str:
    return " and then ".join(str(part) for part in found.likeness.shifts)


def _balance(found: Diagnosis) -> str:
    """Say how much of what was lost is explained; both with their intervals, never their difference alone."""
    assert found.lost is not None
    if found.lost.low <= 0:
        explained = f"; the shifts explain one of {found.explained}" if found.likeness.shifts else ""
        return f"No loss of accuracy against the source is shown: it is {found.lost}{explained}."
    if not found.likeness.shifts:
        return f"Against the source the new images lose {found.lost}."
    rest = found.lost.value - found.explained.value
    return (
        f"Against the source the new images lose {found.lost}, of which the shifts explain {found.explained}; "
        f"{f'about {100 * rest:.1f} are unexplained' if rest > 0 else 'none is left unexplained'}."
    )


def _classes(found: Diagnosis) -> str:
    like = found.likeness
    changes = [(new - old, place) for place, (new, old) in enumerate(zip(like.mix, like.source_mix, strict=True))]
    largest = sorted(changes, key=lambda each: -abs(each[0]))[:CLASSES]
    told = (
        f"{found.classes[place]} from {percent(like.source_mix[place])} to {percent(like.mix[place])}"
        for _, place in largest
    )
    return ", ".join(told)


def _tiles(found: Diagnosis) -> list[Tile]:
    like = found.likeness
    chance = f"up to {like.threshold:.1f} is chance"
    tiles = [
        Tile("change", f"{like.size:.1f}", chance, rule="squared, in sampling errors: about 1 where nothing changed"),
        Tile("accuracy on the source", percent(found.source_accuracy)),
    ]
    if like.shifts:
        tiles.append(Tile("explained", f"{100 * found.explained.value:.1f} points"))
    if found.lost is not None:
        tiles.append(Tile("lost", f"{100 * found.lost.value:.1f} points"))
    return tiles


def _table(found: Diagnosis) -> Table:
    like = found.likeness
    rows: list[tuple[str | float | None, ...]] = [
        ("behaves like", str(part).partition(" (")[0], f"{part.low:.1f} to {part.high:.1f}", 1.0, None)
        for part in like.shifts
    ]
    rows += [("runner-up", str(each), "", round(each.times_left, 2), each.chosen) for each in like.runners_up]
    return Table(
        "What it behaves like, and what else it could be",
        (
            Column(""),
            Column("shift"),
            Column("95% interval"),
            Column("times as much left", "number"),
            Column("preferred by resamples", "percent"),
        ),
        tuple(rows),
    )


def _galleries(found: Diagnosis, source: ImageSet, new: ImageSet, seed: int) -> list[Gallery]:
    """Return new images beside source images, under the shifts and as they are."""
    count = min(SHOWN, len(source), len(new))
    (plain,), (others,) = (list(data.subset(range(count)).batches(count)) for data in (source, new))
    shown = [("New images", others.inputs), ("Source images as they are", plain.inputs)]
    if found.likeness.shifts:
        shift = chain([KnownShift(part.kind, part.severity) for part in found.likeness.shifts])
        shown.insert(1, (f"Source images under {found.shift}", shift(plain.inputs, plain.keys, seed=seed)))
    return [
        Gallery(title, tuple(Picture(picture(image), str(place)) for place, image in enumerate(images, start=1)))
        for title, images in shown
    ]


def _actions(found: Diagnosis) -> tuple[Action, ...]:
    """Return what may help: measuring adaptation under these shifts, training with them, looking at their failures."""
    if not found.likeness.shifts or found.likeness.unknown:
        return ()
    why = f"The new images behave like {_named(found)}."
    measured = f"--model {found.model} --data {found.source} --shifts '{found.shift}'"
    return (
        Action(
            "Measure which adaptation helps under these shifts",
            f"{why} Test-time adaptation is compared on the labelled source under the same shifts.",
            f"shiftproof compare-methods {measured} --methods bn,tent,rdumb",
            gain=max(0.0, found.explained.value),
            on="the labelled source under these shifts",
            bound=True,
        ),
        Action(
            "Train with these shifts",
            f"{why} Copies of the training data under them are augmentation.",
            f"shiftproof write-corrupted TRAINING_DATA COPIES --shifts '{found.shift}'",
        ),
        Action(
            "See which images fail under these shifts",
            f"{why} Weak slices are found on the labelled source.",
            f"shiftproof find-failures {measured}",
        ),
    )
