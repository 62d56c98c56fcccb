"""What makes an audit's numbers mean less: told first, in every form of the report, and nothing is then called good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from shiftproof.audits.preparation import better_preparation
from shiftproof.audits.sections.chance import Standing
from shiftproof.audits.sections.clean import CleanSlice, GentlestSlice
from shiftproof.audits.sections.measuring import check_labels, rows
from shiftproof.audits.sections.mixups import Reordered, cycles, reordered
from shiftproof.audits.sections.wording import interval, percent
from shiftproof.data.base import NOUNS, Noun
from shiftproof.errors import DataError
from shiftproof.models.behaviour import Behaviour, try_out
from shiftproof.models.returned import gives_probabilities
from shiftproof.reports.view import Action, Level, Sentence, Tile, View
from shiftproof.runs import Json, Result
from shiftproof.slices.data_quality import distinct_inputs, in_several_classes
from shiftproof.subjects import Subject

SECTION = "caveats"
"""The name of the view that tells them."""
PROBE = 4
"""Inputs that are tried, among as many others."""
SQUASHED = 0.1
"""How near to 0 and to 1 scores come that were squashed into this range, by a network that has learnt something."""
COPIES_SHARE = 0.01
"""The share of images in several classes from which on they spoil what is measured."""
TOO_NARROW = 1.05
"""How many times as wide intervals would be without copies, from which on that is told."""
SHOWN_PAIRS = 4
"""Classes with the answers that they get, of those in another order."""

_UNLIKELY = "Labels and outputs probably do not match, or its"
MISMATCHES = {
    "images": f"{_UNLIKELY} weights, input size or normalisation are not its own.",
    "texts": f"{_UNLIKELY} weights or tokenizer are not its own.",
}
"""What a model at chance probably is, by what its inputs are called."""

Rated = TypeVar("Rated", Sentence, Tile)


@dataclass(frozen=True)
class Caveat:
    """One of them: its `kind` decides what it touches, `text` is told."""

    kind: str
    text: str
    level: Level = "bad"

    def to_row(self) -> dict[str, Json]:
        """Return it as JSON values, for the notes of a run."""
        return asdict(self)


def try_model(subject: Subject) -> tuple[Caveat, ...]:
    """Try the model on a few inputs before any long work, and say what is odd about it; refuse labels out of range."""
    count = max(1, min(PROBE, subject.batch_size // 2))
    batch = next(iter(subject.data.subset(range(min(2 * count, len(subject.data)))).batches(2 * count)))
    inputs, rest = batch.inputs[:count], batch.inputs[count:]
    if subject.data.kind == "images":
        inputs = inputs.to(subject.device)
        others, strangers = 1 - inputs, (1 - inputs).flip(3) * 0.5
    else:
        others, strangers = [*rest, *inputs][: len(inputs)], [inputs[0]] * len(inputs)
    found = try_out(subject.model, inputs, others, strangers)
    check_labels(subject.data.labels, found.scores.shape[1])
    return (
        *odd_behaviour(found, subject.data.noun),
        *_converted(subject),
        *_squashed(found),
        *_prepared(subject),
        *_in_several_classes(subject),
        *_copies(subject),
        *_sizes(subject),
    )


def _converted(subject: Subject) -> Iterator[Caveat]:
    """Yield that logits were made of probabilities where nobody had said so."""
    if gives_probabilities(subject.model) and not gives_probabilities(subject.loaded_model):
        text = (
            "The model returns probabilities, not logits. Their logarithms are used as logits, which give the same "
            "confidences. Declare this with load_model(..., probabilities=True)."
        )
        yield Caveat("probabilities", text, "plain")


def _squashed(found: Behaviour) -> Iterator[Caveat]:
    """Yield that scores look like a sigmoid's, or like rounded probabilities: all from 0 to 1, and near both ends.

    Rows do not sum to 1: logarithms would have been taken of those that do.
    """
    low, high = float(found.scores.min()), float(found.scores.max())
    if 0 <= low <= SQUASHED and 1 - SQUASHED <= high <= 1:
        text = (
            "All scores of the model are between 0 and 1, and do not sum to 1, as after a sigmoid or where "
            "probabilities were rounded. They were taken for logits, and logits so near each other make every "
            "confidence low: confidences, calibration and what is learnt or estimated from them mean little. Return "
            "what goes into the sigmoid, or declare rounded probabilities with load_model(..., probabilities=True)."
        )
        yield Caveat("sigmoid", text, "watch")


def _prepared(subject: Subject) -> Iterator[Caveat]:
    """Yield that the model is far more often right on images prepared otherwise, or with its lowest scores."""
    better = better_preparation(subject)
    if better is not None:
        way, plain, found, images = better
        text = (
            f"Given {way.said}, the model is right on {found} of {images}, and on {plain} of them as they are: "
            f"{way.advice}"
        )
        yield Caveat("distances" if way.lowest else "preparation", text)


def _sizes(subject: Subject) -> Iterator[Caveat]:
    """Yield that the clean images of a suite have another size than the suite's."""
    from shiftproof.audits.suite_subjects import SuiteSubject

    if isinstance(subject, SuiteSubject) and subject.sizes[0] != subject.sizes[1]:
        clean, suite = (f"{width} x {height}" for height, width in subject.sizes)
        text = (
            f"The clean images are {clean} pixels, and the suite's {suite}: what is called a loss under corruption is "
            "also one by the change of size. Read both at the size that the model was made for, by --size (size=)."
        )
        yield Caveat("sizes", text)


def _in_several_classes(subject: Subject) -> Iterator[Caveat]:
    """Yield that the same images are in several classes: the files of all data, the pixels of the chosen images."""
    everything, chosen = subject.labelled_data, subject.data
    counts = [(in_several_classes(everything.draw_keys, everything.labels), len(everything))]
    if chosen.keys_known:
        counts.append((in_several_classes(chosen.keys, chosen.labels), len(chosen)))
    repeated, of = max(counts, key=lambda count: count[0] / count[1])
    if repeated:
        text = (
            f"{repeated:,} of {of:,} {chosen.noun.many} occur in more than one class, so that one answer is wrong "
            "in some of them: remove the copies, or give each image one label."
        )
        yield Caveat("duplicates", text, "watch" if repeated >= COPIES_SHARE * of else "plain")


def _copies(subject: Subject) -> Iterator[Caveat]:
    """Yield that the chosen inputs hold copies of each other, so that intervals are narrower than the evidence."""
    contents, noun = subject.data.contents, subject.data.noun
    count, alike = len(contents), distinct_inputs(contents)
    wider = (count / alike) ** 0.5
    if wider >= TOO_NARROW:
        text = (
            f"{count - len(set(contents.tolist())):,} of {count:,} {noun.many} are copies of others, and intervals "
            f"take each for evidence of its own: the set says as much as {alike:,.0f} {noun.many}, and intervals "
            f"should be {wider:.2g} times as wide. Remove the copies."
        )
        yield Caveat("copies", text, "watch")


def odd_behaviour(found: Behaviour, noun: Noun) -> list[Caveat]:
    """Return what is odd about how a model behaved when it was tried."""
    said = []
    if found.training:
        text = (
            f"The model puts layers into training mode when it is called ({found.training} of them): dropout is "
            "random, and batch normalisation uses the statistics of the batch."
        )
        said.append(Caveat("training", text))
    if found.changed:
        said.append(
            Caveat(
                "weights",
                "The model changes its weights or statistics when it is called: figures depend on the order of inputs.",
            )
        )
    if found.random:
        text = (
            f"The model is random: scores of the same {noun.many} differ by up to {found.repeated:.3g} from call to "
            "call, so that figures differ from run to run."
        )
        said.append(Caveat("random", text))
    if found.of_batch and found.company > 3 * found.repeated:  # more than what weights that change explain
        text = (
            f"An input's scores depend on the other {noun.many} of its batch, by up to {found.company:.3g}: figures "
            "depend on the batch size and on the order of inputs."
        )
        said.append(Caveat("batch", text))
    return said


def caveats(
    noted: Sequence[Mapping[str, Any]], clean: Sequence[Result], noun: Noun = NOUNS["images"]
) -> tuple[Caveat, ...]:
    """Return what an audit noted of the model, and how its clean accuracy stands beside chance."""
    known = [Caveat(**note) for note in noted]
    gentlest = rows(clean, GentlestSlice)
    found = [row for _, row in rows(clean, CleanSlice) or gentlest]
    standing = Standing.of(found)
    inputs = f"{noun.many} of {gentlest[0][0].cell.label}" if gentlest else noun.many
    explained = any(caveat.kind == "distances" for caveat in known)
    mixed = [] if explained else _reordered(reordered(found), inputs) or _swapped(cycles(found))
    return (*([] if standing is None else _by_chance(standing, inputs, MISMATCHES[noun.many])), *mixed, *known)


def _reordered(found: Reordered | None, inputs: str) -> list[Caveat]:
    if found is None:
        return []
    pairs = ", ".join(f"{answer} for {name}" for name, answer in found.pairs[:SHOWN_PAIRS])
    text = (
        f"With its outputs in another order it is right on {found.reordered:,} of {found.images:,} {inputs}, and on "
        f"{found.right:,} as they are: the labels are probably in another order than the model's outputs (it answers "
        f"{pairs}{', ...' if len(found.pairs) > SHOWN_PAIRS else ''}). The order was found on other {inputs} than it "
        "was tried on. Name the model's classes in the order of its outputs."
    )
    return [Caveat("reordered", text)]


def _swapped(rings: Sequence[Sequence[str]]) -> list[Caveat]:
    if not rings:
        return []
    told = "; ".join(
        ", ".join(f"{one} as {other}" for one, other in zip(ring, (*ring[1:], ring[0]), strict=True))
        for ring in rings[:3]
    )
    more = f"; and {len(rings) - 3} more" if len(rings) > 3 else ""
    text = (
        f"Classes are predicted as each other ({told}{more}): their labels are probably swapped, or in another order "
        "than the model's outputs."
    )
    return [Caveat("swapped", text)]


def _by_chance(standing: Standing, inputs: str, mismatch: str) -> list[Caveat]:
    found, count = standing.accuracy, standing.accuracy.images
    value = f"{percent(found.value)} ({interval(found)})"
    always = f"always predicting {standing.common} is right {percent(standing.baseline)} of the time"
    if standing.only is not None:
        return [Caveat("one_answer", f"It predicts {standing.only} for all {count:,} {inputs}. {mismatch}")]
    if standing.blind:
        said = f"Its accuracy on {count:,} {inputs}, {value}, is no better than chance: {always}. {mismatch}"
        return [Caveat("chance", said)]
    if standing.guessing and (standing.below or standing.poor):
        said = f"Its accuracy on {count:,} {inputs}, {value}, is not shown to be above chance: {always}. {mismatch}"
        return [Caveat("chance", said)]
    if standing.below:  # it tells classes apart, and yet: one of them is most of the data
        said = f"Its accuracy on {count:,} {inputs}, {value}, is no better than a constant prediction: {always}."
        return [Caveat("baseline", said)]
    if standing.unproven:
        said = f"{count:,} {inputs} do not show that it is better than chance: {value} are right, and {always}."
        return [Caveat("chance", f"{said} {mismatch}") if standing.slight else Caveat("unproven", said, "watch")]
    return []


def with_caveats(views: Sequence[View], found: Sequence[Caveat], noun: Noun = NOUNS["images"]) -> tuple[View, ...]:
    """Return the views with the caveats in front of them, and nothing called good that they touch."""
    if not found:
        return tuple(views)
    kinds = {caveat.kind for caveat in found if caveat.level != "plain"}
    useless = bool(kinds & {"chance", "one_answer", "reordered"})
    first = View(
        SECTION,
        "Caveats",
        "Do these numbers mean what they say?",
        verdict=tuple(Sentence(caveat.text, caveat.level) for caveat in found),
        notes=(
            "Before the audit the model was run on a few inputs twice, then in another batch, and, where its accuracy "
            "is low, with other input preparations; its clean accuracy is compared with the share of the most frequent "
            "class. With a caveat that makes the numbers unreliable, nothing is rated good.",
        ),
        actions=(_action(noun.many),) if useless else (),
    )
    return (first, *(_hedged(view, useless) if kinds else view for view in views))


def _hedged(view: View, useless: bool) -> View:
    """Return a view that calls nothing good, and advises nothing where labels and outputs may not match."""
    return replace(
        view, verdict=_plain(view.verdict), tiles=_plain(view.tiles), actions=() if useless else view.actions
    )


def _plain(parts: tuple[Rated, ...]) -> tuple[Rated, ...]:
    return tuple(replace(part, level="plain") if part.level == "good" else part for part in parts)


def _action(inputs: str) -> Action:
    return Action(
        "Check that labels and outputs match",
        "Robustness figures say little about a model that is no better than chance, or whose outputs are in another "
        "order. Its class names, one per line in the order of its outputs, decide which label is which output.",
        f"shiftproof audit --model model.py:build --data {inputs}/ --classes classes.txt",
    )


def check_subject(subject: Subject) -> tuple[Caveat, ...]:
    """Try the model before any long work: outputs must be finite logits that fit the labels; return what is odd."""
    labels = subject.data.labels
    if labels is None and subject.data.kind == "texts":
        raise DataError(
            "The texts have no labels.",
            expected="a column of labels, or one sub-folder per class",
            fix="--label-column NAME names it; shiftproof estimate works without labels",
        )
    if labels is not None and int(labels.min()) == int(labels.max()):
        raise DataError(
            f"All {subject.data.kind} have the same label.",
            expected="at least two classes: an audit measures how well they are told apart",
            got=f"{len(labels)} {subject.data.kind} of one class",
            fix="give the folder that holds one sub-folder per class",
        )
    return try_model(subject)
