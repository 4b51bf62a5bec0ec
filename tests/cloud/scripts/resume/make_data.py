"""Trains the first epochs: the script goes on with what they leave."""

import subprocess
import sys

subprocess.run(
    [sys.executable, "train.py", "--epochs", "2", "--checkpoint", "first.ckpt"], check=True
)
