"""Progress files as scripts really write them: half lines, garbage, odd types."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.control.reports import ProgressReport
from airflow_training.runtimes.folders.environment import expand, inherited
from airflow_training.runtimes.progress import progress_of


def newest_progress(path: Path) -> ProgressReport | None:
    """Return what a progress file says, as a watcher is told."""
    document = NewestProgress(path).poll()
    return progress_of(document) if document else None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param('{"step": 1}\n{"step": 2}\n', ProgressReport(step=2), id="the-last-line"),
        pytest.param('{"step": 1}\n{"step": 2', ProgressReport(step=1), id="half-written"),
        pytest.param('{"step": 1}\nnot json\n', ProgressReport(step=1), id="garbage"),
        pytest.param('{"step": 1}\n[1]\n', ProgressReport(step=1), id="no-mapping"),
        pytest.param('{"step": true, "epoch": 0.5}\n', ProgressReport(epoch=0.5), id="no-number"),
        pytest.param(
            '{"step": 3.0, "metrics": {"loss": 1, "name": "x"}}\n',
            ProgressReport(step=3, metrics={"loss": 1.0}),
            id="metrics-are-numbers",
        ),
        pytest.param(
            '{"step": Infinity, "total_steps": NaN, "epoch": 1e999, "samples": 1%s}\n' % ("0" * 30),
            ProgressReport(),
            id="no-number-that-could-be-kept",
        ),
        pytest.param(
            '{"metrics": {"a": NaN, "b": 1%s, "c": 2}}\n' % ("0" * 400),
            {"a", "c"},
            id="metrics-that-could-be-kept",
        ),
        pytest.param(
            '{"step": 1}\n%s\n' % ("[" * 60000), ProgressReport(step=1), id="endless-nesting"
        ),
        pytest.param('{"metrics": 3}\n', ProgressReport(), id="metrics-are-a-mapping"),
        pytest.param("", None, id="empty"),
    ],
)
def test_the_newest_whole_line_that_makes_sense(
    tmp_path: Path, content: str, expected: ProgressReport | set[str] | None
) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text(content)
    found = newest_progress(path)
    if isinstance(expected, set):
        assert found is not None
        assert set(found.metrics) == expected
    else:
        assert found == expected


def test_a_large_file_is_read_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text("".join(f'{{"step": {i}}}\n' for i in range(20000)))
    assert newest_progress(path) == ProgressReport(step=19999)


def test_no_file_is_no_progress(tmp_path: Path) -> None:
    assert newest_progress(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(C)", "$(C)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
    ],
)
def test_references_expand_as_in_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


def test_what_is_inherited() -> None:
    source = {"PATH": "p", "LC_ALL": "C", "SECRET": "s", "MY_VAR": "m", "AIRFLOW_HOME": "h"}
    assert inherited(source, ["MY_*", "*HOME"]) == {"PATH": "p", "LC_ALL": "C", "MY_VAR": "m"}
