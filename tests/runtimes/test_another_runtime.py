"""What a runtime of another package brings is known wherever ours is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_training import builtin_runtimes
from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.schema import json_schema
from airflow_training.errors import InputError
from airflow_training.runtimes.adapter import Adapter, RuntimeContext
from airflow_training.runtimes.port import Capabilities, Runtime
from airflow_training.runtimes.registry import adapter_of, adapters, every_reason
from airflow_training.settings import Settings


class BatchSystem(Adapter):
    name = "batch"
    module = __name__
    capabilities = Capabilities(
        gangs=("none", "backfill", "advance"), fixed_size_gangs=("advance",)
    )

    def open(self, settings: Settings, given: RuntimeContext) -> Runtime:
        raise NotImplementedError


BATCH = BatchSystem()


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(builtin_runtimes, "_others", lambda: {"batch": f"{__name__}:BATCH"})
    yield
    builtin_runtimes.load_adapter.cache_clear()
    builtin_runtimes.warn_unusable.cache_clear()


def checked(runtime: str, gang: str = "none", **changes: Any) -> AdmissionResponse:
    document: dict[str, Any] = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits"},
        "spec": {
            "framework": "custom",
            "runtime": {"name": runtime},
            "image": "trainer",
            "command": ["sh", "-c", "true"],
            "roles": [{"name": "worker", "replicas": 3}],
            "schedulingPolicy": {"gang": gang},
            **changes,
        },
    }
    (answer,) = check_text(dump_yaml(document))
    return answer


@pytest.mark.parametrize(
    ("gang", "keeps_size"), [("none", False), ("backfill", False), ("advance", True)]
)
def test_its_gangs_mean_what_it_says(gang, keeps_size):
    answer = checked("batch", gang)
    assert not answer.problems
    assert not answer.warnings
    assert answer.resolved is not None
    assert answer.resolved.scheduling.keeps_size is keeps_size


def test_the_schema_lists_its_gangs_after_ours():
    listed = json_schema()["$defs"]["SchedulingPolicy"]["properties"]["gang"]["enum"]
    assert listed == ["none", "volcano", "coscheduling", "kueue", "slurm", "backfill", "advance"]


def test_a_mistyped_gang_is_told_with_the_nearest():
    (problem,) = checked("batch", "backfil").problems
    assert (problem.code, problem.field) == ("not_allowed", "spec.schedulingPolicy.gang")
    assert "did you mean 'backfill'?" in str(problem)


@pytest.mark.parametrize(
    ("runtime", "gang", "refused"),
    [("kubernetes", "advance", True), ("local", "advance", False), ("batch", "kueue", False)],
)
def test_who_does_not_have_a_gang_refuses_it_or_says_that_it_has_no_effect(runtime, gang, refused):
    answer = checked(runtime, gang)
    told = {each.field for each in (answer.problems if refused else answer.warnings)}
    assert told == {"spec.schedulingPolicy.gang"}
    assert bool(answer.problems) == refused


@pytest.mark.parametrize("runtime", ["kubernetes", "local"])
@pytest.mark.parametrize("gang", ["none", "kueue"])
def test_what_ours_bring_costs_no_look_at_all_installed_packages(monkeypatch, runtime, gang):
    monkeypatch.setattr(
        builtin_runtimes, "_others", lambda: pytest.fail("they were looked through")
    )
    assert not checked(runtime, gang).problems


def test_one_that_cannot_be_loaded_hides_no_mistake(monkeypatch, caplog):
    monkeypatch.setattr(builtin_runtimes, "_others", lambda: {"gone": "no_such_module:ADAPTER"})
    (problem,) = checked("local", "kueu").problems
    assert "did you mean 'kueue'?" in str(problem)
    assert "the runtime gone cannot be loaded" in caplog.text
    assert "kueue" in str(json_schema())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import no_such_module", "No module named 'no_such_module'"),
        ("ADAPTER = 1 / 0", "ZeroDivisionError: division by zero"),
        ("", "has no attribute 'ADAPTER'"),
    ],
    ids=["import", "mistake", "no adapter"],
)
def test_one_that_breaks_is_left_out_and_told_wherever_runtimes_are_listed(
    monkeypatch, tmp_path, caplog, body, said
):
    module = f"broken_{tmp_path.name.translate(str.maketrans('-', '_'))}"
    (tmp_path / f"{module}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(builtin_runtimes, "_others", lambda: {"broken": f"{module}:ADAPTER"})
    assert [each.name for each in adapters()] == [*builtin_runtimes.OURS]
    assert every_reason()
    assert len(caplog.messages) == 1, "said once"
    assert "the runtime broken cannot be loaded" in caplog.text
    assert said in caplog.text
    with pytest.raises(InputError, match="the package that brings the runtime 'broken'") as refused:
        adapter_of("broken")
    assert said in str(refused.value)


def test_what_is_no_adapter_is_left_out_and_told(monkeypatch, caplog):
    monkeypatch.setattr(builtin_runtimes, "_others", lambda: {"odd": f"{__name__}:checked"})
    assert [each.name for each in adapters()] == [*builtin_runtimes.OURS]
    assert "is no runtimes.adapter.Adapter" in caplog.text


def test_an_output_that_nobody_could_leave_is_refused_with_a_stop_condition():
    stop = {"until": "loss < 0.1"}
    answer = checked("batch", stop=stop, output={"uri": "s3://bucket/out"})
    [problem] = [each for each in answer.problems if each.field == "spec.stop.until"]
    assert "batch cannot tell an instance to finish" in problem.message
    assert not checked("batch", stop=stop).problems


@pytest.mark.parametrize(
    ("changes", "finishes"),
    [
        pytest.param({"stop": {"until": "loss < 0.1"}}, True, id="a-command"),
        pytest.param({"stop": {"until": "loss < 0.1"}, "command": []}, False, id="of-the-image"),
        pytest.param({}, False, id="no-condition"),
    ],
)
def test_only_who_has_an_agent_around_its_command_is_told_to_finish(changes, finishes):
    """An image's own command has none: it would never hear it, and the job would never end."""
    resolved = checked("kubernetes", **changes).resolved
    assert resolved is not None
    assert resolved.finishes is finishes
