"""Searchers as functions of a space and a fitness: their draws, their counts, and what they find."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from shiftproof.errors import ConfigurationError
from shiftproof.keyed import Keyed
from shiftproof.searchers import (
    SEARCHERS,
    Score,
    SearchTrace,
    climbing,
    evolution,
    make_space,
    racing,
    random_search,
    searcher,
)
from shiftproof.searchers.evolving import Variant, cross, next_generation, select, selection_weights
from shiftproof.searchers.halving import race_rounds
from shiftproof.searchers.stepwise import first_chains

SPACE = make_space("cifar")
OPTIONAL = {"optuna": "optuna", "cma": "cma"}


class Counting:
    """A fitness that counts what it is asked, low for tuples of low genes."""

    def __init__(self, value=lambda genes: sum(genes) / (190 * len(genes))):
        self.value = value
        self.asked: list[tuple[tuple[int, ...], int | None]] = []

    def __call__(self, tuples, images=None, /):
        self.asked.extend((genes, images) for genes in tuples)
        return [Score(float(self.value(genes))) for genes in tuples]


def run(name, evaluate, **options):
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name], reason="an optional package of the extra `search`")
    settings = {"length": 5, "budget": 60, "seed": 0, **options}
    return searcher(name, images=270)(SPACE, evaluate, **settings)


@pytest.mark.parametrize("name", SEARCHERS)
def test_every_searcher_notes_all_it_asked_for_and_finds_something_low(name):
    fitness = Counting()
    trace = run(name, fitness)
    assert [(trial.genes, trial.images) for trial in trace.trials] == fitness.asked
    assert all(0 <= gene < 190 for genes, _ in fitness.asked for gene in genes)
    assert all(len(genes) == 5 for genes, _ in fitness.asked)
    best = trace.best()
    assert best is not None
    full = [fitness.value(genes) for genes, images in fitness.asked if images is None]
    assert best.score.fitness == min(full)
    assert best.score.fitness < 0.45  # a random tuple's is 0.5 on average


@pytest.mark.parametrize("name", SEARCHERS)
def test_the_seed_decides_everything(name):
    first, again, other = (run(name, Counting(), seed=seed) for seed in (3, 3, 4))
    assert first.to_json() == again.to_json()
    assert first.to_json() != other.to_json()
    assert SearchTrace.from_json(first.to_json()).to_json() == first.to_json()


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("length", [1, 2])
def test_short_tuples(name, length):
    assert len(run(name, Counting(), length=length, budget=20)) >= 20


@pytest.mark.parametrize("name", ["random", "climbing", "optuna", "cma"])
def test_the_budget_is_the_number_of_evaluations(name):
    assert len(run(name, Counting(), budget=37)) == 37


@given(
    population=st.sampled_from([2, 4, 10]),
    generations=st.integers(0, 6),
    rest=st.integers(0, 1),
    variant=st.sampled_from(["ranked", "paper", "release"]),
)
def test_evolution_evaluates_p_times_k_plus_one_tuples(population, generations, rest, variant):
    fitness = Counting()
    budget = population * (generations + 1) + rest
    evolution(SPACE, fitness, length=3, budget=budget, population=population, variant=variant)
    assert len(fitness.asked) == population * (generations + 1)


@pytest.mark.parametrize("variant", ["ranked", "paper", "release"])
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_fitness_of_zero_or_one_everywhere(variant, value):
    trace = evolution(SPACE, Counting(lambda genes: value), length=3, budget=50, variant=variant)
    assert len(trace) == 50


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.sampled_from(["ranked", "paper", "release"]))
def test_weights_are_probabilities_and_favour_the_low(fitness, variant):
    weights = selection_weights(fitness, variant)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert (np.diff(weights[np.argsort(fitness, kind="stable")]) <= 1e-12).all()


def test_selection_follows_the_weights():
    fitness = np.array([0.1, 0.2, 0.4, 0.8])
    uniform = Keyed(0, [0]).uniform(shape=(20_000,)).numpy()[0]
    by_rank = np.array([4, 3, 2, 1])
    expectations: list[tuple[Variant, Any]] = [("paper", 1 / fitness), ("release", 1 - fitness), ("ranked", by_rank)]
    for variant, weights in expectations:
        chosen = select(selection_weights(fitness, variant), uniform)
        expected = weights / weights.sum() * len(uniform)
        assert chisquare(np.bincount(chosen, minlength=4), expected).pvalue > 1e-4


def test_children_are_complementary_one_point_crossings():
    first, second = np.arange(50).reshape(10, 5), 100 + np.arange(50).reshape(10, 5)
    cuts = np.arange(10) % 6
    children = cross(first, second, cuts)
    assert children.shape == (20, 5)
    for pair, cut in enumerate(cuts):
        assert children[pair].tolist() == [*first[pair, :cut], *second[pair, cut:]]
        assert children[10 + pair].tolist() == [*second[pair, :cut], *first[pair, cut:]]


def generations(variant, mutation, count=600):
    """Two kinds of parents, all genes 0 and all genes 1: where a child's genes change shows where it was cut."""
    tuples: list[tuple[int, ...]] = [*[(0,) * 5] * 5, *[(1,) * 5] * 5]
    for number in range(count):
        yield next_generation(SPACE, tuples, [0.5] * 10, Keyed(0, [number]), mutation=mutation, variant=variant)


@pytest.mark.parametrize(("variant", "possible"), [("paper", [1, 2, 3, 4, 5]), ("release", [0, 1, 2, 3, 4])])
def test_cuts_are_uniform_where_the_variant_puts_them(variant, possible):
    cuts = [
        np.flatnonzero(np.diff(child))[0] + 1
        for children in generations(variant, 0.0)
        for child in children[:5]
        if len(set(child)) == 2
    ]
    inner = [cut for cut in possible if 0 < cut < 5]  # a cut at an end leaves no trace in a child
    assert chisquare([cuts.count(cut) for cut in inner]).pvalue > 1e-4
    whole = sum(len(set(child)) == 1 for children in generations(variant, 0.0) for child in children[:5])
    # Half of the pairs are of one kind; of the others one in five is cut at an end.
    assert binomtest(whole, 3000, 0.5 + 0.5 / 5).pvalue > 1e-4


@pytest.mark.parametrize("variant", ["paper", "release"])
def test_every_gene_mutates_with_its_own_probability(variant):
    children = np.array([child for some in generations(variant, 0.1) for child in some])
    fresh = children > 1
    # A fresh gene is one of the two it might have been with the chance of drawing it.
    chance = 0.1 * (188 / 190 if variant == "paper" else 1 - 2 / 20 / 8)
    assert binomtest(int(fresh.sum()), fresh.size, chance).pvalue > 1e-4
    for place in range(5):
        assert binomtest(int(fresh[:, place].sum()), len(fresh), chance).pvalue > 1e-5
    both = int((fresh[:, 0] & fresh[:, 1]).sum())
    assert binomtest(both, len(fresh), chance**2).pvalue > 1e-4


def test_ranked_evolution_tries_no_tuple_twice_and_keeps_its_best_parents():
    fitness = Counting()
    trace = evolution(SPACE, fitness, length=2, budget=400, seed=2)
    assert len({genes for genes, _ in fitness.asked}) == 400
    late = [trial.score.objective for trial in trace.trials[-50:]]
    assert np.mean(late) < np.mean([trial.score.objective for trial in trace.trials[:50]])


def test_ranked_evolution_ends_in_a_space_smaller_than_its_budget():
    small = make_space([("contrast", [0.5, 2.0])])
    trace = evolution(small, Counting(), length=2, budget=40)
    assert len(trace) == 40
    assert {trial.genes for trial in trace.trials} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("variant", ["ranked", "paper"])
def test_evolution_beats_random_search_where_selection_can_tell(variant):
    value = lambda genes: np.mean([gene / 190 for gene in genes]) ** 4  # noqa: E731
    won = 0
    for seed in range(5):
        lows = []
        for search in (evolution, random_search):
            options = {"variant": variant} if search is evolution else {}
            best = search(SPACE, Counting(value), length=5, budget=500, seed=seed, **options).best()
            assert best is not None
            lows.append(best.score.objective)
        won += lows[0] < lows[1]
    assert won >= 4


def test_a_random_search_is_the_beginning_of_a_longer_one():
    short, long = (random_search(SPACE, Counting(), length=3, budget=budget, seed=5) for budget in (30, 120))
    assert short.trials == long.trials[:30]


def test_races_keep_the_lowest_third_and_end_on_all_images():
    fitness = Counting()
    trace = racing(SPACE, fitness, length=3, budget=81, images=270, seed=1)
    rounds = [[genes for genes, shown in fitness.asked if shown == images] for images in (10, 30, 90, None)]
    assert [len(some) for some in rounds] == [81, 27, 9, 3]
    for before, after in pairwise(rounds):
        kept = sorted(before, key=fitness.value)[: len(before) // 3]
        assert set(after) == set(kept)
    assert trace.best() is not None
    assert len(trace) == 120
    assert trace.evaluations == 81  # what goes on to more images is the same evaluation


@pytest.mark.parametrize("name", SEARCHERS)
def test_evaluations_keep_to_the_budget(name):
    assert 30 <= run(name, Counting(), budget=37).evaluations <= 37


@given(images=st.integers(1, 5000), keep=st.integers(2, 5), rounds=st.integers(1, 6))
def test_rounds_grow_to_all_images(images, keep, rounds):
    sizes = race_rounds(images, keep, rounds)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == images
    assert len(sizes) <= rounds


BAD = {
    "odd population": ("evolution", {"population": 5}, "even number"),
    "small budget": ("evolution", {"population": 100}, "one generation"),
    "mutation": ("evolution", {"mutation": 1.5}, "probability"),
    "variant": ("evolution", {"variant": "reprint"}, "no variant"),
    "race": ("racing", {"keep": 1}, "settings of the searcher racing"),
    "unknown searcher": ("evolutoin", {}, "did you mean  evolution"),
    "unknown option": ("random", {"population": 10}, "no option 'population'"),
    "given option": ("random", {"space": 1}, "no option 'space'"),
}


@pytest.mark.parametrize(("name", "options", "says"), BAD.values(), ids=BAD.keys())
def test_what_a_searcher_refuses(name, options, says):
    with pytest.raises(ConfigurationError, match=says):
        searcher(name, images=100, **options)(SPACE, Counting(), length=3, budget=60)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", SEARCHERS)
def test_a_fitness_outside_zero_to_one_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=r"is outside \[0, 1\]"):
        run(name, Counting(lambda genes: value))


def test_failed_and_inadmissible_tuples_are_not_what_is_found():
    def evaluate(tuples, images=None, /):
        scores = {0: Score(None, error="out of order"), 1: Score(0.0, admissible=False)}
        return [scores.get(genes[0] % 3, Score(0.5)) for genes in tuples]

    trace = random_search(SPACE, evaluate, length=2, budget=90)
    best, kept = trace.best(), trace.best(admissible=True)
    assert best is not None
    assert kept is not None
    assert best.score.fitness == 0.0
    assert kept.score.fitness == 0.5
    assert len(trace.failures) == sum(trial.genes[0] % 3 == 0 for trial in trace.trials) > 0
    assert Score(0.0, admissible=False).objective == Score(None, error="").objective == 1.0


def test_what_a_trace_tells():
    trace = SearchTrace(SPACE, 1, "random", 0)
    trace.add([(1,), (2,), (3,), (1,)], [Score(0.5), Score(0.7), Score(0.2), Score(0.5)])
    assert trace.best_so_far().tolist() == [0.5, 0.5, 0.2, 0.2]
    assert [trial.genes for trial in trace.worst_tuples(2)] == [(3,), (1,)]
    assert trace.image_evaluations(100) == 300  # one tuple came twice
    assert trace.evaluations == 4
    assert trace.quantile(0.5) == 0.5
    assert trace.quantile(0.1) is None
    empty = SearchTrace(SPACE, 1, "random", 0)
    assert empty.best() is None
    assert empty.quantile() is None
    assert empty.best_so_far().tolist() == []


def test_climbing_begins_with_single_operations_and_goes_on_by_one_change_at_a_time():
    fitness = Counting()
    trace = climbing(SPACE, fitness, length=4, budget=90, seed=2)
    tried = [trial.genes for trial in trace.trials]
    assert len(set(tried)) == 90
    first = first_chains(SPACE, 4, 30, seed=2)
    assert tried[: len(first)] == first
    assert all(len(set(genes)) == 1 for genes in first)
    for number in range(len(first), 90):
        before = sorted(tried[:number], key=fitness.value)
        changes = [sum(a != b for a, b in zip(tried[number], genes, strict=True)) for genes in before]
        assert min(changes) <= 2  # one step replaced, or two swapped


@pytest.mark.parametrize("seed", range(5))
def test_climbing_finds_what_repeats_a_step_where_uniform_tuples_do_not(seed):
    wanted = len(SPACE) - 1

    def value(genes):
        return 1 - sum(gene == wanted for gene in genes) / len(genes)

    found, uniform = (run(name, Counting(value), budget=72, seed=seed).best() for name in ("climbing", "random"))
    assert found.score.fitness == 0
    assert uniform.score.fitness > 0


@pytest.mark.parametrize("seed", range(5))
def test_climbing_leaves_the_ends_of_the_levels_where_others_are_worse(seed):
    levels = SPACE.counts[0]
    assert levels > 4
    found = run(
        "climbing", Counting(lambda genes: np.mean([abs(gene - levels // 2) for gene in genes]) / 190), seed=seed
    )
    first = min(
        Counting(lambda genes: np.mean([abs(gene - levels // 2) for gene in genes]) / 190).value(genes)
        for genes in first_chains(SPACE, 5, 20, seed)
    )
    assert found.best().score.fitness < first


def test_climbing_needs_a_budget():
    with pytest.raises(ConfigurationError, match="budget must be positive"):
        run("climbing", Counting(), budget=0)


def test_climbing_ends_where_a_small_space_has_no_more():
    space = make_space([("contrast", [0.6, 1.4]), "grayscale"])
    trace = climbing(space, Counting(), length=2, budget=50, seed=0)
    assert len(trace) == len({trial.genes for trial in trace.trials}) == 9
