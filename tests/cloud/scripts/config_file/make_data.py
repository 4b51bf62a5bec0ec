"""Makes the values that the configuration names."""

import os

import numpy as np

os.makedirs("data")
np.save("data/values.npy", np.random.default_rng(9).normal(size=(320, 6)).astype("float32"))
