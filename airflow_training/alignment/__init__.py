"""Whether a split training is the serial one: operators, gradients and parameters, compared step by step."""
