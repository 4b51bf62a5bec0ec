"""From one layout of tensors to another: the cheapest steps."""
