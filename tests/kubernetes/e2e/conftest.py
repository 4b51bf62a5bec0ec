"""The suite that `make cluster` runs against the cluster of `$KUBECONFIG`; see docs/kubernetes.md."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.e2e.job import Job
from tests.kubernetes.e2e.site import Document, MissingVariable, Site, open_site

_HERE = Path(__file__).parent
_outcomes: dict[str, str] = {}
"""Test -> `passed` or `failed`, of this folder's tests only."""


@pytest.hookimpl(tryfirst=True)  # before pytest looks at -m
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    try:
        with open_site() as site:
            yield site
    except MissingVariable as missing:
        pytest.exit(str(missing), returncode=2)


@pytest.fixture
def jobs(site: Site, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Return what starts a job; what is left of its process is ended after the test."""
    made: list[Job] = []

    def start(document: Document, **keys: Any) -> Job:
        job = Job(keys.pop("site", site), tmp_path, document, **keys)
        made.append(job)
        return job.start()

    start.made = made  # type: ignore[attr-defined]  # for the report of a failed test
    yield start
    for job in made:
        job.clean()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show what the cluster and the run looked like when a test failed."""
    report = yield
    _count(report)
    values = getattr(item, "funcargs", {})
    if report.failed and "site" in values:
        for title, tell in _stories(values):
            try:
                text = tell()
            except Exception as error:  # noqa: BLE001 - the report must not hide the failure
                text = f"cannot be told: {error}"
            report.sections.append((title, text))
    return report


def _stories(values: dict[str, Any]) -> Iterator[tuple[str, Callable[[], str]]]:
    made = getattr(values.get("jobs"), "made", ())
    runs = [job.uid for job in made]
    yield "pods and events of the namespace", lambda: values["site"].story(runs)
    for job in made:
        yield f"run {job.run_id}: stderr", functools.partial(_stderr, job)
        yield f"run {job.run_id}: events", functools.partial(_events, job)


def _stderr(job: Job) -> str:
    return job.stderr


def _events(job: Job) -> str:
    return "\n".join(map(str, job.events()))


def _count(report: pytest.TestReport) -> None:
    if report.failed:
        _outcomes[report.nodeid] = "failed"
    elif report.when == "call" and report.passed:
        _outcomes.setdefault(report.nodeid, "passed")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """End with one line for whoever counts."""
    if _outcomes:
        counts = list(_outcomes.values())
        print(f"{counts.count('passed')} passed, {counts.count('failed')} failed")
