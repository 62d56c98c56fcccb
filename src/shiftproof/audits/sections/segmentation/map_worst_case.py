"""The worst case of a segmenter: the chain of colour edits that costs most, measured on images it was not found on."""

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
from shiftproof.audits.sections.worst_case_figures import Found, found_in, worst_table
from shiftproof.audits.sections.worst_case_search import SIMILARITY, chain_unit
from shiftproof.data.images.maskset import MaskSet
from shiftproof.measures.overlap import Overlap
from shiftproof.reports.view import Gallery, Level, Sentence, Tile, View
from shiftproof.runs import Json, Result, Row
from shiftproof.subjects import Subject

if TYPE_CHECKING:
    from shiftproof.searchers import Space

SPACE, LENGTH = "camvid", 5
LEVEL_RULE = "{:.1f} points below clean mIoU, under the worst chain found. Good: 0 to 10 points. Bad: over 25."
LEAST_IMAGES, LEAST_TUPLES, CHECKED = 16, 20, 64
"""Images that chains are tried on and chains that are tried, at least; other images that the worst is measured on."""


@dataclass(frozen=True)
class MapSearchSize:
    """On how many images chains are tried, and how many of them."""

    images: int
    random: int
    evolution: int


SIZES = {
    "quick": MapSearchSize(images=100, random=60, evolution=70),
    "standard": MapSearchSize(images=500, random=500, evolution=300),
    "full": MapSearchSize(images=1000, random=1000, evolution=1000),
}


@dataclass(frozen=True)
class WorstMapChain(Measurement):
    """Chains tried at random and by evolution on the first images, and the worst of them on the images after those."""

    kind = "worst_case.maps"
    space: Space
    length: int
    images: int
    checked: int
    random: int
    evolution: int
    seed: int

    def measure(self, subject: Subject) -> Row:
        """Return every chain with its mIoU and similarity, and the counts of other images clean and under the worst."""
        from shiftproof.searchers import Constraint, Direct, Evaluator, evolution
        from shiftproof.searchers.evaluator import hold
        from shiftproof.searchers.map_fitness import MapFitness
        from shiftproof.searchers.search_trace import SearchTrace
        from shiftproof.searchers.uniform import draw_tuples
        from shiftproof.shifts import ImageChain

        data = subject.data.subset(range(self.images))
        if not isinstance(data, MaskSet):
            raise TypeError("label maps are needed")
        fitness = MapFitness(subject.fast_model, data.labels, len(data.classes))
        evaluator = Evaluator(
            self.space,
            hold(data, subject.device),
            fitness,
            Constraint(SIMILARITY),
            batch_size=subject.batch_size,
            seed=self.seed,
        )
        evaluate = Direct(evaluator)
        (clean,) = evaluate([()])
        drawn = draw_tuples(self.space, self.length, range(self.random), seed=self.seed)
        trace = SearchTrace(self.space, self.length, "random", self.seed)
        trace.add(drawn, evaluate(drawn))
        evolved = evolution(self.space, evaluate, length=self.length, budget=self.evolution, seed=self.seed)
        trials = [*trace.trials, *evolved.trials]
        kept = min(
            (trial for trial in trials if (trial.score.similarity or 0.0) >= SIMILARITY),
            key=lambda trial: trial.score.objective,
            default=None,
        )
        row: dict[str, Json] = {
            "clean": clean.fitness,
            "trials": {
                "words": [self.space.words(trial.genes) for trial in trials],
                "fitness": [trial.score.fitness for trial in trials],
                "similarity": [round(trial.score.similarity or 0.0, 4) for trial in trials],
                "admissible": [(trial.score.similarity or 0.0) >= SIMILARITY for trial in trials],
            },
        }
        if kept is None:
            return row
        chain = ImageChain(tuple(self.space.steps[gene] for gene in kept.genes))
        others = range(self.images, self.images + self.checked)
        return {
            **row,
            "worst": self.space.words(kept.genes),
            "before": predicted_maps(subject, others, None, self.seed),
            "after": predicted_maps(subject, others, chain, self.seed),
            "pictures": overlays(subject, 1, chain, self.seed),
        }

    def work(self) -> Work:
        """Count images under chains, and the other images twice."""
        images = (self.random + self.evolution + 1) * self.images + self.checked
        return [(chain_unit(self.space, self.length), images), (FORWARD, images + self.checked)]


class MapWorstCase(Section):
    """mIoU under the worst of many chains of operations."""

    name = "worst_case"
    title = "Worst-case transformations"
    question = "Which chain of small edits that leave images recognisable costs most mIoU?"
    numbers = (
        Number(
            "worst_case_miou", "mIoU under the worst chain found that keeps the content, on images it was not found on"
        ),
        Number("worst_case_loss", "clean mIoU of the same images less that", None),
    )

    def plan(self, scope: Scope) -> Iterator[Measurement]:
        """Plan one search."""
        from shiftproof.searchers import make_space

        size, seed = SIZES[scope.settings.budget], scope.settings.seed
        images = min(scope.scaled(size.images, LEAST_IMAGES), max(1, scope.images // 2))
        checked = min(scope.scaled(size.images, CHECKED), scope.images - images)
        if checked > 0:
            random, evolved = scope.scaled(size.random, LEAST_TUPLES), scope.scaled(size.evolution, LEAST_TUPLES)
            yield WorstMapChain(make_space(SPACE), LENGTH, images, checked, random, evolved, seed)

    def view(self, results: Sequence[Result]) -> View:
        """Tell how low the model can be brought, and by what."""
        measured = [(task, row) for task, row in rows(results, WorstMapChain) if "worst" in row]
        if not measured:
            return View(self.name, self.title, self.question, notes=("No chain that keeps the content was found.",))
        task, row = measured[0]
        parts = [part_of(row, name) for name in ("before", "after")]
        before, after = (Overlap(counts_of(part), present_of(part)) for part in parts)
        lost, interval = before.loss(after)
        level: Level = "plain" if lost < 0 else "good" if lost < GOOD else "watch" if lost < WATCH else "bad"
        tried: list[Found] = found_in(row["trials"])
        said = (
            f"Under the worst chain found, {task.length} colour edits that leave images recognisable ({row['worst']}), "
            f"mIoU is {percent(after.value)} ({between(after.interval())}) instead of {percent(before.value)}, on "
            "images not used in the search."
        )
        return View(
            self.name,
            self.title,
            self.question,
            verdict=(Sentence(said, level),),
            tiles=(
                Tile(
                    "Worst-case mIoU",
                    percent(after.value),
                    between(after.interval()),
                    level,
                    LEVEL_RULE.format(100 * lost),
                ),
            ),
            blocks=(
                worst_table(tried, "mIoU"),
                Gallery("What the model sees under the worst chain", shown_overlays(row), large=True),
            ),
            notes=(
                f"{task.random} random chains and {task.evolution} of evolution, {task.length} steps each, from the "
                f"space {SPACE!r}, tried on {task.images} images; the worst that keeps a structural similarity of "
                f"{SIMILARITY:g} was then measured on {before.images} other images, so that the choice does not bias "
                f"its interval (loss {between(interval, ' points')}). A search that tries more may find worse.",
            ),
            numbers={"worst_case_miou": after.value, "worst_case_loss": lost},
        )
