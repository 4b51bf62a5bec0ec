"""Which environment of a target a script runs in. Pure: told what the target has, and what its cache holds.

In this order: an image that satisfies the record; an image with an environment of that digest from the cache; one
that is built; else refused, with each difference and what mends it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from packaging.utils import canonicalize_name

from airflow_training.documents.text import counted
from airflow_training.environments.addresses import public_url
from airflow_training.environments.catalogue import CatalogueImage, EnvironmentCatalogue
from airflow_training.environments.differences import (
    EnvironmentMismatch,
    check_available,
    compare,
    is_needed,
)
from airflow_training.environments.framework_builds import (
    framework_of,
    has_accelerator_builds,
    is_accelerator_label,
)
from airflow_training.environments.model import InstalledDistribution, PythonEnvironment
from airflow_training.errors import InputError, Problem

__all__ = ["Match", "MatchKind", "match"]

MatchKind = Literal["image", "on_top", "own"]
"""The image as it is; a folder of packages on top of the image's; one that uses the image's Python alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Where a script runs, and all that is not as it was recorded."""

    image: CatalogueImage
    kind: MatchKind
    differences: Sequence[EnvironmentMismatch] = ()
    requirements: Sequence[str] = ()
    """Lines of a requirements file, sorted: what is installed, each with its exact version and its hashes."""
    resolve: bool = False
    """Whether others that these need there are installed too: on another platform, and for another build."""
    cached: bool = False

    @property
    def description(self) -> str:
        """One line for people: `torch:2.9 (/usr/bin/python3) with 2 distributions on top, which is in the cache`."""
        count = counted(len(self.requirements), "distribution")
        made = {
            "image": "as it is",
            "on_top": f"with {count} on top",
            "own": f"with an environment of its own of {count}",
        }
        there = ", which is in the cache" if self.cached else ""
        return f"{self.image.name} ({self.image.python}) {made[self.kind]}{there}"

    @property
    def digest(self) -> str:
        """Of the environment that is made for it: the same for all that ask for the same. Empty for an image."""
        if self.kind == "image":
            return ""
        base = self.image.record
        basis: list[Any] = [self.image.python, base.python, base.implementation, base.free_threaded]
        basis += [base.platform, base.libc, self.resolve, *self.requirements]
        if self.kind == "on_top":
            basis += [self.image.name, base.digest]
        return hashlib.sha256(json.dumps([self.kind, *basis]).encode()).hexdigest()

    def to_json(self) -> Mapping[str, Any]:
        return {
            "image": self.image.name,
            "kind": self.kind,
            "digest": self.digest,
            "cached": self.cached,
            "requirements": [*self.requirements],
            "differences": [each.to_json() for each in self.differences],
        }


def match(
    record: PythonEnvironment,
    catalogue: EnvironmentCatalogue,
    cached: Collection[str] = (),
    *,
    leave_out: Collection[str] = (),
    only_adds: bool = False,
) -> Match:
    """Choose where a script of this record runs.

    `cached` are the digests that the target has built before, `leave_out` names of distributions that the script
    does without, `only_adds` where the target makes no environment without the image's packages. Raises InputError with
    a problem for each difference of the image that comes closest.
    """
    found = [_match(record, image, leave_out, only_adds=only_adds) for image in catalogue.images]
    found = [replace(each, cached=each.digest in cached) for each in found]
    if not catalogue.builds:
        found = [each if each.cached else _refused(each) for each in found]
    if not found:
        raise InputError.of(
            code="bad_reference", field="environment", message="the target offers no Python at all"
        )
    best = min(found, key=_cost)
    refused = [each for each in best.differences if each.outcome == "refused"]
    if refused:
        raise InputError(problems=[_problem(each, best.image) for each in refused])
    return best


def _match(
    record: PythonEnvironment,
    image: CatalogueImage,
    leave_out: Collection[str],
    *,
    only_adds: bool,
) -> Match:
    leave_out = {canonicalize_name(name) for name in leave_out}
    differences = compare(record, image.record, leave_out=leave_out)
    if only_adds:
        differences = [_added_or_refused(each) for each in differences]
    outcomes = {each.outcome for each in differences}
    if not outcomes & {"installed", "rebuilt"}:
        return Match(image=image, kind="image", differences=differences)
    own = "rebuilt" in outcomes
    if own:
        differences = [
            replace(each, outcome="rebuilt")
            if each.outcome == "installed" or each.kind == "version"
            else each
            for each in differences
        ]
        named = {each.name for each in differences} | leave_out
        for each in (
            record.distributions
        ):  # what only the image has: there it is the same, and stays behind
            if each.name not in named and is_needed(each, image.record):
                lost = check_available(each, None)
                differences += [lost] if lost else []
    names = {each.name for each in differences if each.outcome in ("installed", "rebuilt")}
    exact = {
        each.name for each in differences if each.kind == "build" and each.outcome == "rebuilt"
    }
    rows = [
        each
        for each in record.distributions
        if each.name not in leave_out
        and (own or each.name in names)
        and is_needed(each, image.record)
        and each.origin not in ("folder", "editable")
    ]
    other_platform = any(each.name == "platform" for each in differences)
    relabelled = own and any(
        framework_of(each.name) and each.label and each.name not in exact for each in rows
    )
    return Match(
        image=image,
        kind="own" if own else "on_top",
        differences=differences,
        requirements=sorted(_requirement(each, exact) for each in rows),
        resolve=other_platform or relabelled,
    )


def _added_or_refused(each: EnvironmentMismatch) -> EnvironmentMismatch:
    """Of what an environment without the image's packages would have: what is added to them replaces none of them."""
    if each.outcome != "rebuilt":
        return each
    adds = each.kind == "missing" and not has_accelerator_builds(each.name)
    return replace(each, outcome="installed" if adds else "refused")


def _requirement(each: InstalledDistribution, exact: Collection[str]) -> str:
    """Return the line that installs it; hashes of one accelerator's files say nothing about another's."""
    hashes = "".join(f" --hash={digest}" for digest in sorted(each.hashes))
    if each.origin == "git":
        address, mark, folder = each.url.partition("#")
        return f"{each.name} @ git+{public_url(address)}@{each.commit}{mark}{folder}"
    if each.origin == "archive":
        return f"{each.name} @ {public_url(each.url)}{hashes}"
    if is_accelerator_label(each.label) and each.name not in exact:
        return f"{each.name}=={each.public_version}"
    return f"{each.name}=={each.version}{hashes}"


def _refused(found: Match) -> Match:
    """Nothing is built there: what would be installed is refused."""
    return replace(
        found,
        differences=[
            replace(each, outcome="refused") if each.outcome in ("installed", "rebuilt") else each
            for each in found.differences
        ],
    )


def _cost(found: Match) -> tuple[int, int, int, int]:
    outcomes = [each.outcome for each in found.differences]
    ready = found.kind == "image" or found.cached
    return (
        outcomes.count("refused"),
        ("image", "on_top", "own").index(found.kind) if not found.cached else 1,
        not ready,
        len(outcomes),
    )


def _problem(each: EnvironmentMismatch, image: CatalogueImage) -> Problem:
    there = f"{image.name} has {each.target}" if each.target else f"{image.name} has none"
    return Problem(
        code="environment_difference",
        field=each.name,
        message=f"{each.local} here, {there}",
        value=each.local,
        allowed=(each.target,) if each.target else (),
        hint=each.fix,
    )
