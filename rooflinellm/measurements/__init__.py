"""Measured results: readers of benchmark output, and what of this library's a result is to be compared with."""

from rooflinellm.measurements.readers import read
from rooflinellm.measurements.resolver import Resolved, Skip, resolve
from rooflinellm.measurements.row import Row
from rooflinellm.measurements.workload import Quantity

__all__ = ["Quantity", "Resolved", "Row", "Skip", "read", "resolve"]
