"""Runs the pure tests in two processes that share the rooms: `python -m tests.gate.halves --durations 50`.

Two workers of pytest-xdist would each import all tests, with torch and Airflow, and have numba compile: that
takes longer than the first of the halves waits for the other.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from tests.gate.tiers import HALVES, ROOT

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run both halves to their end, the first before the eyes; return an exit code that is 0 if both were green."""
    with tempfile.TemporaryFile() as kept:
        command = [sys.executable, "-m", "pytest", *arguments, "-m", "pure", "--half"]
        first, second = HALVES
        hidden = subprocess.Popen([*command, second], cwd=ROOT, stdout=kept, stderr=kept)
        try:
            code = subprocess.run([*command, first], cwd=ROOT, check=False).returncode
            code = hidden.wait() or code
        finally:
            hidden.kill()
        kept.seek(0)
        print(kept.read().decode(errors="replace"), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
