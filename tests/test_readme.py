"""The README's first five minutes: examples print what it says, links lead somewhere, and its picture is current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import python

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", README, re.M | re.S)


@pytest.mark.parametrize(("code", "output"), SHOWN)
def test_examples_print_what_is_shown(code, output, tmp_path):
    assert python(code, cwd=tmp_path).stdout == output


def test_there_is_an_example_with_its_output():
    assert SHOWN
    assert all(len(code.splitlines()) <= 5 for code, _ in SHOWN)


def test_links_lead_to_files_and_headings():
    links = re.findall(r"\]\(([^)]+)\)", README)
    for link in links:
        file, _, heading = link.partition("#")
        if not link.startswith("https://"):
            path = ROOT / file
            assert path.is_file(), link
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M) if heading else ()
            assert not heading or heading in {title.lower().replace(" ", "-") for title in headings}, link
    assert len(links) > 10


def test_the_picture_of_the_report_is_current():
    script = [sys.executable, str(ROOT / "docs" / "make_report_picture.py"), "--check"]
    checked = subprocess.run(script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert (ROOT / "docs" / "_static" / "report.png").stat().st_size < 150_000
