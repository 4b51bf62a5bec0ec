"""Metrics: which numbers a line says, what they mean, and the series they make."""
