"""The examples of auditing run, and the notebook is whole."""

import importlib
import json
import sys

import pytest

from tests.examples import EXAMPLES, example

NOTEBOOK = json.loads((EXAMPLES / "audit.ipynb").read_text("utf-8"))
CODE = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_a_model_of_ones_own_on_arrays_of_ones_own(tmp_path):
    result = example("audit_custom").run(tmp_path, images=60)
    assert result.numbers["clean_accuracy"] > 0.2  # colours alone tell more than chance, 0.1
    assert "nearest colours" in repr(result)
    assert not result.failed


def test_an_onnx_file_is_audited_and_says_what_cannot_be_asked(tmp_path, capsys):
    pytest.importorskip("onnx", reason="the example of search writes an ONNX file")
    pytest.importorskip("onnxruntime", reason="it runs an ONNX file")
    path = example("search_onnx").write_classifier(tmp_path / "colours.onnx")
    options = ["--images", "60", "--shifts", "contrast", "--sections", "clean", "corruptions", "adaptation"]
    example("audit_onnx").main([str(path), "demo", *options, "--out", str(tmp_path / "run")])
    said = capsys.readouterr().out
    assert "contrast" in said
    assert "Test-time adaptation: The model is a black box" in said


@pytest.mark.parametrize(("name", "package"), [("audit_torchvision", "torchvision"), ("audit_timm", "timm")])
def test_a_package_that_is_missing_is_named_with_what_to_do(name, package, tmp_path, monkeypatch):
    try:
        importlib.import_module(package)
        pytest.skip(f"{package} is installed; its weights would be downloaded")
    except (ImportError, RuntimeError):
        pass
    model = ["resnet50.a1_in1k"] if package == "timm" else []
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "demo", *model, "--size", "32", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=package) as stopped:
        example(name).main()
    assert "install" in str(stopped.value)


def test_the_notebook_is_executed_small_and_of_no_machine():
    cells = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds == {"execute_result", "display_data", "stream"}  # and no error
    text = json.dumps(NOTEBOOK)
    assert len(text) < 100_000
    assert "/tmp" not in text
    assert "/home" not in text


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for source in CODE:
        exec(compile(source, "audit.ipynb", "exec"), known)
    said = capsys.readouterr().out
    before, after = (float(line.split(": ")[1].rstrip("%")) for line in said.splitlines()[-2:])
    assert after > before + 20
