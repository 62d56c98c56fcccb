"""Every finding of the review of reliability and security, and the tests that hold it; those without a better place.

The numbers are the review's. F10, on intervals, is held by the simulations of coverage.
"""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

import shiftproof
from shiftproof.cli import app
from shiftproof.errors import DataError, ModelError
from tests.hostile import ordinary_rights

HERE = Path(__file__).parent
FINDINGS: dict[str, tuple[str, ...]] = {
    "F1": ("models/test_programs.py::test_text_is_not_run", "models/test_programs.py::test_other_python_is_none"),
    "F2": ("test_attacks.py::test_f2_a_script_in_a_folder_writes_nothing",),
    "F3": (
        "audits/test_metamorphic.py::test_no_mutation_gives_an_old_number",
        "audits/test_stale.py::test_an_edited_model_is_refused",
    ),
    "F4": (
        "audits/test_metamorphic.py::test_no_mutation_gives_an_old_number",
        "data/images/test_folders.py::test_the_middle_of_a_file_counts",
    ),
    "F5": ("audits/test_gate.py::test_nothing_passes", "audits/test_gate.py::test_commands_say_so_and_end_with_1"),
    "F6": (
        "data/test_labels.py::test_numbers_that_are_no_indices_are_refused_and_not_sorted",
        "test_attacks.py::test_f6_labels_are_not_renumbered_in_silence",
    ),
    "F7": (
        "exports/test_writing.py::test_a_damaged_copy_is_repaired",
        "exports/test_writing.py::test_a_damaged_array_is_written_again",
    ),
    "F8": ("runs/test_store.py::test_a_lock_that_is_a_link_is_refused",),
    "F9": (
        "runs/test_drive.py::test_a_cell_that_ends_the_program_fails_alone",
        "test_attacks.py::test_f9_a_model_that_exits_fails_the_gate",
    ),
    "F11": ("audits/test_caveats.py::test_what_is_wrong_is_told_everywhere_and_again",),
    "F12": (
        "runs/test_store.py::test_a_damaged_row_is_told_and_measured_again",
        "runs/test_damage.py::test_three_flipped_bits_change_nothing_in_silence",
        "runs/test_store.py::test_files_have_the_permissions_that_the_user_asks_for",
        "audits/test_gate.py::test_gate_and_report_work",
        "test_attacks.py::test_f12_weights_that_cannot_be_read_are_told",
    ),
    "F13": ("data/images/test_folders.py::test_circles_between_classes_count_each_image_once",),
}


@pytest.mark.parametrize(("finding", "test"), [(finding, test) for finding, some in FINDINGS.items() for test in some])
def test_every_finding_has_its_tests(finding: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert re.search(rf"def {name}\(", (HERE / file).read_text()), f"{finding} is not tested any more"


class Writes(nn.Module):
    """A program that overwrites a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        held = torch.from_file(self.path, shared=True, size=2)
        held.fill_(0.0)
        return images.flatten(1)[:, :10] + held.sum()


def test_f2_a_script_in_a_folder_writes_nothing(tmp_path: Path) -> None:
    """Such a file may write where it is run, which is said; a folder of weights does not bring one along."""
    (tmp_path / "key").write_text("precious data here")
    given = tmp_path / "given"
    given.mkdir()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`torch.jit")
        torch.jit.save(torch.jit.script(Writes(str(tmp_path / "key"))), given / "net.bin")
    (given / "model.json").write_text(json.dumps({"model": str(given / "net.bin")}))
    save_file({"a": torch.zeros(1)}, given / "model.safetensors")
    with pytest.raises(ModelError, match="not opened"):
        shiftproof.audit(given, "demo", out=tmp_path / "out", images=4, sections=["clean"])
    assert (tmp_path / "key").read_text() == "precious data here"
    shiftproof.audit(given / "net.bin", "demo", out=tmp_path / "out", images=4, sections=["clean"])
    assert (tmp_path / "key").read_text() != "precious data here", "SECURITY.md says what it can do, and it can"


@pytest.mark.parametrize("labels", ["3.0 5.0 7.0 9.0", "3 5 7 -1", "3 5 7 unknown", "2 10 NaN 3"])
def test_f6_labels_are_not_renumbered_in_silence(labels: str, tmp_path: Path) -> None:
    rows = ["file,label"]
    for number, label in enumerate(labels.split()):
        Image.fromarray(np.full((8, 8, 3), 50 * number, np.uint8)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{label}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    with pytest.raises(DataError):
        shiftproof.load_data(tmp_path)


def test_f9_a_model_that_exits_fails_the_gate(tmp_path: Path) -> None:
    text = "import sys\n\ndef build():\n    def model(images):\n        if images.flatten(1).std(1).mean() < 0.1:\n"
    text += "            sys.exit(0)\n        return images.flatten(1)[:, :10]\n\n    return model\n"
    (tmp_path / "model.py").write_text(text)
    command = ["audit", "--model", str(tmp_path / "model.py"), "--images", "8", "--sections", "clean,corruptions"]
    command += ["--shifts", "contrast,fog,brightness", "--out", str(tmp_path / "out"), "--require", "corruptions > 0"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 3, result.output
    assert "SystemExit" in (tmp_path / "out" / "results.json").read_text()


def test_f12_weights_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.zeros(1)}, path)
    path.chmod(0o000)
    with ordinary_rights(), pytest.raises(ModelError, match=r"w\.safetensors"):
        shiftproof.load_model("convnet", weights=path)
