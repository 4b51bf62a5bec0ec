"""Makes samples of different lengths."""

import json
import random
from pathlib import Path

random.seed(8)
Path("samples").mkdir()
for number in range(40):
    tokens = [random.randrange(50) for _ in range(random.randrange(3, 12))]
    Path("samples", f"{number}.json").write_text(
        json.dumps({"tokens": tokens, "label": sum(tokens) % 2})
    )
