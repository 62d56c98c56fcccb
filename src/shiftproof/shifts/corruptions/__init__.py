"""Corruptions at a severity: those of ImageNet-C, ImageNet-C-bar and what they are made of."""
