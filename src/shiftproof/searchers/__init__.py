"""The worst case: search over chains of transformations for the one that a model is most vulnerable to.

A *space* holds operations at levels, a *fitness* says how well a model does on transformed images, and a *searcher* is
a function from the two to a *trace* of everything it tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shiftproof.registry import resolve

if TYPE_CHECKING:
    from shiftproof.searchers.catalogue import SEARCHERS, searcher
    from shiftproof.searchers.constraint import Constraint
    from shiftproof.searchers.detection import DetectionRecall
    from shiftproof.searchers.evaluator import Direct, Evaluation, Evaluator
    from shiftproof.searchers.evolving import evolution
    from shiftproof.searchers.fitness import METRICS, Fitness
    from shiftproof.searchers.halving import racing
    from shiftproof.searchers.hue_saturation import SemanticExamples, semantic_examples
    from shiftproof.searchers.search_result import Search, read
    from shiftproof.searchers.search_trace import Score, SearchTrace, Trial
    from shiftproof.searchers.searching import search
    from shiftproof.searchers.service import Service
    from shiftproof.searchers.space import Space, make_space, spaces
    from shiftproof.searchers.stepwise import climbing
    from shiftproof.searchers.uniform import random_search

_TARGETS = {
    "METRICS": "shiftproof.searchers.fitness:METRICS",
    "SEARCHERS": "shiftproof.searchers.catalogue:SEARCHERS",
    "Constraint": "shiftproof.searchers.constraint:Constraint",
    "DetectionRecall": "shiftproof.searchers.detection:DetectionRecall",
    "Direct": "shiftproof.searchers.evaluator:Direct",
    "Evaluation": "shiftproof.searchers.evaluator:Evaluation",
    "Evaluator": "shiftproof.searchers.evaluator:Evaluator",
    "Fitness": "shiftproof.searchers.fitness:Fitness",
    "Score": "shiftproof.searchers.search_trace:Score",
    "Search": "shiftproof.searchers.search_result:Search",
    "SemanticExamples": "shiftproof.searchers.hue_saturation:SemanticExamples",
    "Service": "shiftproof.searchers.service:Service",
    "Space": "shiftproof.searchers.space:Space",
    "SearchTrace": "shiftproof.searchers.search_trace:SearchTrace",
    "Trial": "shiftproof.searchers.search_trace:Trial",
    "climbing": "shiftproof.searchers.stepwise:climbing",
    "evolution": "shiftproof.searchers.evolving:evolution",
    "make_space": "shiftproof.searchers.space:make_space",
    "racing": "shiftproof.searchers.halving:racing",
    "random_search": "shiftproof.searchers.uniform:random_search",
    "read": "shiftproof.searchers.search_result:read",
    "search": "shiftproof.searchers.searching:search",
    "searcher": "shiftproof.searchers.catalogue:searcher",
    "semantic_examples": "shiftproof.searchers.hue_saturation:semantic_examples",
    "spaces": "shiftproof.searchers.space:spaces",
}

__all__ = [
    "METRICS",
    "SEARCHERS",
    "Constraint",
    "DetectionRecall",
    "Direct",
    "Evaluation",
    "Evaluator",
    "Fitness",
    "Score",
    "Search",
    "SearchTrace",
    "SemanticExamples",
    "Service",
    "Space",
    "Trial",
    "climbing",
    "evolution",
    "make_space",
    "racing",
    "random_search",
    "read",
    "search",
    "searcher",
    "semantic_examples",
    "spaces",
]


def __getattr__(name: str) -> Any:
    if name in _TARGETS:
        return resolve(_TARGETS, name, "name")
    raise AttributeError(f"module 'shiftproof.searchers' has no attribute {name!r}")
