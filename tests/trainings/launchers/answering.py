"""A JSON case a line on standard input, one answer a line on standard output. Standard library only."""

import json
import os
import sys

# What the programs print goes elsewhere, so that answers stand alone. Before they are imported.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(understood):
    """Answer each case with what was understood, or why the program refused it."""
    for line in sys.stdin:
        try:
            said = understood(json.loads(line))
        except SystemExit:
            said = {"refused": "the parser ended"}
        except (AssertionError, ValueError, RuntimeError) as error:
            said = {"refused": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), file=_answers, flush=True)
