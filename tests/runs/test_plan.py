import pickle

from hypothesis import given
from hypothesis import strategies as st

from shiftproof.runs import Cell, Plan

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(min_size=1), VALUES, max_size=4))
def test_a_cell_survives_pickling_with_its_identity(parameters):
    cell = Cell("task", **parameters)
    copy = pickle.loads(pickle.dumps(cell))
    assert copy == cell
    assert copy.identity({"model": "a"}) == cell.identity({"model": "a"})


def test_identity_depends_on_content_and_fingerprints_and_not_on_order():
    cell = Cell("task", shift="fog@3", images=10)
    fingerprints = {"model": "a", "data": "b"}
    assert Cell("task", images=10, shift="fog@3").identity(dict(reversed(fingerprints.items()))) == cell.identity(
        fingerprints
    )
    others = [
        Cell("other", shift="fog@3", images=10).identity(fingerprints),
        Cell("task", shift="fog@3", images=11).identity(fingerprints),
        cell.identity({"model": "a", "data": "c"}),
        cell.identity({"model": "a"}),
    ]
    assert len({cell.identity(fingerprints), *others}) == 5


def test_a_plan_runs_equal_cells_once():
    plan = Plan((Cell("a", x=1), Cell("b"), Cell("a", x=1)), {})
    assert list(plan.identities().values()) == [Cell("a", x=1), Cell("b")]
