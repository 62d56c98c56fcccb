import json
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from shiftproof.errors import DataError, ModelError
from shiftproof.estimators import protocol
from shiftproof.estimators.protocol import PoolRecord, Votes, ablate
from shiftproof.estimators.weight_norms import frobenius_norm, spectral_norm

DOMAINS = ("a", "b", "c", "d")


def evaluate(records) -> Any:
    return protocol.evaluate(records)


def table(noise=0.0, seed=0, architectures=("cnn", "mlp"), train=DOMAINS, line=lambda value: 0.5 * value + 0.2):
    rng = np.random.default_rng(seed)
    return [
        PoolRecord(f"{arch}-{home}-{k}", arch, home, test, "ni", value, line(value) + noise * rng.normal())
        for arch in architectures
        for home in train
        for test in DOMAINS
        for k in range(6)
        for value in [rng.random()]
    ]


def test_a_measure_that_is_a_line_of_accuracy_is_perfect():
    (scores,) = evaluate(table())
    assert scores.r_squared.mean == pytest.approx(1.0)
    assert scores.mae.mean == pytest.approx(0.0, abs=1e-9)
    for tau in (scores.id_tau, scores.macro_tau, scores.micro_tau, scores.arch_tau, scores.cross_tau):
        assert tau.mean == pytest.approx(1.0)
    assert (scores.id_tau.groups, scores.macro_tau.groups, scores.micro_tau.groups) == (8, 24, 8)
    assert (scores.arch_tau.groups, scores.cross_tau.groups) == (4, 48)


def test_groups_are_those_of_the_paper():
    records = table(noise=0.2)
    (scores,) = evaluate(records)

    def tau(keep):
        some = [(one.value, one.accuracy) for one in records if keep(one)]
        return scipy.stats.kendalltau(*zip(*some, strict=True)).statistic

    macro = [
        tau(lambda one, arch=arch, i=i, o=o: (one.architecture, one.train, one.test) == (arch, i, o))
        for arch in ("cnn", "mlp")
        for i in DOMAINS
        for o in DOMAINS
        if i != o
    ]
    found = scores.macro_tau
    assert (found.mean, found.std, found.groups) == pytest.approx((np.mean(macro), np.std(macro, ddof=1), 24))
    micro = [
        tau(lambda one, arch=arch, o=o: one.architecture == arch and one.test == o != one.train)
        for arch in ("cnn", "mlp")
        for o in DOMAINS
    ]
    assert scores.micro_tau.mean == pytest.approx(np.mean(micro))
    across = [tau(lambda one, o=o: one.test == o != one.train) for o in DOMAINS]
    assert scores.arch_tau.mean == pytest.approx(np.mean(across))
    home = [tau(lambda one, arch=arch, i=i: (one.architecture, one.train, one.test) == (arch, i, i))
            for arch in ("cnn", "mlp") for i in DOMAINS]  # fmt: skip
    assert scores.id_tau.mean == pytest.approx(np.mean(home))


def test_lines_are_fitted_on_other_training_domains():
    # Models trained on `a` follow another line than those on `b`, and on `c` each is predicted from the other.
    records = [
        one if one.train != "a" else PoolRecord(**{**vars(one), "accuracy": one.accuracy + 0.1})
        for one in table(architectures=("cnn",), train=("a", "b"))
    ]
    (scores,) = evaluate([one for one in records if one.test == "c"])
    assert (scores.mae.mean, scores.mae.std, scores.mae.groups) == pytest.approx((10.0, 0.0, 2), abs=1e-9)
    assert scores.r_squared.mean < 1
    assert scores.squared_correlation.mean == pytest.approx(1.0)


def test_what_the_table_lacks_is_none():
    (scores,) = evaluate(table(architectures=("cnn",), train=("a",)))
    assert scores.micro_tau is None
    assert scores.arch_tau is None
    assert scores.r_squared is None
    assert scores.macro_tau.mean == pytest.approx(1.0)
    json.dumps(scores.to_row(), allow_nan=False)
    assert evaluate([]) == ()
    with pytest.raises(DataError, match="NaN or infinite"):
        evaluate([PoolRecord("m", "cnn", "a", "b", "ni", float("nan"), 0.5)])


def test_ablations_use_part_of_the_inputs_and_views():
    rng = np.random.default_rng(0)
    pool = []
    for k in range(12):
        keeps = 0.4 + 0.05 * k
        votes = np.where(rng.random((400, 21)) < keeps, 0, rng.integers(1, 5, (400, 21)))
        pool.append(Votes(f"m{k}", "cnn", "a", "b", votes, 5, accuracy=keeps))
    made: Any = ablate(pool, inputs=(5, 400), views=(1, 20))
    found = {scores.measure: scores.macro_tau.mean for scores in made}
    assert found["inputs=400"] == found["views=20"]
    assert found["inputs=5"] < found["inputs=400"]
    assert found["views=1"] <= found["views=20"]
    assert pool[0].invariance(400, 0) == 1.0


def test_norms_are_products_over_layers():
    torch.manual_seed(0)
    first, last = nn.Conv2d(3, 5, 3), nn.Linear(20, 4)
    model = nn.Sequential(first, nn.ReLU(), nn.Flatten(), last)
    matrices = [first.weight.detach().flatten(1).numpy(), last.weight.detach().numpy()]
    spectral = np.prod([np.linalg.svd(matrix, compute_uv=False)[0] ** 2 for matrix in matrices])
    assert spectral_norm(model) == pytest.approx(np.log(spectral), rel=1e-5)
    assert frobenius_norm(model) == pytest.approx(np.log(np.prod([(m**2).sum() for m in matrices])), rel=1e-5)
    with pytest.raises(ModelError, match="no weights"):
        spectral_norm(nn.ReLU())
