"""Checkpoints of a training process."""
