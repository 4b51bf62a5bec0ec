"""Room: planning."""
