"""Room: sensors."""
