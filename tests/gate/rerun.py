"""Runs pytest; what failed is run once more, alone: `python -m tests.gate.rerun -n 2 -m scenario`.

Tests with real processes can miss a moment on a busy machine, though nothing is broken; what is
broken fails again. What passes then is told as `FLAKY <test>: <its first failure>`: more than two of
these in one run are no chance any more, and a test that is told often is to be mended.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from tests.gate.tiers import AIRFLOW, ROOT

__all__ = ["main"]

MOST_FLAKY = 2


@dataclass
class FailureReport:
    """Keeps why each test failed first; a plugin of pytest."""

    reasons: dict[str, str] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            test = report.nodeid.removesuffix(f"@{AIRFLOW}")  # so pytest-xdist names its group
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash is not None else str(report.longrepr)
            self.reasons.setdefault(test, (reason.strip().splitlines() or [""])[0])


def main(arguments: list[str]) -> int:
    """Run pytest with `arguments`; return its exit code, or 0 if what failed passed at a second try."""
    failures = FailureReport()
    code = int(pytest.main(arguments, plugins=[failures]))
    if code != pytest.ExitCode.TESTS_FAILED or not failures.reasons:
        return code
    if len(failures.reasons) > MOST_FLAKY:
        print(f"{len(failures.reasons)} tests failed: too many to try them again")
        return code
    flaky = 0
    for test, reason in failures.reasons.items():
        print(f"once more, alone: {test}", flush=True)
        again = subprocess.run([sys.executable, "-m", "pytest", test], cwd=ROOT, check=False)
        if again.returncode == 0:
            flaky += 1
            print(f"FLAKY {test}: {reason}", flush=True)
    return 0 if flaky == len(failures.reasons) else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
