"""A job whose training is described, not written: its network, and what its instances are told."""
