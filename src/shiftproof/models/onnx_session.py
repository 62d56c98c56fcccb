"""ONNX files as black boxes, on onnxruntime."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shiftproof.errors import ConfigurationError, ModelError
from shiftproof.models.blackbox import BlackBox
from shiftproof.models.input_size import InputSize, with_input_size
from shiftproof.models.onnx_files import digest_files
from shiftproof.models.outputs import MADE_FOR

_PRECISIONS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_LEVELS = "tensor(uint8)"
_TYPES = {**_PRECISIONS, _LEVELS: np.uint8}
_CHANNELS = (1, 3)


class _Node(Protocol):
    """An input or output of a file: its name, the type of its numbers, and its sizes, or names of those not fixed."""

    name: str
    type: str
    shape: list[int | str | None]


class OnnxSession:
    """A function over an ONNX file: images [N, C, H, W] in [0, 1] to its scores [N, K], or [N, C, h, w].

    A file made for batches of one fixed size gets batches of that size; the last is filled up and cut again. One that
    takes channels last (TensorFlow's order) gets them last, and scores of pixels are taken to have their classes last
    too, unless their declared shape says otherwise. One that takes uint8 gets levels of 0 to 255. The session is opened
    anew where the object is unpickled. `output` is the name or the number of the scores among what the file puts out;
    without it they are its only float output of their shape. Scores that were chosen are returned by that name, for
    `as_logits` to take.
    """

    def __init__(
        self, path: str | Path, *, device: torch.device | str = "cpu", output: str | int | None = None
    ) -> None:
        self.path = Path(path)
        self.chosen = output
        self.device = torch.device(device)
        self._session = _open(self.path, self.device)
        try:
            self._input = self._the_input()
            self._output, (_, *scores) = self._the_output()
        except UnicodeDecodeError as error:  # which ONNX Runtime lets pass
            raise ModelError(
                f"The ONNX model {self.path.name!r} is damaged.", expected="names in UTF-8", got=str(error)
            ) from error
        batch, *shape = self._input.shape
        self._batch = batch if isinstance(batch, int) else None
        self._channels_last = shape[0] not in _CHANNELS and shape[2] in _CHANNELS
        self._shape = [shape[2], *shape[:2]] if self._channels_last else shape
        first, last = scores[1:] == self._shape[1:], scores[:2] == self._shape[1:]
        self._classes_last = len(scores) == 3 and (last if first != last else self._channels_last)

    @property
    def side(self) -> int | None:
        """The side of the images it takes, in pixels; None where it takes several sizes, or no squares."""
        _, height, width = self._shape
        return width if isinstance(width, int) and height == width else None

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.path, self.device, self.chosen)

    @property
    def takes_levels(self) -> bool:
        """Whether it takes levels of 0 to 255."""
        return self._input.type == _LEVELS

    def __call__(self, images: Tensor) -> NDArray[np.floating[Any]] | dict[str | int, NDArray[np.floating[Any]]]:
        """Return the scores of a batch."""
        wanted, got = self._shape, tuple(images.shape[1:])
        if any(isinstance(size, int) and size != have for size, have in zip(wanted, got, strict=True)):
            raise ModelError(
                f"The images do not fit the ONNX model {self.path.name!r}.",
                expected=f"{' x '.join(map(str, wanted))} (channels, height, width)",
                got=" x ".join(map(str, got)),
                fix=MADE_FOR if self.side is None else f"{MADE_FOR}: --size {self.side}",
            )
        scores = self._run_all(self._as_taken(images))
        return scores if self.chosen is None else {self.chosen: scores}

    def _run_all(self, array: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the scores of images in batches of the size that the file takes."""
        if self._batch is None:
            return self._run(array)
        parts = []
        for start in range(0, len(array), self._batch):
            part = array[start : start + self._batch]
            filled = np.concatenate([part, np.repeat(part[-1:], self._batch - len(part), axis=0)])
            parts.append(self._run(filled)[: len(part)])
        return np.concatenate(parts)

    def _as_taken(self, images: Tensor) -> NDArray[Any]:
        """Return images in the order of channels and in the numbers that the file takes."""
        array = images.permute(0, 2, 3, 1).numpy() if self._channels_last else images.numpy()
        if self.takes_levels:
            array = np.clip(np.rint(array * 255), 0, 255)
        taken: NDArray[Any] = np.ascontiguousarray(array, _TYPES[self._input.type])
        return taken

    def _run(self, array: NDArray[Any]) -> NDArray[np.floating[Any]]:
        scores: NDArray[np.floating[Any]] = self._session.run([self._output], {self._input.name: array})[0]
        return np.moveaxis(scores, -1, 1) if self._classes_last else scores

    def _the_input(self) -> _Node:
        inputs: list[_Node] = self._session.get_inputs()
        if len(inputs) == 1 and inputs[0].type in _TYPES and len(inputs[0].shape) == 4:
            return inputs[0]
        raise ModelError(
            f"The ONNX model {self.path.name!r} does not take a batch of images.",
            expected="one input N x C x H x W or N x H x W x C: floats in [0, 1], or uint8",
            got=_listed(inputs),
            fix="export it with that input, or call it from your own function in file.py:build",
        )

    def _the_output(self) -> tuple[str, list[int | str | None]]:
        """Return the name and the shape of the output that holds scores."""
        outputs: list[_Node] = self._session.get_outputs()
        if self.chosen is None:
            floats = [output for output in outputs if output.type in _PRECISIONS]
            scores = [output for output in floats if len(output.shape or (0, 0)) == 2]
            scores = scores or [output for output in floats if len(output.shape) == 4]  # of a segmenter
        else:
            scores = self._named(outputs)
        if len(scores) == 1:
            return scores[0].name, scores[0].shape or [None]
        raise ModelError(
            f"The ONNX model {self.path.name!r} does not say which output is the logits.",
            expected="one float output N x K, or N x C x H x W or N x H x W x C of a segmenter",
            got=_listed(outputs),
            fix="name it: --output NAME, output= in Python",
        )

    def _named(self, outputs: list[_Node]) -> list[_Node]:
        """Return the output that was asked for, by its name or its number."""
        named = [output for output in outputs if output.name == str(self.chosen)]
        if named:
            return named
        with suppress(ValueError, IndexError):
            return [outputs[int(self.chosen or 0)]]
        raise ModelError(
            f"The ONNX model {self.path.name!r} has no output {self.chosen!r}.",
            expected="the name of one of its outputs, or its number from 0",
            got=_listed(outputs),
        )


def load_onnx(
    path: str | Path, *, device: torch.device | str = "cpu", output: str | int | None = None, normalized: bool = False
) -> BlackBox:
    """Return an ONNX file as a black box; its fingerprint is that of the bytes of the file and its external data.

    `normalized` says that it is to get images that were normalised, which one that takes uint8 cannot.
    """
    path = Path(path)
    session = OnnxSession(path, device=device, output=output)
    if normalized and session.takes_levels:
        raise ConfigurationError(
            f"The ONNX model {path.name!r} takes uint8, and no normalised images.",
            expected="a model that normalises the levels of 0 to 255 itself",
            got="mean and std",
            fix="leave out --mean and --std",
        )
    try:
        content = digest_files(path)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"Cannot read the ONNX model {str(path)!r}.",
            expected="a whole ONNX file, with its external data beside it where it has any",
            got=str(error),
        ) from error
    box = BlackBox(session, name=path.name, fingerprint=content)
    return with_input_size(box, None if session.side is None else InputSize(session.side, session.side))


def _open(path: Path, device: torch.device) -> Any:
    try:
        import onnxruntime as runtime
    except (ImportError, RuntimeError) as error:
        raise ModelError(
            f"Reading {path.name!r} needs onnxruntime.",
            got=f"{type(error).__name__}: {error}",
            fix="pip install 'shiftproof[onnx]'",
        ) from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    if device.type == "cuda" and "CUDAExecutionProvider" in runtime.get_available_providers():
        providers.insert(0, "CUDAExecutionProvider")
    try:
        return runtime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime's own exceptions share no base class but this
        lines = str(error).splitlines() or ["no message"]
        raise ModelError(
            f"Cannot open the ONNX model {str(path)!r}.",
            expected="a whole ONNX file, with its external data beside it where it has any",
            got=f"{type(error).__name__}: {lines[0]}",
        ) from error


def _reopen(path: Path, device: torch.device, output: str | int | None) -> OnnxSession:
    return OnnxSession(path, device=device, output=output)


def _listed(values: list[_Node]) -> str:
    return "; ".join(f"{value.name}: {value.type} {list(value.shape or ())}" for value in values)
