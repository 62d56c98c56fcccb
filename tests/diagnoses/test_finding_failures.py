"""`find_failures`: from a folder to slices, rows, copies and a report."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import shiftproof
from shiftproof import load_data
from shiftproof.slices import read_csv


def photos(place, count, cameras):
    """Write images of the demo, every so manieth by camera B, whose files are dark, and return the rows of a table."""
    data = load_data("demo").take(count)
    rows = ["file,camera"]
    assert data.labels is not None
    images = np.concatenate([(batch.inputs * 255).byte().permute(0, 2, 3, 1).numpy() for batch in data.batches(100)])
    for number, (image, label) in enumerate(zip(images, data.labels.tolist(), strict=True)):
        camera = cameras[number % len(cameras)]
        file = f"{data.classes[label]}/{number}.png"
        (place / file).parent.mkdir(exist_ok=True)
        Image.fromarray(image // 7 if camera == "B" else image).save(place / file)
        rows.append(f"{file},{camera}")
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of the demo's images in which one camera's files are dark, with a table that names cameras."""
    place, table = tmp_path_factory.mktemp("photos"), tmp_path_factory.mktemp("tables") / "meta.csv"
    table.write_text("\n".join(photos(place, 300, "ABC")) + "\n")
    return place, table


def test_images_that_are_also_the_darkest_are_called_by_the_users_own_column(tmp_path):
    place, table = tmp_path / "photos", tmp_path / "meta.csv"
    place.mkdir()
    table.write_text("\n".join(photos(place, 200, "BAAAA")) + "\n")
    found = shiftproof.find_failures("demo", place, metadata=table, out=tmp_path / "run").slices.slices[0]
    assert found.name == "camera B"
    assert any("dark" in name for name in found.also)


def test_a_dark_camera_is_named_and_its_failures_are_copied(folder, tmp_path):
    place, table = folder
    found = shiftproof.find_failures(
        "demo", place, metadata=table, export_failures=tmp_path / "wrong", out=tmp_path / "run"
    )
    assert any("camera B" in each.name or "camera B" in " ".join(each.also) for each in found.slices.slices[:3])
    rows = read_csv(found.files[0])
    assert len(rows["file"]) == len(found.table["file"]) == 300
    assert "table=" not in repr(found)  # every image under every condition
    assert set(rows["camera"]) == {"A", "B", "C"}
    assert 0 < len(found.copies) <= 20
    assert all(copy.is_file() for copy in found.copies)
    page = found.report.read_text()
    assert "camera B" in page
    assert "Failure analysis" in page
    assert "Robustness audit" not in page  # it says what it is
    assert str(found.failures(most=1)["file"][0]) in page
    kept = json.loads((found.folder / "failures.json").read_text())
    assert kept["slices"][0]["slice"] == found.slices.slices[0].name


def test_a_second_call_measures_nothing(folder, tmp_path):
    heard: list[object] = []
    for _ in range(2):
        heard.clear()
        shiftproof.find_failures(
            "demo",
            folder[0],
            images=60,
            out=tmp_path,
            on_progress=lambda done, total, result: heard.append((done, result)),
        )
    assert heard == [(1, None)]


def test_the_command_prints_slices_and_where_files_are(folder, tmp_path):
    place, table = folder
    command = [sys.executable, "-m", "shiftproof", "find-failures", "--data", str(place), "--metadata", str(table)]
    done = subprocess.run([*command, "--out", "run"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "camera B" in done.stdout
    assert "run/images.csv" in done.stdout
    assert "run/report.html" in done.stdout
