"""Fault scripts: what they mean, and that every mistake in one is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_training.errors import InputError
from airflow_training.runtimes.faults import Behaviour, Fault, load_script, parse_script


def test_a_list_is_a_list_of_faults() -> None:
    script = parse_script([{"at": 20, "kill": "worker", "index": 1, "signal": 9}])
    assert script.faults == (Fault(kind="kill", at=20, role="worker", index=1, signal=9),)
    assert script.behaviour("worker") == Behaviour()


def test_a_mapping_says_how_roles_behave() -> None:
    script = parse_script(
        {
            "roles": {
                "worker": {"startSeconds": 1, "runSeconds": 60, "exitCode": 3, "reason": "Odd"},
                "ps": {"runSeconds": None},
                "*": {"runSeconds": 5},
            }
        }
    )
    assert script.behaviour("worker") == Behaviour(
        start_seconds=1, run_seconds=60, exit_code=3, reason="Odd"
    )
    assert script.behaviour("ps").run_seconds is None
    assert script.behaviour("anything").run_seconds == 5


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"after": 5, "kill": "w", "attempt": 0}, Fault(kind="kill", after=5, role="w", attempt=0)),
        ({"at": 1, "delete": "w"}, Fault(kind="delete", at=1, role="w")),
        ({"at": 1, "lose": "w", "seconds": 3}, Fault(kind="lose", at=1, role="w", seconds=3)),
        ({"at": 1, "unreachable": 15}, Fault(kind="unreachable", at=1, seconds=15)),
        (
            {"at": 1, "kill": "w", "reason": "Evicted", "disrupted": True},
            Fault(kind="kill", at=1, role="w", reason="Evicted", disrupted=True),
        ),
    ],
)
def test_every_kind_of_fault(document: dict[str, Any], expected: Fault) -> None:
    found = parse_script([document]).faults[0]
    assert (found.kind, found.at, found.after, found.role) == (
        expected.kind,
        expected.at,
        expected.after,
        expected.role,
    )
    assert found.reason == expected.reason
    assert found.disrupted == expected.disrupted
    if "seconds" in document or "unreachable" in document:
        assert found.seconds == expected.seconds


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param("text", "", id="no-mapping"),
        pytest.param({"fault": []}, "fault", id="unknown-key"),
        pytest.param({"faults": {}}, "faults", id="no-list"),
        pytest.param([{"at": 1}], "faults[0]", id="no-fault-named"),
        pytest.param([{"at": 1, "kill": "w", "lose": "w"}], "faults[0]", id="two-faults"),
        pytest.param([{"kill": "w"}], "faults[0]", id="no-time"),
        pytest.param([{"kill": "w", "at": 1, "after": 1}], "faults[0]", id="two-times"),
        pytest.param([{"unreachable": 5, "after": 1}], "faults[0]", id="nothing-to-come-after"),
        pytest.param([{"kill": "w", "at": -1}], "faults[0].at", id="negative"),
        pytest.param([{"kill": "w", "at": "soon"}], "faults[0].at", id="no-number"),
        pytest.param([{"kill": "w", "at": 1, "exitCode": 256}], "faults[0].exitCode", id="code"),
        pytest.param([{"kill": "w", "at": 1, "sginal": 9}], "faults[0].sginal", id="misspelt"),
        pytest.param([{"kill": 3, "at": 1}], "faults[0].kill", id="no-role-name"),
        pytest.param([{"kill": "w", "at": 1, "disrupted": 1}], "faults[0].disrupted", id="bool"),
        pytest.param({"roles": {"w": {"runSeconds": "x"}}}, "roles.w.runSeconds", id="role"),
    ],
)
def test_mistakes_name_their_field(document: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_script(document)
    assert field in [problem.field for problem in caught.value.problems]


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        parse_script([{"kill": "w", "at": -1}, {"kill": "w", "at": 1, "what": 2}])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize("text", [None, "a: [", "- {kill: w}"])
def test_a_bad_file_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "faults.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=r"faults\.yaml"):
        load_script(path)


def test_every_mistake_is_told_at_once_with_its_line_and_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(
        "roles:\n  wroker: {runSeconds: 5}\n  '*': {runSeconds: 5}\nfaults:\n"
        "  - {at: 5, kill: workr, exitCode: 1}\n  - {at: 6, kil: worker}\n"
    )
    with pytest.raises(InputError) as caught:
        load_script(path, roles=["worker", "ps"])
    told = {each.field: (each.line, each.hint) for each in caught.value.problems}
    assert told["roles.wroker"] == (2, "did you mean 'worker'?")
    assert told["faults[0].kill"] == (5, "did you mean 'worker'?")
    assert told["faults[1].kil"] == (6, "did you mean 'kill'?")
    assert str(path) in str(caught.value)


def test_roles_that_the_job_has_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("- {at: 5, kill: worker}\n- {at: 6, unreachable: 3}\n")
    assert len(load_script(path, roles=["worker"]).faults) == 2


def test_an_empty_file_is_an_empty_script(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.touch()
    assert load_script(path).faults == ()
