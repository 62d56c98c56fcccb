"""Several conditions on equal terms: which shifts are meant, their means, and what has no table."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shiftproof import shifts
from shiftproof.certificates import CertifiedSuite, certify
from shiftproof.certificates.conditions import conditions, groups_of, label_of
from shiftproof.certificates.telling import certified_table
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.shifts.spectral.waves import PowerLaw

SHAPE = (3, 32, 32)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return certify(
        "demo", "demo", sigma=0.04, n0=20, n=120, alpha=0.01, images=12, shift=["clean", "fog@3", "pixelate@1"],
        out=tmp_path_factory.mktemp("suite"),
    )  # fmt: skip


def test_a_family_is_every_corruption_at_every_severity():
    found = conditions(["common"], None, None, SHAPE)
    assert found[0] is None
    assert len({label_of(each) for each in found}) == 76
    assert len(conditions(["common"], [3], None, SHAPE)) == 16
    assert [label_of(each) for each in conditions(["fog"], [1, 2.5], None, SHAPE)] == ["fog@1", "fog@2.5"]
    assert [label_of(each) for each in conditions(["fog@1", "clean", "fog@1"], None, None, SHAPE)] == ["fog@1", "clean"]
    assert len(conditions([], None, "cifar-c", SHAPE)) == 76


@pytest.mark.parametrize("side", [32, 224])
def test_the_frequency_suite_has_192_sets_at_any_size(side):
    found = [each for each in conditions([], None, "cifar-f", (3, side, side)) if isinstance(each, PowerLaw)]
    assert len(found) == 192
    assert max(each.center for each in found) == side / 2
    assert min(each.eps for each in found) == 8 * side / 32
    groups = groups_of(found, side)
    assert [len(groups[name]) for name in ("low", "mid", "high")] == [60, 60, 72]
    assert len(groups["alpha 0.5"]) == 48
    assert len(groups["low, alpha 3"]) == 15


def test_common_corruptions_are_grouped_as_published():
    groups = groups_of([shifts.corruption(name, 3) for name in shifts.names("common")], 32)
    assert [*groups] == ["low", "mid", "high", "severity 3"]
    assert {len(groups[name]) for name in ("low", "mid", "high")} == {5}


def test_means_are_those_of_the_radii(small):
    radii = {each.terms.shift: each.radii for each in small}
    assert small.macr.value == pytest.approx(np.mean([radii["fog@3"], radii["pixelate@1"]]))
    assert small.clean is small["clean"]
    row = small.to_row()
    assert row["shifts"] == 2
    assert row["acr"] == small.clean.acr.value
    assert row["macr.low"] == pytest.approx(radii["fog@3"].mean())


def test_parts_are_what_single_calls_certify(small):
    alone = certify("demo", "demo", sigma=0.04, n0=20, n=120, alpha=0.01, images=12, shift="fog@3")
    assert small["fog@3"] == alone


def test_no_table_of_unequal_terms(small):
    clean, fog, _ = small.parts
    other = replace(fog, terms=replace(fog.terms, rule={**fog.terms.rule, "n": 500}))
    for make in (lambda some: CertifiedSuite(some, {}), certified_table):
        with pytest.raises(DataError, match="different settings"):
            make((clean, other))
    assert "fog@3" in certified_table((clean, fog))


def test_bad_conditions_are_told():
    with pytest.raises(ConfigurationError):
        conditions(["fogg"], [1], None, SHAPE)
    with pytest.raises(ConfigurationError):
        conditions(["fog@1"], None, "cifar-c", SHAPE)
    given: dict[str, Any]
    for given in ({"shift": "common"}, {"shift": "fog", "severities": [1]}):
        with pytest.raises(ConfigurationError, match="list"):
            certify("demo", "demo", sigma=0.1, **given)
