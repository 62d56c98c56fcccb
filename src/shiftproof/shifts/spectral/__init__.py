"""Noise and mixing defined by frequencies."""
