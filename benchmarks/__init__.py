"""Benchmarks: `python -m benchmarks [NAME ...]` prints figures and, where a peer exists, ratios."""
