"""A small extension of Shiftproof: one of each kind of thing that a package can add."""
