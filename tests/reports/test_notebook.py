"""An audit in a notebook: figures, a short page, readable text."""

from pathlib import Path

import plotly.graph_objects as plotly
import pytest

from shiftproof.audits import Audit
from shiftproof.errors import ConfigurationError
from shiftproof.reports.notebook import Figures
from shiftproof.reports.view import Figure
from tests.reports.sample_views import masthead, views

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def audit():
    return Audit(Path("runs/demo"), masthead(), views(class_name=HOSTILE), {"clean_accuracy": 0.9153}, ("one cell",))


def test_every_figure_is_a_plotly_figure_with_its_title_and_real_colours(audit):
    figures = audit.plot()
    blocks = [block for view in audit.views for block in view.blocks if isinstance(block, Figure)]
    assert isinstance(figures, Figures)
    assert [figure.layout.title.text for figure in figures] == [block.title for block in blocks]
    assert all(isinstance(figure, plotly.Figure) for figure in figures)
    assert "var(--" not in "".join(figure.to_json() for figure in figures)
    assert figures[0].layout.template.layout.colorway[0] == "#0072b2"
    assert list(figures[0].data[0].x) == list(blocks[0].plot["data"][0]["x"])


def test_a_section_has_its_own_figures(audit):
    (figure,) = audit.plot("worst_case")
    assert figure.layout.title.text.startswith("The genetic algorithm")
    with pytest.raises(ConfigurationError, match="did you mean  worst_case"):
        audit.plot("worst_cas")


def test_the_page_has_verdict_tiles_and_report_and_obeys_nobody(audit):
    page = audit._repr_html_()
    assert "Contrast loss and noise cost most" in page
    assert "91.5%" in page
    assert str(audit.report) in page
    assert "1 tasks failed" in page
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page


def test_text_reads(audit):
    lines = repr(audit).splitlines()
    assert lines[0] == "Audit of ResNet-20 (demo) on CIFAR-10 test sample, 1,000 images in 10 classes"
    assert any(line.startswith("  bad    Accuracy is 91.5% on clean images") for line in lines)
    assert lines[-1] == f"  report: {audit.report}"
