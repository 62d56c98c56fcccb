"""What to throw at a parser: arbitrary bytes, sound files that were damaged, and JSON with a value replaced."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st

from shiftproof.errors import ShiftproofError

CORPUS = Path(__file__).with_name("corpus")
"""Files that once were too much for a parser, or might be, in a folder for each: they are tried again for ever."""

SECONDS = float(os.environ.get("SHIFTPROOF_FUZZ_SECONDS", "0"))
"""How long each parser is attacked by `make fuzz`; 0 is a number of examples instead."""

PATIENCE = 120
"""Seconds after which one example counts as a hang."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["fog", "fog@3", "../x", "contrast", "resnet20", -1, 0, 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """Return a sound file after some cuts, changed bytes, repetitions and insertions; or bytes out of nowhere."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.binary(max_size=200))
    content = bytearray(sound)
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(0, len(content)))
        last = min(len(content), first + draw(st.integers(0, 64)))
        match draw(st.sampled_from(["cut", "change", "insert", "repeat", "end"])):
            case "cut":
                del content[first:last]
            case "change" if first < len(content):
                content[first] = draw(st.integers(0, 255))
            case "insert":
                content[first:first] = draw(st.binary(max_size=16))
            case "repeat":
                content[first:first] = content[first:last]
            case "end":
                del content[first:]
    return bytes(content)


@st.composite
def altered(draw: st.DrawFn, sound: bytes) -> bytes:
    """Return a JSON file with one of its values, at any depth, replaced or taken out; or a damaged one."""
    if draw(st.integers(0, 3)) == 0:
        return draw(damaged(sound))
    content = copy.deepcopy(json.loads(sound))
    places = list(_places(content))
    holder, key = places[draw(st.integers(0, len(places) - 1))]
    if draw(st.booleans()):
        holder[key] = draw(JSON)
    else:
        del holder[key]
    return json.dumps(content).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield everything in a JSON value as what holds it and where."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in inside:
        yield value, key
        yield from _places(held)


def survive(parse: Callable[[], object]) -> None:
    """Parse: an error that says what to do, or a warning, is as good as a result; all else, or a hang, is a fault."""
    with patience(), suppress(ShiftproofError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        parse()


def keep(target: str, content: bytes) -> None:
    """Put what a parser did not survive into the corpus."""
    path = CORPUS / slug(target) / f"{hashlib.sha256(content).hexdigest()[:16]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def kept(target: str) -> list[bytes]:
    """Return the corpus of a parser."""
    return [path.read_bytes() for path in sorted((CORPUS / slug(target)).glob("*"))]


def slug(target: str) -> str:
    """Return the name of a target's folder."""
    return target.replace(" ", "-").lower()


def attack(once: Callable[[], None], examples: int) -> None:
    """Run a property of hypothesis on so many examples, or by `make fuzz` on new ones until the time is over."""
    given = settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)(once)
    if not SECONDS:
        return given()
    end, number = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        seed(number)(given)()
        number += 1
    return None


@contextmanager
def patience() -> Iterator[None]:
    """Raise where the work inside takes so long that it hangs."""

    def hangs(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
