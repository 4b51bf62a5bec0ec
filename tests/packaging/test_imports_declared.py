"""Every distribution that the package imports is one that it declares."""

from __future__ import annotations

import re
import sys
from importlib.metadata import packages_distributions, requires

from packaging.requirements import Requirement

from tests.test_rooms import NAME, imports, modules

OF_THE_TRAINING = {"keras", "lightning", "transformers", "xgboost"}
"""Frameworks whose callbacks we are: imported only inside a training that uses them."""

BRINGS = {"apache-airflow": {"apache-airflow-core", "apache-airflow-task-sdk"}}
"""A distribution that is nothing but others."""


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared() -> set[str]:
    declared = set()
    for text in requires("airflow-training") or ():
        requirement = Requirement(text)
        if 'extra == "dev"' not in str(requirement.marker) or "cncf-kubernetes" in text:
            name = _normal(requirement.name)
            declared |= {name, *BRINGS.get(name, ())}
    return declared


def test_every_import_is_declared():
    owners = packages_distributions()
    used: dict[str, str] = {}
    for path in modules():
        for line, name in imports(path):
            top = name.split(".")[0]
            if top not in sys.stdlib_module_names and top != NAME:
                used.setdefault(top, f"{path}:{line}")
    declared = _declared()
    missing = {
        top: where
        for top, where in used.items()
        if top not in OF_THE_TRAINING
        and not declared & {_normal(owner) for owner in owners.get(top, [top])}
    }
    assert missing == {}
