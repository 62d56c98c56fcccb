"""The worst case of a segmenter: the chain of small edits that costs most, measured on images it was not found on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shiftproof.audits.numbers import Number
from shiftproof.audits.sections.base import FORWARD, Measurement, Scope, Section, Work
from shiftproof.audits.sections.measuring import rows
from shiftproof.audits.sections.segmentation.map_measuring import counts_of, part_of, predicted_maps, present_of
from shiftproof.audits.sections.segmentation.map_pictures import overlays, shown_overlays
from shiftproof.audits.sections.wording import between, percent
from shiftproof.audits.sections.worst_case import GOOD, WATCH
from shiftproof.audits.sections.worst_case import KINDS as KINDS_OF_CLASSES
from shiftproof.audits.sections.worst_case_figures import found_in, worst_table
from shiftproof.audits.sections.worst_case_search import SIMILARITY, RacedChains, chain_unit, trials_row
from shiftproof.data.images.maskset import MaskSet
from shiftproof.measures.overlap import Overlap
from shiftproof.reports.view import Column, Gallery, Level, Sentence, Table, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.subjects import Subject

if TYPE_CHECKING:
    from shiftproof.searchers import Space

KINDS = {
    "colour": ("camvid", KINDS_OF_CLASSES["colour"]),
    "corruption": ("corruptions", KINDS_OF_CLASSES["corruption"]),
}
"""What is searched: the kinds that leave content, and so label maps, where they are. Kind -> space, length, words."""
NAMES = {space: kind for kind, (space, _) in KINDS.items()}
LEVEL_RULE = "points of mIoU lost to the worst chain found: good from 0 to 10, bad over 25"
LEAST_IMAGES, LEAST_CHAINS, CHECKED = 16, 40, 64
"""Images that chains are tried on and chains that are tried, at least; other images that the worst is measured on."""


@dataclass(frozen=True)
class MapSearchSize:
    """On how many images chains are tried, and how many of each kind."""

    images: int
    chains: int


SIZES = {
    "quick": MapSearchSize(images=100, chains=80),
    "standard": MapSearchSize(images=500, chains=300),
    "full": MapSearchSize(images=1000, chains=800),
}


@dataclass(frozen=True)
class WorstMapChain(Measurement):
    """Chains of a space that climbing finds on the first images, and the worst of them on the images after those."""

    kind = "worst_case.maps"
    space: Space
    length: int
    images: int
    checked: int
    budget: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return every chain with its mIoU and similarity, and the counts of other images clean and under the worst."""
        from shiftproof.searchers import Constraint, Evaluator, climbing
        from shiftproof.searchers.evaluator import hold
        from shiftproof.searchers.map_fitness import MapFitness

        data = subject.data.subset(range(self.images))
        if not isinstance(data, MaskSet):
            raise TypeError("label maps are needed")
        evaluator = Evaluator(
            self.space,
            hold(data, subject.device),
            MapFitness(subject.fast_model, data.labels, len(data.classes)),
            Constraint(SIMILARITY),
            batch_size=subject.batch_size,
            seed=self.seed,
        )
        raced = RacedChains(evaluator, self.images)
        trace = climbing(self.space, raced, length=self.length, budget=self.budget, seed=self.seed)
        row: dict[str, Json] = {"trials": trials_row(trace)}
        worst = trace.best(admissible=True)
        if worst is None:
            return row
        chain = self.space.chain(worst.genes)
        others = range(self.images, self.images + self.checked)
        return {
            **row,
            "worst": self.space.words(worst.genes),
            "searched": worst.score.fitness,
            "before": predicted_maps(subject, others, None, self.seed),
            "after": predicted_maps(subject, others, chain, self.seed),
            "pictures": overlays(subject, 1, chain, self.seed),
        }

    def work(self) -> Work:
        """Count images under chains, and the other images twice."""
        images = self.budget * self.images + self.checked
        return [(chain_unit(self.space, self.length), images), (FORWARD, images + self.checked)]


@dataclass(frozen=True)
class WorstOfKind:
    """The worst chain of a kind: in words, its mIoU where it was searched, other images before and after it."""

    kind: str
    words: str
    searched: float
    before: Overlap
    after: Overlap
    row: Row

    @classmethod
    def of(cls, task: WorstMapChain, row: Row) -> WorstOfKind:
        """Read a row."""
        parts = [part_of(row, name) for name in ("before", "after")]
        before, after = (Overlap(counts_of(part), present_of(part)) for part in parts)
        return cls(NAMES[task.space.name], str(row["worst"]), float(str(row["searched"])), before, after, row)


class MapWorstCase(Section):
    """mIoU under the worst of many chains of operations."""

    name = "worst_case"
    title = "Worst-case transformations"
    question = "Which chain of small edits, that leaves images recognisable, costs the model most mIoU?"
    numbers = (
        Number(
            "worst_case_miou", "mIoU under the worst chain found that keeps the content, on images it was not found on"
        ),
        Number("worst_case_loss", "clean mIoU of the same images less that", None),
        Number("worst_case_miou.*", "the same of one kind of change: colour, corruption"),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan a search of every kind."""
        from shiftproof.searchers import make_space

        size, seed = SIZES[scope.settings.budget], scope.settings.seed
        images = min(scope.scaled(size.images, LEAST_IMAGES), max(1, scope.images // 2))
        checked = min(scope.scaled(size.images, CHECKED), scope.images - images)
        budget = scope.scaled(size.chains, LEAST_CHAINS)
        for space, kind in KINDS.values() if checked > 0 else ():
            yield WorstMapChain(make_space(space), kind.length, images, checked, budget, seed)

    def needs(self, number: str, task: Measurement) -> bool:
        """Say that a kind's own number needs its search alone, and others all."""
        kind = number.removeprefix("worst_case_miou.")
        return kind == number or not isinstance(task, WorstMapChain) or NAMES[task.space.name] == kind

    def view(self, results: Sequence[Result]) -> View:
        """Tell how low the model can be brought, and by what."""
        measured = rows(results, WorstMapChain)
        found = [WorstOfKind.of(task, row) for task, row in measured if "worst" in row]
        if not found:
            return View(self.name, self.title, self.question, notes=("No chain that keeps the content was found.",))
        worst, task = min(found, key=lambda one: one.searched), measured[0][0]
        lost, interval = worst.before.loss(worst.after)
        level: Level = "plain" if lost < 0 else "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        mious = percent(worst.before.value), percent(worst.after.value), between(worst.after.interval())
        kind = KINDS_OF_CLASSES[worst.kind]
        said = (
            f"A chain of {kind.length} {kind.said} that leaves images recognisable brings mIoU from {mious[0]} to "
            f"{mious[1]} ({mious[2]}), on images it was not found on: {worst.words}."
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(Tile("Worst-case mIoU", mious[1], mious[2], level, LEVEL_RULE),),
            blocks=(
                _kinds_table(found),
                worst_table([one for _, row in measured for one in found_in(row["trials"])], "mIoU"),
                Gallery("What the model sees under the worst chain", shown_overlays(worst.row)),
            ),
            notes=(
                f"{task.budget} chains of each kind, found by changing one step at a time, were tried on {task.images} "
                f"images; the worst that keeps a structural similarity of {SIMILARITY:g} was then measured on "
                f"{worst.before.images} other images, so that the choice does not bias its interval (loss "
                f"{between(interval, ' points')}). A search that tries more may find worse. Changes that move content, "
                "and label maps with it, are not searched.",
            ),
            numbers={
                "worst_case_miou": worst.after.value,
                "worst_case_loss": lost,
                **{f"worst_case_miou.{one.kind}": one.after.value for one in found},
            },
        )


def _kinds_table(found: Sequence[WorstOfKind]) -> Table:
    return Table(
        "The worst chain of every kind of change",
        (
            Column("kind"),
            Column("mIoU", "percent", heat=(0.0, 1.0)),
            Column("interval"),
            Column("changes in turn"),
            Column("where searched", "percent"),
        ),
        tuple(
            (one.kind, one.after.value, between(one.after.interval()), one.words, one.searched)
            for one in sorted(found, key=lambda one: one.searched)
        ),
    )
