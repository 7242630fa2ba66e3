"""Efficiency profiles: how far real runs stay from the roofline."""
