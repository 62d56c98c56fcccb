"""A small extension of Shiftproof: a shift, a method of adaptation and a section of the audit."""
