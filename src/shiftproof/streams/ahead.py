"""Generating ahead: on CUDA, while a model works on one batch, another thread makes the next in its own stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from queue import Empty, Full, Queue
from typing import TypeVar

import torch
from torch import Tensor

from shiftproof.data import Batch

Made = TypeVar("Made", bound=Batch[Tensor])

PREFETCH_BATCHES = 2
"""So many batches wait, unless told otherwise."""


def ahead(batches: Iterator[Made], device: torch.device, waiting: int = PREFETCH_BATCHES) -> Iterator[Made]:
    """Yield the same batches; on CUDA they are made while the caller computes. On a CPU both would share its cores.

    So many wait at most.
    """
    return _threaded(batches, device, waiting) if device.type == "cuda" else batches


@cache
def _side(device: torch.device) -> torch.cuda.Stream:
    """Return the stream that batches are made in: one for all, as memory that one stream has freed is not another's."""
    made: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return made


def _threaded(batches: Iterator[Made], device: torch.device, most: int) -> Iterator[Made]:
    waiting: Queue[tuple[Made, torch.cuda.Event] | BaseException | None] = Queue(maxsize=most)
    given_up = threading.Event()
    side = _side(device)

    def put(item: tuple[Made, torch.cuda.Event] | BaseException | None) -> None:
        while not given_up.is_set():
            with suppress(Full):
                waiting.put(item, timeout=0.1)
                return

    def produce() -> None:
        try:
            with torch.cuda.device(device), torch.cuda.stream(side):
                for batch in batches:
                    if given_up.is_set():
                        return
                    put((batch, side.record_event()))
            put(None)
        except BaseException as error:  # raised where the batches are used
            put(error)

    thread = threading.Thread(target=produce, name="shiftproof-stream", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = waiting.get(timeout=1.0)
            except Empty:
                continue
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            batch, made = item
            current = torch.cuda.current_stream(device)
            current.wait_event(made)
            for tensor in vars(batch).values():
                if isinstance(tensor, Tensor):
                    tensor.record_stream(current)  # its memory is not used anew before the caller is done with it
            yield batch
    finally:
        given_up.set()
        thread.join()
