"""Sets of images: from folders, arrays, CIFAR's files and Hugging Face, decoded once."""

from shiftproof.data.images.imageset import ImageSet, as_images

__all__ = ["ImageSet", "as_images"]
