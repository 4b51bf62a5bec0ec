"""Makes a text."""

from pathlib import Path

Path("corpus").mkdir()
words = "the sea is wide and the wind is cold and nobody knows where the small ship goes".split()
text = " ".join(words[(number * number + number // 3) % len(words)] for number in range(600))
Path("corpus/input.txt").write_text(text)
