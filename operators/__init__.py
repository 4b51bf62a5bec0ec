"""Room: operators."""
