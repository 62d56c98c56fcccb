"""The steps of hardening, each from what is in the run directory where it is there: audit, choose, train, prove."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import torch

from shiftproof.audits.auditing import audit, gate
from shiftproof.audits.conclusion import Audit
from shiftproof.comparisons import Comparison
from shiftproof.comparisons.audit_comparison import compare
from shiftproof.hardening.between import Candidate, between, candidates, ranked
from shiftproof.hardening.choice import Choice
from shiftproof.hardening.hardened import Change, Hardened, Outcome, write
from shiftproof.hardening.proof_audits import COMMON, SECTIONS, SEVERITIES, UNSEEN, fits
from shiftproof.hardening.request import ImagesByUse, Request
from shiftproof.hardening.spending import TRAINING, Spending
from shiftproof.hardening.training_time import epochs_in, fit
from shiftproof.hardening.weaknesses import Weakness, policy, weaknesses, worth_mending
from shiftproof.models import ModelLike, choose_device, fingerprint
from shiftproof.models.class_names import with_class_names
from shiftproof.runs import Json, Result, Row, Store
from shiftproof.runs.files import read_json
from shiftproof.subjects import Subject
from shiftproof.training.loop import DivergedError
from shiftproof.training.rehearsal import TrainingPlan
from shiftproof.training.start import Start
from shiftproof.training.trained import Trained, architecture, write_model
from shiftproof.training.training import train
from shiftproof.version import __version__

OnStep: TypeAlias = Callable[[int, int, Result | Row | None], None]
OnPlan: TypeAlias = Callable[[TrainingPlan], None]


class Mender:
    """A network, the images by what they are for, and what is asked, in a run directory."""

    def __init__(
        self,
        model: ModelLike,
        parts: ImagesByUse,
        request: Request,
        folder: Path,
        *,
        device: str,
        executor: str,
        on_progress: OnStep | None = None,
    ) -> None:
        self.model, self.request, self.folder = model, request, folder
        self.device, self.executor, self.on_progress = device, executor, on_progress
        self.start = Start(model, parts.training, request.recipe_on(request.augment), seed=request.seed)
        self.network = self.start.network().to(choose_device(device)).eval()
        self.parts = parts.matched(self.network)
        self.proof = self.parts.proof.take(request.test_images, seed=request.seed).in_memory()
        with_class_names(self.network, self.parts.training.classes)

    def mend(self, audited: Path | None, command: str, on_plan: OnPlan | None = None) -> Hardened:
        """Do what is missing, and say what came of it."""
        given = None if audited is None else gate(audited)
        about = {"version": __version__, "model": fingerprint(self.network), **self.request.to_texts()}
        with Store(self.folder, {**about, **self.parts.fingerprints()}) as store:
            self.spending = Spending.of(store)
            first = self._before(store, given)
            choice = self._choice(store, (given or first).numbers)
            images = (len(self.parts.training), len(self.parts.choosing), len(self.proof))
            found = Hardened(self.folder, "nothing to mend", choice, images, self.request.max_clean_loss)
            if choice.worth or self.request.augment is not None:
                with self.spending.timed(store, TRAINING) as stage:
                    trained = self._train(choice, on_plan)
                    stage.working = sum(float(str(row["seconds"])) for row in trained.log)
                choice = choice.trained(round(float(str(trained.row["epoch"]))))
                found = replace(found, choice=choice)
                made = self._candidates(store, trained, choice.weaknesses)
                found = replace(found, candidates=made, seconds=stage.working)
                found = self._prove(store, found, trained, first.folder)
            found = replace(found, spending=self.spending)
        write(found, first.masthead, command)
        return found

    def _before(self, store: Store, given: Audit | None) -> Audit:
        """Return the audit of the network as it was: the one that was given, where it is on the terms of the proof."""
        request = self.request
        if given is not None and fits(
            given, Subject.of(self.model, self.proof, seed=request.seed, device=self.device), request.seed
        ):
            return given
        return self._audit(store, self.model, "before", COMMON)

    def _audit(self, store: Store, model: ModelLike, name: str, family: str) -> Audit:
        """Audit a model on the images for proof, or read the audit that was made before."""
        with self.spending.timed(store, name) as stage:
            made = audit(
                model,
                self.proof,
                sections=SECTIONS,
                shifts=[family],
                severities=SEVERITIES,
                images=len(self.proof),
                seed=self.request.seed,
                device=self.device,
                out=self.folder / name,
                executor=self.executor,
                on_progress=self.on_progress,
            )
            stage.working = read_json(made.folder / "results.json")["timing"]["seconds"]
        return made

    def _compare(self, store: Store, first: Path, second: str) -> tuple[Comparison, tuple[Change, ...]]:
        """Compare two audits, image by image."""
        with self.spending.timed(store, f"compared-{second}") as stage:
            stage.working = 0.0
            made = compare(first, self.folder / second, out=self.folder / f"compared-{second}")
        return made, tuple(Change.of(each) for each in made.differences[second])

    def _choice(self, store: Store, numbers: Mapping[str, float]) -> Choice:
        """Return what was chosen before in this folder, or choose."""
        noted = store.about().get("choice")
        if noted is not None:
            return Choice.from_row(json.loads(noted))
        with self.spending.timed(store, "choosing"):
            made = self._choose(numbers)
        store.note({"choice": json.dumps(made.to_row())})
        return made

    def _choose(self, numbers: Mapping[str, float]) -> Choice:
        request = self.request
        weak = weaknesses(self.network, self.parts.probing, numbers, seed=request.seed, size=request.batch_size)
        augment = request.augment or policy(weak)
        fitted = fit(self.network, self.parts.training, request, augment, torch.device(choose_device(self.device)))
        return Choice(tuple(weak), request.recipe, augment, fitted, worth_mending(weak, numbers))

    def _train(self, choice: Choice, on_plan: OnPlan | None) -> Trained:
        request, fitted, images = self.request, choice.fitted, len(self.parts.training)
        augmented = request.recipe_on(choice.augment).augment is not None
        if on_plan is not None:
            on_plan(fitted.plan(images))  # steps were timed in choosing

        def replan(spent: float, step: float) -> int:
            return epochs_in(request.minutes, spent, step * fitted.steps_per_epoch(images), fitted.epochs)

        try:
            return train(
                self.model,
                self.parts.training,
                recipe=choice.recipe,
                options={"augment": choice.augment} if augmented else None,
                validation=self.parts.probing,
                device=self.device,
                out=self.folder / "training",
                images=fitted.images,
                on_progress=self.on_progress,
                replan=replan if request.epochs is None else None,
                **fitted.settings(request.seed),
            )
        except DivergedError as error:  # its clip and warm-up are no options here
            fix = f"lower --lr, and choose another folder with --out; --audit {self.folder / 'before'} saves the audit"
            raise DivergedError(error.headline, **{**error.facts, "fix": fix}) from error

    def _candidates(self, store: Store, trained: Trained, weak: Sequence[Weakness]) -> tuple[Candidate, ...]:
        """Return how the weights on the way do on the images for choosing, measured once."""
        noted = store.about().get("candidates")
        if noted is not None:
            return tuple(Candidate.from_row(row) for row in json.loads(noted))
        where, request = choose_device(self.device), self.request
        with self.spending.timed(store, "candidates"):
            found = candidates(
                self.network,
                trained.model.to(where),
                self.parts.choosing,
                [each.probe for each in weak if each.particular],
                seed=request.seed,
                size=request.batch_size,
            )
        store.note({"candidates": json.dumps([each.to_row() for each in found])})
        return tuple(found)

    def _prove(self, store: Store, found: Hardened, trained: Trained, first: Path) -> Hardened:
        """Audit the best candidate; where it lost too much on the images for proof, the next one is tried."""
        limit = self.request.max_clean_loss / 100
        tried = [each for each in ranked(found.candidates, limit) if each.share > 0.0]
        if not tried:
            return replace(found, outcome="nothing gained")
        for kept in tried:
            name = f"after-{round(100 * kept.share)}"
            made = self._at(kept, trained)
            self._write(made, found)
            self._audit(store, self._loadable(made), name, COMMON)
            compared, changes = self._compare(store, first, name)
            clean = next(each for each in changes if each.name == "clean_accuracy")
            gained = next(each for each in changes if each.name == "corruption_accuracy")
            found = replace(found, kept=kept, changes=changes, comparison=compared)
            if -clean.value <= limit + 1e-9:
                found = replace(self._unseen(store, found, made, name), outcome=_outcome(gained))
                if found.model is not None:
                    self._write(replace(made, folder=found.model), found)
                return found
        return replace(found, outcome="too costly")

    def _unseen(self, store: Store, found: Hardened, made: Trained, name: str) -> Hardened:
        """Compare under corruptions that played no part in choosing."""
        for model, label in ((self.model, "before-unseen"), (self._loadable(made), f"{name}-unseen")):
            self._audit(store, model, label, UNSEEN)
        compared, changes = self._compare(store, self.folder / "before-unseen", f"{name}-unseen")
        return replace(found, unseen=changes, other=compared)

    def _at(self, candidate: Candidate, trained: Trained) -> Trained:
        """Return the network of a candidate, with a folder of its own."""
        network = copy.deepcopy(trained.model)
        network.load_state_dict(between(self.network.state_dict(), trained.model.state_dict(), candidate.share))
        named = with_class_names(network.eval(), self.parts.training.classes)
        return replace(trained, model=named, folder=self.folder / f"candidate-{round(100 * candidate.share)}")

    def _loadable(self, made: Trained) -> ModelLike:
        """Return a network as other processes can load it too, where it was not given as an object."""
        if made.folder is None or architecture(self.start.model) is None:
            return made.model.cpu()
        return made.folder

    def _write(self, made: Trained, found: Hardened) -> None:
        facts: dict[str, Json] = {
            "version": __version__,
            "model": architecture(self.start.model),
            "head": None,
            "recipe": made.recipe,
            "options": {"augment": found.choice.augment},
            "sigma": made.sigma,
            "data": self.parts.training.name,
        }
        settings = {name: str(value) for name, value in found.choice.fitted.settings(self.request.seed).items()}
        write_model(made, facts, settings)


def _outcome(gained: Change) -> Outcome:
    return "hardened" if gained.low is not None and gained.low > 0 else "nothing gained"
