"""Room: frameworks."""
