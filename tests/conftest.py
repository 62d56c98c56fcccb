"""Settings of the whole suite."""

import os

from hypothesis import settings

# No test asserts a time, and first calls import lazily, so there is no deadline; CI replays the same examples.
settings.register_profile("shiftproof", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("shiftproof")
