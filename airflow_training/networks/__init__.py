"""Networks described as layers: checked, their shapes inferred, written as PyTorch. Never imports torch."""

from pkgutil import extend_path

# an agent brings the trainer alone to its instance: the rest is that of an installation, where there is one
__path__ = extend_path(__path__, __name__)
