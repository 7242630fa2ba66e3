"""Measured results: readers of benchmark output, and what of this library's a result is to be compared with."""
