"""Started as a module."""
