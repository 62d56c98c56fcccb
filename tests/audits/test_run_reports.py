"""Reports of runs that are no audits: what they left is shown, with a table as CSV."""

import csv

import pytest
from typer.testing import CliRunner

import shiftproof
from shiftproof.audits.run_reports import RunReport
from shiftproof.cli import app
from shiftproof.errors import RunError
from shiftproof.reports.view import Figure
from tests.training.samples import small, two_classes

MADE = {
    "training": lambda out: shiftproof.train(
        small(), two_classes(60), validation=0.2, epochs=2, batch_size=20, log_every=1, out=out
    ),
    "certificate": lambda out: shiftproof.certify("demo", "demo", sigma=0.1, images=4, n0=10, n=100, out=out),
    "spectrum": lambda out: shiftproof.spectrum(
        "demo", "demo", images=4, step=8, alphas=[], strengths=[], corruptions=[], out=out
    ),
    "search": lambda out: shiftproof.search("demo", "demo", searcher="random", budget=3, length=2, images=8, out=out),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_run_has_a_report_and_a_table(kind, tmp_path):
    MADE[kind](tmp_path / "run")
    found = shiftproof.report(tmp_path / "run")
    assert isinstance(found, RunReport)
    assert found.kind == kind
    text = found.report.read_text()
    assert found.views[0].title in text
    rows = list(csv.reader(found.table.read_text().splitlines()))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) > 2
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    assert found.views[0].verdict[0].text[:40] in shown.output


def test_the_accuracy_of_training_is_that_of_the_weights_that_were_kept(tmp_path):
    made = shiftproof.train(
        small(), two_classes(60), validation=0.5, epochs=6, batch_size=10, lr=0.1, goal="accuracy", out=tmp_path
    )
    assert made.kept is not None
    assert made.kept != made.log[-1]["step"]  # or it says nothing
    (said,) = shiftproof.report(tmp_path).views[0].verdict
    assert f"kept are the weights of step {made.kept}" in said.text
    assert f"accuracy {made.accuracy:.1%}" in said.text


def test_a_certificate_is_of_right_answers(tmp_path):
    made = shiftproof.certify("demo", "demo", sigma=0.1, images=12, n0=10, n=100, out=tmp_path)
    found = shiftproof.report(tmp_path)
    (figure,) = found.views[0].blocks
    assert isinstance(figure, Figure)
    assert figure.table.rows[0][1] == made.accuracy(0.0).value
    assert found.views[0].notes[1:] == tuple(f"Not guaranteed: {each}." for each in made.not_guaranteed())


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "search.json").write_text("{}")
    with pytest.raises(RunError, match="Cannot read the search"):
        shiftproof.report(tmp_path)
