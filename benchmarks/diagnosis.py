"""How often a diagnosis is right, over folders of real failure logs: `python -m benchmarks.diagnosis [FOLDER...]`.

A folder holds `<id>/<case>.yaml` beside `<case>.log` or `<case>/*.log`, as `tests/logs/causes` does;
cases under `healthy` must be called healthy. Without a folder it is `tests/logs/unseen`: logs that were
collected and labelled before anything had been run on them. Cases that were used to write signatures
say nothing about logs that nobody has seen: measure with others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from airflow_training.logs.diagnosis.catalogue import Catalogue, load
from airflow_training.logs.model import Diagnosis
from tests.logs.fixtures import HERE, Case, cases

_SURE = 0.8
OURS = [HERE / "unseen"]


@dataclass(frozen=True)
class Outcome:
    case: Case
    found: Diagnosis

    @property
    def healthy_case(self) -> bool:
        return "id" not in self.case.expect

    @property
    def first(self) -> str:
        return self.found.causes[0].id if self.found.causes else "healthy"

    @property
    def confidence(self) -> float:
        return self.found.causes[0].confidence if self.found.causes else 0.0

    @property
    def right(self) -> bool:
        return bool(self.first == self.case.expect["id"])

    @property
    def in_three(self) -> bool:
        return self.case.expect["id"] in [each.id for each in self.found.causes[:3]]

    @property
    def proved(self) -> bool:
        """Return whether rank and line are those of the root, as far as the case tells them."""
        return bool(self.found.causes) and self.case.denied_by(self.found.causes[0]).keys() <= {
            "id"
        }


def report(outcomes: Iterable[Outcome], *, verbose: bool) -> None:
    """Print the table, and with `verbose` every case that is not right."""
    all_of_them = list(outcomes)
    failed = [each for each in all_of_them if not each.healthy_case]
    healthy = [each for each in all_of_them if each.healthy_case]
    wrong = [each for each in failed if not each.right]
    rows = [
        ("first answer right", sum(each.right for each in failed), len(failed), ">= 90 %"),
        ("in the first three", sum(each.in_three for each in failed), len(failed), ">= 97 %"),
        ("root rank and line right", sum(each.proved for each in failed), len(failed), ">= 85 %"),
        (
            f"wrong with confidence >= {_SURE}",
            sum(each.confidence >= _SURE for each in wrong),
            len(failed),
            "<= 2 %",
        ),
        (
            "healthy logs called failed",
            sum(not each.found.healthy for each in healthy),
            len(healthy),
            "0",
        ),
    ]
    for name, number, of, target in rows:
        share = f"{100 * number / of:5.1f} %" if of else "      -"
        print(f"{name:<32} {share}  ({number} of {of})   target {target}")
    if verbose:
        for each in failed:
            if not (each.right and each.proved):
                _print_case(each)
        for each in healthy:
            if not each.found.healthy:
                _print_case(each)


def _print_case(outcome: Outcome) -> None:
    print(f"\n{outcome.case.name}: expected {dict(outcome.case.expect)}")
    for each in outcome.found.causes:
        where = f"{(each.file or '').rpartition('/')[2]}:{each.line} rank {each.rank}"
        print(f"    {each.confidence:.2f} {each.id}  {where}  {each.evidence[:110]}")


def measure(folders: Iterable[Path], catalogue: Catalogue) -> list[Outcome]:
    return [
        Outcome(case=case, found=case.diagnose(catalogue))
        for folder in folders
        for case in cases(folder)
        if case.files
    ]


def main() -> None:
    """Print the table for the logs that no signature was written from."""
    print("Diagnosis of tests/logs/unseen, which was labelled before anything had been run on it")
    print("(what was missed then was mended; the first figures of each set are in docs/logs.md):")
    report(measure(OURS, load()), verbose=False)


def command() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", default=OURS)
    parser.add_argument("--causes", type=Path, help="a folder of own cause files")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what is not right")
    arguments = parser.parse_args()
    outcomes = measure(arguments.folders, load(arguments.causes))
    report(outcomes, verbose=arguments.verbose)


if __name__ == "__main__":
    command()
