"""The paired audit: whom it asks about, when it switches, what it says was won, and how rarely it is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftproof.adapters.paired_audit import LEVELS, PairedAudit
from shiftproof.errors import DataError
from shiftproof.measures.betting import paired_upper

Table = NDArray[np.int64]


def answers(accuracies: list[float], images: int, seed: int = 0) -> tuple[Table, Table]:
    """Return predictions [configurations, images] that are independently right so often, and the labels."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, images)
    right = random.random((len(accuracies), images)) < np.array(accuracies)[:, None]
    wrong = (labels + random.integers(1, 10, (len(accuracies), images))) % 10
    return np.where(right, labels, wrong), labels


def audited(audit: PairedAudit, table: Table, labels: Table, batch: int = 50) -> NDArray[np.float64]:
    """Run an audit over predictions, answering all its questions at once; return who served, image by image."""
    served = []
    for low in range(0, table.shape[1], batch):
        part = table[:, low : low + batch]
        served.append(np.full(part.shape[1], audit.serving))
        first = audit.images
        audit.tell({at: int(labels[low + at - first]) for at in audit.ask(part)})
    return np.concatenate(served)


def test_it_switches_to_what_is_better_and_back_when_it_breaks() -> None:
    table, labels = answers([0.5, 0.8], 20_000)
    table[1, 10_000:] = 3  # a collapse
    audit = PairedAudit(2)
    served = audited(audit, table, labels)
    assert [(each.old, each.new) for each in audit.switches] == [(0, 1), (1, 0)]
    up, down = audit.switches
    assert up.image < 5000
    assert 10_000 < down.image < 13_000
    right = (table[served, np.arange(20_000)] == labels).mean()
    assert right > (table[0] == labels).mean() + 0.05


def test_where_all_agree_nothing_is_asked_and_labels_are_within_the_budget() -> None:
    table, labels = answers([0.7], 10_000)
    audit = PairedAudit(2, label_share=0.1)
    assert audit.ask(np.concatenate([table, table])) == ()
    for rare in (0.02, 0.1, 0.4, 1.0):
        other = np.where(np.random.default_rng(1).random(10_000) < rare, (table + 1) % 10, table)
        audit = PairedAudit(2, label_share=0.02)
        audited(audit, np.concatenate([table, other]), labels)
        asked = audit.labels / 10_000
        assert 0.4 * min(0.02, rare) <= asked <= 0.02 * 1.25


def test_labels_are_asked_by_a_coin_that_knows_only_the_position() -> None:
    table, _ = answers([0.6, 0.6], 4000)
    whole, parts = PairedAudit(2, seed=7), PairedAudit(2, seed=7)
    whole.disagreement = parts.disagreement = 0.3
    first = whole.ask(table[:, :1])
    assert first == parts.ask(table[:, :1])
    some = PairedAudit(2, label_share=1.0)
    assert some.ask(table) == tuple(np.flatnonzero(table[0] != table[1]))
    assert PairedAudit(2, seed=1).ask(table) != PairedAudit(2, seed=2).ask(table)


def test_late_labels_count_in_the_order_of_the_stream() -> None:
    table, labels = answers([0.4, 0.9], 3000)
    prompt, late = PairedAudit(2, 0.2), PairedAudit(2, 0.2)
    wanted = prompt.ask(table)
    assert late.ask(table) == wanted
    prompt.tell({at: int(labels[at]) for at in wanted})
    for at in reversed(wanted):
        assert late.wanted
        assert late.labels == 0
        late.tell({at: int(labels[at])})
    assert late.wanted == ()
    assert late.switches == prompt.switches
    assert late.to_json() == prompt.to_json()


def test_labels_nobody_asked_for_are_refused() -> None:
    audit = PairedAudit(2, 0.5)
    (position, *_) = audit.ask(answers([0.5, 0.5], 100)[0])
    audit.tell({position: 1})
    for unasked in (position, 100_000):
        with pytest.raises(DataError, match="not requested"):
            audit.tell({unasked: 1})


def test_the_bound_on_the_gain_holds_what_was_served() -> None:
    table, labels = answers([0.5, 0.7], 30_000)
    audit = PairedAudit(2, 0.05)
    served = audited(audit, table, labels)
    low, high = audit.gain()
    truth = (table[served, np.arange(30_000)] == labels).mean() - (table[0] == labels).mean()
    assert low < truth < high
    assert low > 0
    assert high - low < 0.25
    shares = [audit.share(level) for level in range(LEVELS)]
    assert low == -paired_upper(audit.worse, audit.better, 30_000, shares, 0.025)


def test_an_audit_goes_on_from_its_state() -> None:
    table, labels = answers([0.5, 0.6, 0.8], 6000)
    whole, first, second = (PairedAudit(3, 0.1) for _ in range(3))
    audited(whole, table, labels)
    audited(first, table[:, :3000], labels[:3000])
    second.set_json(first.to_json())
    audited(second, table[:, 3000:], labels[3000:])
    assert second.to_json() == whole.to_json()


def test_equals_are_hardly_ever_exchanged() -> None:
    """Three configurations that are as often right, along 100 streams: no more switches than the error rate allows."""
    switched = 0
    for seed in range(100):
        table, labels = answers([0.6, 0.6, 0.6], 2000, seed)
        audit = PairedAudit(3, 0.25, seed=seed)
        audited(audit, table, labels, batch=500)
        assert audit.labels > 200
        switched += bool(audit.switches)
    assert switched <= 0.05 * 100
