"""Room: triggers."""
