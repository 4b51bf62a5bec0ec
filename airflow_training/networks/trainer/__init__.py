"""Trains any network of layers, on any number of ranks: what a job with `spec.trainer` runs.

Runs inside the image of the training: torch and numpy, and of this package what agents bring along.
"""
