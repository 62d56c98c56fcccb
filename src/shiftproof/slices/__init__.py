"""Which images a model fails on: results image by image, weak slices of them, and data that passes for shift."""

from shiftproof.slices.binning import Attribute, attributes
from shiftproof.slices.data_quality import DataQuality, LabelError, check_quality, find_label_errors
from shiftproof.slices.fiftyone_files import read_fiftyone, write_fiftyone
from shiftproof.slices.image_results import AnswerCondition, Answered, ImageTable, failures, image_table, image_tables
from shiftproof.slices.image_statistics import image_statistics
from shiftproof.slices.metadata import file_columns, read_columns
from shiftproof.slices.result_files import copy_failures, read_csv, write_table, write_tables
from shiftproof.slices.weak_slices import WeakSlice, WeakSlices, find_weak_slices

__all__ = [
    "AnswerCondition",
    "Answered",
    "Attribute",
    "DataQuality",
    "ImageTable",
    "LabelError",
    "WeakSlice",
    "WeakSlices",
    "attributes",
    "check_quality",
    "copy_failures",
    "failures",
    "file_columns",
    "find_label_errors",
    "find_weak_slices",
    "image_statistics",
    "image_table",
    "image_tables",
    "read_columns",
    "read_csv",
    "read_fiftyone",
    "write_fiftyone",
    "write_table",
    "write_tables",
]
