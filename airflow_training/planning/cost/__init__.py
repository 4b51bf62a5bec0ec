"""What a strategy costs: seconds of a step and bytes of a device."""
