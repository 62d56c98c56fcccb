"""The README's first five minutes: examples print what it says, links lead somewhere, and its picture is current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.processes import python, shiftproof

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHOWN = re.findall(r"^```python\n((?:(?!```).*\n)*)```\n\n```text\n((?:(?!```).*\n)*)```", README, re.M)


@pytest.mark.parametrize(("code", "output"), SHOWN)
def test_examples_print_what_is_shown(code, output, tmp_path):
    assert python(code, cwd=tmp_path).stdout == output


def test_there_is_an_example_with_its_output():
    assert SHOWN
    assert all(len(code.splitlines()) <= 5 for code, _ in SHOWN)


def test_an_own_model_is_audited_by_what_is_shown(tmp_path):
    (code,) = re.findall(r"^```python\n(# model.py\n.*?)^```", README, re.M | re.S)
    (command,) = re.findall(r"^\$ shiftproof (audit --model model.py:build .*)$", README, re.M)
    (tmp_path / "model.py").write_text(code)
    for name, grey in (("cat", 60), ("dog", 200)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (240, 230), (grey + number,) * 3).save(tmp_path / "photos" / name / f"{number}.jpg")
    result = shiftproof(*command.split(), "--sections", "clean", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "model.py:build on photos, 8 images" in result.stdout
    assert (tmp_path / "audit" / "report.html").is_file()


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
