"""Tables on a terminal: as many columns as fit, each with its words and numbers whole."""

import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from shiftproof.cli.terminal import make_table
from shiftproof.reports.view import Column, Table

HEADINGS = [
    "shift",
    "accuracy",
    "mean confidence",
    "accuracy at 90% coverage",
    "AUROC of wrong answers: energy",
    "hold",
]


def shown(table, width):
    out = StringIO()
    Console(file=out, width=width).print(make_table(table, width))
    return out.getvalue().splitlines()


def table_of(headings, names):
    columns = (Column(headings[0]), *(Column(title, "percent") for title in headings[1:]))
    return Table("A table", columns, tuple((name, *[0.987] * (len(headings) - 1)) for name in names))


@pytest.mark.parametrize("width", [30, 44, 60, 80])
def test_columns_that_do_not_fit_are_counted_and_no_other_is_cut(width):
    lines = shown(table_of(HEADINGS, ["gaussian noise", "fog"]), width)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    row = next(line for line in lines if line.startswith("gaussian noise"))
    told = re.search(r"(\d+) +more +columns?", " ".join(lines))
    assert row.count("98.7") + int(told[1] if told else 0) == len(HEADINGS) - 1


def test_a_table_that_fits_has_all_of_its_columns():
    lines = shown(table_of(HEADINGS, ["fog"]), 120)
    assert [each.strip() for each in lines[1].split("  ") if each.strip()] == HEADINGS
    assert len(lines) == 3


def test_intervals_stay_on_one_line_beside_names_that_fold():
    columns = (
        Column("slice"),
        Column("accuracy", "percent"),
        Column("interval"),
        Column("points below the rest", "number"),
    )
    name = "class dog with the lowest contrast (0.143 to 0.178), under impulse noise at severity 3"
    lines = shown(Table("A table", columns, ((name, 0.13, "10 to 43%", 43.4),)), 60)
    assert any("10 to 43%" in line for line in lines)
    assert max(map(len, lines)) <= 60


@given(
    st.lists(st.text("abc de", min_size=1, max_size=30), min_size=1, max_size=8),
    st.lists(st.text("xyz w", min_size=1, max_size=40), max_size=4),
    st.integers(1, 100),
)
def test_any_table_is_shown(headings, names, width):
    lines = shown(table_of(headings, names), width)
    assert max(map(len, lines), default=0) <= width
