"""Settings of the whole suite."""

import gc
import os
import tempfile

from hypothesis import settings

# What is remembered of users' files stays out of the cache folder of whoever runs the tests.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="shiftproof-tests-")

# No test asserts a time, and first calls import lazily, so there is no deadline; CI replays the same examples.
settings.register_profile("shiftproof", deadline=None, derandomize=bool(os.environ.get("CI")), max_examples=40)
settings.register_profile("thorough", settings.get_profile("shiftproof"), max_examples=400)  # make test-thorough
settings.load_profile(os.environ.get("SHIFTPROOF_EXAMPLES", "shiftproof"))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what was imported: it stays, and to go through it takes long."""
    gc.collect()
    gc.freeze()
