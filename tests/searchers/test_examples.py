"""Real black boxes: the examples run, and what they find is there."""

import sys

import pytest

from tests.examples import example


def test_a_haar_cascade_loses_faces_under_the_worst_tuple(tmp_path):
    pytest.importorskip("cv2", reason="opencv-python-headless ships the detector")
    pytest.importorskip("skimage", reason="scikit-image ships the faces")
    faces = example("search_faces")
    found = faces.run(budget=20, images=40, out=str(tmp_path))
    assert found.clean > 0.8
    assert found.worst < found.clean
    # What the search says of the worst tuple, the detector says of the images themselves.
    from shiftproof.searchers import read

    trace = read(tmp_path)["trace"]
    worst = trace.worst_tuples(1)[0]
    assert worst.score.fitness == found.worst
    assert (tmp_path / "worst.png").exists()


def test_an_onnx_file_is_searched_as_a_black_box(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnx", reason="the example writes an ONNX file")
    pytest.importorskip("onnxruntime", reason="it runs an ONNX file")
    onnx = example("search_onnx")
    monkeypatch.setattr(sys, "argv", ["search_onnx.py", "--budget", "20", "--out", str(tmp_path)])
    onnx.main()
    assert "under the worst chain" in capsys.readouterr().out
    found = onnx.run(tmp_path / "colours.onnx", budget=20, images=200)
    assert found.clean > 0.2
    assert found.worst < found.clean
