"""Lists and single runs, as the pages get them."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from airflow_training.control.reports import ProgressReport
from airflow_training.control.rollup import timestamp
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import LogPosition, LogValue, open_store
from tests.state.samples import START, a_ledger, an_event, end_run, take, worker
from tests.web.conftest import a_run


def get(client: Any, path: str, user: str = "op", **query: Any) -> Any:
    answer = client.get(f"/api/{path}", headers={"user": user}, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def run_ids(page: Any) -> list[str]:
    return [each["run_id"] for each in page["trainings"]]


def test_whoever_asks_is_told_who_that_is(client):
    assert get(client, "me")["user"] == "op"
    assert get(client, "me")["standalone"] is False


def test_a_list_holds_what_the_user_may_read(client):
    a_run("mine")
    a_run("other", dag="secret")
    a_run("typed", dag="", source="cli")
    a_run("foreign", source="another deployment")
    assert run_ids(get(client, "trainings", "op")) == ["mine"]
    assert set(run_ids(get(client, "trainings", "admin"))) == {"mine", "other", "typed"}


def test_pages_of_a_list_leave_none_out(client):
    for number in range(5):  # all at the same moment
        a_run(f"run-{number}", ledger=a_ledger(submitted_at=START))
    seen: list[str] = []
    before: Any = ""
    while before is not None:
        page = get(client, "trainings", limit=2, before=before)
        seen += run_ids(page)
        before = page["next"]
        assert page["more"] is (before is not None)
    assert sorted(seen) == [f"run-{number}" for number in range(5)]


def test_a_time_is_a_place_in_the_list_too(client):
    a_run("old", ledger=a_ledger(submitted_at=START))
    a_run("new", ledger=a_ledger(submitted_at=START + 60))
    newest = get(client, "trainings")["trainings"][0]
    assert run_ids(get(client, "trainings", before=newest["submitted_at"])) == ["old"]
    assert client.get("/api/trainings?before=yesterday").status_code == 422


def test_a_list_is_filtered(client):
    a_run("first", submitted_by="Ann")
    a_run("second", ledger=a_ledger(state="Failed"))
    assert run_ids(get(client, "trainings", state="Failed")) == ["second"]
    assert run_ids(get(client, "trainings", text="ann")) == ["first"]
    assert run_ids(get(client, "trainings", text="100%")) == []


def test_a_list_says_how_far_each_run_is(client):
    run = a_run("slow")
    a_run("silent")
    reports = {
        InstanceKey("worker", 0): ProgressReport(step=40, total_steps=80),
        InstanceKey("worker", 1): ProgressReport(step=20),
    }
    open_store().progress.save(run.uid, reports)
    found = {each["run_id"]: each["progress"] for each in get(client, "trainings")["trainings"]}
    assert found["silent"] is None
    assert (found["slow"]["step"], found["slow"]["total_steps"]) == (20, 80)
    assert found["slow"]["fraction"] == 0.25


def ended(run: Any, at: float, state: str = "Failed") -> None:
    end_run(open_store(), run.uid, state=state, at=at)


def test_runs_are_found_by_when_they_ended(client):
    ended(a_run("old"), at=START)
    ended(a_run("new"), at=START + 60)
    a_run("running")
    since = timestamp(START + 30)
    assert run_ids(get(client, "trainings", since=since)) == ["new"]
    assert run_ids(get(client, "trainings", since=since, state="Stopped")) == []
    answer = client.get("/api/trainings?since=yesterday")
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        "since: 'yesterday' is not a time",
    )


def test_runs_are_counted_by_what_they_do(client):
    for number in range(3):
        a_run(f"running-{number}")
    for number, state in enumerate(("Pending", "Queued", "Starting", "Restarting", "Paused")):
        a_run(f"waiting-{number}", ledger=a_ledger(state=state))
    ended(a_run("old"), at=START)
    ended(a_run("new"), at=START + 60)
    ended(a_run("well"), at=START + 60, state="Succeeded")
    open_store().tombstone(a_run("never-begun", ledger=a_ledger()).uid, reason="killed")
    a_run("other", dag="secret")
    assert get(client, "trainings/counts")["ended"]["Stopped"] == 1
    told = get(client, "trainings/counts", since=timestamp(START + 30))
    assert (told["running"], told["waiting"]) == (3, 5)
    assert told["ended"] == {"Failed": 1, "Stopped": 0, "Succeeded": 1}
    assert get(client, "trainings/counts", "admin")["running"] == 4
    assert get(client, "trainings/counts")["ended"]["Failed"] == 2


def test_a_run_that_was_killed_before_it_began_is_listed_as_stopped(client):
    unbegun = a_run("never-begun", ledger=a_ledger(submitted_at=START))
    open_store().tombstone(unbegun.uid, reason="killed")
    a_run("waits", ledger=a_ledger())
    assert run_ids(get(client, "trainings", state="Stopped")) == ["never-begun"]
    assert run_ids(get(client, "trainings", state="Pending")) == ["waits"]
    [listed] = get(client, "trainings", state="Stopped", since=timestamp(START - 60))["trainings"]
    assert (listed["state"], listed["phrase"]) == ("Stopped", "stopped")
    assert run_ids(get(client, "trainings", since=timestamp(START + 60))) == []


def test_a_dag_run_has_the_trainings_of_all_its_groups(client):
    a_run("r", group_id="a")
    a_run("r", group_id="b", map_index=3)
    a_run("other", group_id="a")
    found = get(client, "dags/digits/dagRuns/r/trainings")["trainings"]
    assert sorted((each["group_id"], each["map_index"]) for each in found) == [("a", -1), ("b", 3)]
    assert get(client, "dags/digits/dagRuns/none/trainings")["trainings"] == []


def test_what_was_scaled_away_has_neither_metrics_nor_a_rate(client):
    running = (worker(index, state="running", retired=index == 1) for index in range(2))
    run = a_run(ledger=a_ledger(*running, state="Running", started_at=1.0))
    store, line = open_store(), ProgressReport(step=1, metrics={"samples_per_second": 8})
    store.progress.save(run.uid, dict.fromkeys(store.ledger(run.uid).instances, line))
    found = get(client, f"dags/digits/trainings/{run.uid}")
    assert found["progress"]["samples_per_second"] == 8
    assert found["rates"].keys() == found["metrics"].keys() == {"worker-0"}


def test_a_run_is_told_whole(client):
    store = open_store()
    workers = (worker(index, state="running") for index in range(2))
    run = a_run(ledger=a_ledger(*workers, state="Running", started_at=1.0))
    store.progress.save(
        run.uid,
        {
            InstanceKey("worker", 0): ProgressReport(
                step=3, total_steps=10, metrics={"loss": math.nan}
            ),
            InstanceKey("worker", 1): ProgressReport(
                step=5, total_steps=10, metrics={"samples_per_second": 8}
            ),
        },
    )
    found = get(client, f"dags/digits/trainings/{run.uid}")
    assert found["summary"]["framework"] == "custom"
    assert found["status"]["run_id"] == "first"
    assert found["seen"] == "0.0"
    assert found["held"] is False
    assert found["restarts"] == {"used": 0, "allowed": 3}
    assert found["metrics"]["worker-0"] == {"loss": None}
    progress = found["progress"]
    assert (progress["step"], progress["fraction"], progress["slowest"]) == (3, 0.3, "worker-0")
    assert progress["samples_per_second"] == 8
    assert found["roles"][0]["name"] == "worker"
    assert found["actions"] == ["pause", "stop", "kill", "scale"]


def test_what_instances_use_is_told(client):
    run = a_run()
    looks = [
        {"number": n, "at": 10.0 * n, "usage": {"cpu_seconds": 15.0 * n, "rss_bytes": 1024}}
        for n in (1, 2)
    ]
    open_store().environments.save(
        run.uid, {InstanceKey("worker", 1): [json.dumps(each) for each in looks]}
    )
    found = get(client, f"dags/digits/trainings/{run.uid}")["usage"]
    assert found.keys() == {"worker-1"}
    assert (found["worker-1"]["cpu_cores"], found["worker-1"]["memory_bytes"]) == (1.5, 1024)
    assert found["worker-1"]["at"] == "1970-01-01T00:00:20.000Z"


def test_who_may_only_read_has_no_actions(client):
    run = a_run()
    assert get(client, f"dags/digits/trainings/{run.uid}", "viewer")["actions"] == []


def test_with_act_on_own_others_have_none_either(client, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__ACT_ON", "own")
    mine, theirs = a_run("mine", submitted_by="op"), a_run("theirs", submitted_by="ann")
    assert get(client, f"dags/digits/trainings/{mine.uid}")["actions"]
    assert get(client, f"dags/digits/trainings/{theirs.uid}")["actions"] == []


def test_the_story_comes_in_pages(client):
    run = a_run()
    open_store().add_events(run.uid, [an_event(str(number)) for number in range(3)])
    first = get(client, f"dags/digits/trainings/{run.uid}/events", limit=2)
    assert [each["message"] for each in first["events"]] == ["0", "1"]
    assert first["more"] is True
    rest = get(client, f"dags/digits/trainings/{run.uid}/events", after=first["events"][-1]["seq"])
    assert ([each["message"] for each in rest["events"]], rest["more"]) == (["2"], False)


def series_of(run: Any) -> None:
    values = [
        LogValue(
            name="loss", at=float(n), step=n, value=math.inf if n == 6 else float(n), rank=rank
        )
        for n in range(8)
        for rank in (None, 5)
    ]
    assert open_store().log_values.save(
        run.uid,
        InstanceKey("worker", 1),
        before=None,
        after=LogPosition(epoch=0, job_attempt=0, attempt=0),
        values=values,
        progress=None,
    )


def test_series_are_told_for_every_rank(client):
    run = a_run()
    series_of(run)
    path = f"dags/digits/trainings/{run.uid}/series"
    names = ["loss", "step_time_seconds"]
    assert get(client, path) == {"names": names, "series": [], "bands": []}
    found = get(client, path, name="loss")["series"]
    assert [(each["role"], each["index"], each["rank"]) for each in found] == [
        ("worker", 1, 1),
        ("worker", 1, 5),
    ]
    assert found[0]["x_step"] == [*range(8)]
    assert found[0]["y"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, None, 7.0]


def test_series_are_cut_and_reduced(client):
    run = a_run()
    series_of(run)
    path = f"dags/digits/trainings/{run.uid}/series"
    cut = get(client, path, name="loss", start=2, end=4)["series"][0]
    assert (cut["x_time"], cut["total"]) == ([2.0, 3.0, 4.0], 3)
    few = get(client, path, name="loss", points=4)["series"][0]
    assert (few["x_step"], few["total"]) == ([0, 6, 7], 8)


def test_of_more_series_than_are_wanted_the_band_and_the_worst_are_told(client):
    run = a_run()
    for index in range(5):
        line = ProgressReport(step=3, time=3.0 + index, metrics={"loss": 100 * (index == 2)})
        open_store().progress.save(run.uid, {InstanceKey("worker", index): line})
    path = f"dags/digits/trainings/{run.uid}"
    page = get(client, f"{path}/series", name="loss", most=4)
    (band,) = page["bands"]
    assert (band["name"], band["count"], band["x"]) == ("loss", 5, [3])
    assert (band["minimum"], band["median"], band["maximum"]) == ([0], [0], [100])
    assert [each["index"] for each in page["series"]] == [2, 0, 1]
    assert get(client, f"{path}/series", name="loss", most=5)["bands"] == []
    alone = get(client, f"{path}/series", name="loss", first=True)["series"]
    assert [each["index"] for each in alone] == [0]
    assert get(client, f"{path}/heat", name="loss") == {
        "x": [3],
        "rows": [f"worker-{index} rank {index}" for index in range(5)],
        "values": [[0], [0], [100], [0], [0]],
        "distances": [[0], [0], [100], [0], [0]],
    }
    assert get(client, f"{path}/heat", name="no such metric")["values"] == []


def test_the_first_instance_is_that_of_the_first_role_of_the_job(client):
    from airflow_training.state.codec import from_json

    evaluator = from_json(type(worker(0)), '{"role": "evaluator", "index": 0}')
    store, run = open_store(), a_run(ledger=a_ledger(worker(0), evaluator))
    lease, ledger = take(store, run.uid), store.ledger(run.uid)
    job = store.job(run.uid)
    roles = (*job.roles, dataclasses.replace(job.roles[0], name="evaluator"))
    job = dataclasses.replace(job, roles=roles)
    store.replace_job(run.uid, job, ledger, generation=lease.generation)
    line = ProgressReport(step=3, time=3.0, metrics={"loss": 1.0})
    store.progress.save(run.uid, dict.fromkeys(ledger.instances, line))
    path = f"dags/digits/trainings/{run.uid}/series"
    every = get(client, path, name="loss")["series"]
    assert [each["role"] for each in every] == ["worker", "evaluator"]
    [first] = get(client, path, name="loss", first=True)["series"]
    assert first["role"] == "worker"


def test_the_document_is_told_as_it_ran(client):
    run = a_run()
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/document")
    assert answer.text == "kind: TrainingJob\nmetadata:\n  name: digits\n"


@pytest.mark.parametrize("dag", ["other", "~", "%2e", "digits%20", "%64igits/..", ""])
def test_a_run_is_found_under_its_own_dag_only(client, dag):
    run = a_run()
    for path in ("", "/events", "/series", "/document", "/log?role=worker&index=0"):
        answer = client.get(f"/api/dags/{dag}/trainings/{run.uid}{path}", headers={"user": "admin"})
        assert answer.status_code == 404, (path, answer.text)


def test_the_dag_of_a_query_counts_nothing(client):
    run = a_run(dag="secret")
    assert client.get(f"/api/dags/digits/trainings/{run.uid}?dag=secret").status_code == 404
    answer = client.get(f"/api/dags/secret/trainings/{run.uid}?dag=digits&dag_id=digits")
    assert answer.status_code == 403


def test_runs_of_another_deployment_are_not_there(client):
    run = a_run(source="another deployment")
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}", headers={"user": "admin"})
    assert answer.status_code == 404


def test_instances_that_are_gone_leave_a_run_unknown(client):
    run = a_run(ledger=a_ledger(worker(0, state="unknown"), state="Running", condition="Running"))
    assert get(client, f"dags/digits/trainings/{run.uid}")["summary"]["phrase"] == "state unknown"
