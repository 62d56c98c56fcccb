"""The questions of an audit of a segmenter: the same as of a classifier, asked of every pixel."""
