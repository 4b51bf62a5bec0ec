"""Networks described as layers: checked, their shapes inferred, written as PyTorch. Never imports torch."""
