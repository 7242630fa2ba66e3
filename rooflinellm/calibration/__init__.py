"""Fit efficiency profiles to measured results, and score them on results they have not seen."""
