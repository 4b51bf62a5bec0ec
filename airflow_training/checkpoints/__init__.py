"""Checkpoints of training scripts. Names are loaded on first use: an image may lack what some need."""
