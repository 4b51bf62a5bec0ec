"""A real Airflow for end-to-end tests: jobs whose life the test controls, and short ways to act.

Every instance writes its pid when it starts and runs until the test lets it go, so that a test
can say exactly which processes lived, and that no other ever did.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.control.model import Ledger
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import Store
from airflow_training.triggers.epochs import STARTED
from tests.waiting import PATIENCE, wait_until

SCRIPT = """\
echo $$$$ >> {room}/{job}.$TRAINING_ROLE-$TRAINING_INDEX
while [ ! -e {room}/{job}.end ]; do sleep 1; done
read code < {room}/{job}.end
exit $code
"""
PASSWORD = "only-in-tests"
ENDED = frozenset({"success", "failed"})


@dataclass
class Airflow:
    """A running Airflow with a folder of jobs."""

    stack: AirflowStack
    room: Path
    """Where instances leave their pids and tests leave the exit codes."""
    client: httpx.Client = field(init=False, default_factory=httpx.Client)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = Store(f"sqlite:///{self.stack.home / 'airflow_training.db'}")

    def close(self) -> None:
        """Close what is open; Airflow itself is stopped by its stack."""
        self.client.close()
        self.store.close()

    def connect(self) -> None:
        """Get a token; call again after the API server was restarted."""
        self.client.close()
        self.client = httpx.Client(
            base_url=f"{self.stack.url}/api/v2",
            headers={"Authorization": f"Bearer {self.token_of('admin')}"},
            timeout=PATIENCE,
        )

    def token_of(self, user: str) -> str:
        """Return a token of `admin`, or of `reader`, who may only look."""
        who = {"username": user, "password": PASSWORD}
        answer = httpx.post(f"{self.stack.url}/auth/token", json=who, timeout=PATIENCE)
        return str(answer.raise_for_status().json()["access_token"])

    # jobs ------------------------------------------------------------------------------------
    def document(self, name: str, *roles: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
        """Return a job that runs until `end`; without `roles` it has one worker."""
        script = SCRIPT.format(room=self.room, job=name)
        return {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {
                "framework": "custom",
                "runtime": {"name": "local"},
                "command": ["sh", "-c", script],
                "roles": [dict(role) for role in roles] or [{"name": "worker"}],
                **spec,
            },
        }

    def write(self, document: Mapping[str, Any], folder: str = "jobs") -> None:
        """Put a job into the jobs folder."""
        path = self.stack.home / folder / f"{document['metadata']['name']}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(document))

    def end(self, job: str, code: int = 0) -> None:
        """Let every instance of a job end with this exit code."""
        (self.room / f"{job}.tmp").write_text(f"{code}\n")
        (self.room / f"{job}.tmp").rename(self.room / f"{job}.end")

    def pids(self, job: str) -> dict[str, list[int]]:
        """Return instance (`worker-0`) -> the pid of each start that ever was, oldest first."""
        return {
            path.suffix[1:]: [int(line) for line in path.read_text().split()]
            for path in sorted(self.room.glob(f"{job}.*-*"))
        }

    def alive(self, job: str) -> list[int]:
        """Return the pids of all processes that belong to a job now, agents included."""
        home = str(self.stack.home)
        return [
            pid
            for pid in _pids()
            if (found := _environment(pid)).get("TRAINING_JOB") == job
            and any(home in value for value in found.values())
        ]

    def kill_leftovers(self) -> list[int]:
        """SIGKILL every instance of this home, whatever job it is of; return their pids."""
        home = str(self.stack.home)
        found = [
            pid
            for pid in _pids()
            if "TRAINING_JOB" in (environment := _environment(pid))
            and any(home in value for value in environment.values())
        ]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found

    def wait_started(self, job: str, *, count: int = 1) -> dict[str, list[int]]:
        """Return the pids when `count` instances have started and each has written its own: a file comes before its line."""

        def started() -> dict[str, list[int]] | None:
            self.revive()
            found = self.pids(job)
            return found if len(found) >= count and all(found.values()) else None

        return wait_until(
            started, f"{count} instances of {job} started", seen=lambda: self.pids(job)
        )

    def wait_nothing_alive(self, job: str) -> None:
        """Return when no process of the job is left."""
        wait_until(
            lambda: not self.alive(job),
            f"nothing of {job} is alive",
            seen=lambda: self.alive(job),
        )

    # runs ------------------------------------------------------------------------------------
    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Start a DAG run; return its id."""
        self.revive()
        self.stack.wait_dag(self.client, dag_id)
        body = {"logical_date": None, "conf": conf}
        answer = self._send("POST", f"/dags/{dag_id}/dagRuns", body)
        return str(answer.json()["dag_run_id"])

    def _has_ended(self, dag_id: str, run_id: str) -> bool:
        """Look into Airflow's database, which costs a hundredth of asking its API server again and again."""
        with contextlib.closing(sqlite3.connect(self.stack.home / "airflow.db")) as database:
            found = database.execute(
                "select state from dag_run where dag_id = ? and run_id = ?", (dag_id, run_id)
            ).fetchone()
        return found is not None and found[0] in ENDED

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self.client.get(f"/dags/{dag_id}/dagRuns/{run_id}").json().get("state"))

    def wait_run(self, dag_id: str, run_id: str) -> str:
        """Return the final state of a DAG run, when all its tasks have ended too."""

        def ended() -> str | None:
            if not self._has_ended(dag_id, run_id):
                return None
            state = self.run_state(dag_id, run_id)
            open_tasks = [t for t, s in self.states(dag_id, run_id).items() if s not in _OVER]
            return state if state in ENDED and not open_tasks else None

        def seen() -> str:
            tails = [f"{each} ended: {self.stack.log_tail(each)}" for each in self.dead()]
            states = tails or [str(self.states(dag_id, run_id))]
            return "\n".join([*states, *self._story(dag_id, run_id)])

        # a DAG run is many events
        return wait_until(
            ended,
            f"{dag_id} ended",
            alive=lambda: not self.dead(),
            seen=seen,
            patience=2 * PATIENCE,
        )

    def _story(self, dag_id: str, run_id: str) -> Iterator[str]:
        """Yield what the store knows of the jobs of a DAG run: what a reader of a failed test asks first."""
        for record in self.store.runs():
            if (record.key.dag_id, record.key.run_id) == (dag_id, run_id):
                for each in self.store.events(record.uid):
                    event = each.event
                    yield f"{event.at:.1f} {event.role}-{event.index} {event.reason} {event.message}"

    def states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return task id (`id[2]` for map index 2) -> state."""
        return {_name(each): each["state"] for each in self._instances(dag_id, run_id)}

    def tries(self, dag_id: str, run_id: str) -> dict[str, int]:
        """Return task id -> try number."""
        return {_name(each): each["try_number"] for each in self._instances(dag_id, run_id)}

    def _instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        answer = self.client.get(f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        found: list[dict[str, Any]] = answer.json().get("task_instances", [])
        return found

    def wait_begun(self, dag_id: str, run_id: str, *task_ids: str, group_id: str = "") -> None:
        """Return when a triggerer has taken these tasks up: deferred ones are waiting for one at first."""
        uid = self.uid(dag_id, run_id, group_id=group_id)

        def begun() -> bool:
            told = (each.event for each in self.store.events(uid))
            return {*task_ids} <= {e.data.get("task") for e in told if e.reason == STARTED}

        wait_until(begun, f"{task_ids} of {dag_id} are taken up")

    def wait_task(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        """Return when a task has this state."""
        wait_until(
            lambda: self.states(dag_id, run_id).get(task_id) == state,
            f"{dag_id}.{task_id} is {state}",
            seen=lambda: self.states(dag_id, run_id),
        )

    def log(
        self, dag_id: str, run_id: str, task_id: str, *, number: int = 1, index: int = -1
    ) -> str:
        """Return the messages of one try of a task."""
        lines = []
        for line in self.log_lines(dag_id, run_id, task_id, number=number, index=index):
            lines.append(str(line.get("event", line)))
            lines += [f"{e['exc_type']}: {e['exc_value']}" for e in line.get("error_detail") or ()]
        return "\n".join(lines)

    def log_lines(
        self, dag_id: str, run_id: str, task_id: str, *, number: int = 1, index: int = -1
    ) -> list[dict[str, Any]]:
        """Return the lines of one try of a task as the UI gets them."""
        answer = self.client.get(
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{number}",
            params={"map_index": index},
            headers={"accept": "application/json"},
        )
        content: list[dict[str, Any]] = answer.json().get("content", [])
        return content

    def text(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return the log as one line: what it says, wherever its lines were broken."""
        return " ".join(self.log(dag_id, run_id, task_id).split())

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.client.get(path, params={"deserialize": True}).json()["value"]

    def uid(self, dag_id: str, run_id: str, *, group_id: str = "", map_index: int = -1) -> str:
        """Return the uid of a run, computed as the tasks do."""
        source = self.store.deployment.id()
        return RunKey(
            source=source, dag_id=dag_id, run_id=run_id, group_id=group_id, map_index=map_index
        ).uid

    def ledger(self, dag_id: str, run_id: str, **key: Any) -> Ledger:
        """Return what the store knows about a run."""
        return self.store.ledger(self.uid(dag_id, run_id, **key))

    # what users do -----------------------------------------------------------------------------
    def mark_run(self, dag_id: str, run_id: str, state: str) -> None:
        self._send("PATCH", f"/dags/{dag_id}/dagRuns/{run_id}", {"state": state})

    def mark_task(self, dag_id: str, run_id: str, task_id: str, state: str) -> None:
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        self._send("PATCH", path, {"new_state": state})

    def clear(self, dag_id: str, run_id: str, *task_ids: str, downstream: bool = True) -> list[str]:
        """Clear tasks as the UI does, by default with what follows them; return what was cleared."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "only_failed": False,
            "only_running": False,
            "include_downstream": downstream,
            "reset_dag_runs": True,
        }
        answer = self._send("POST", f"/dags/{dag_id}/clearTaskInstances", body)
        return [each["task_id"] for each in answer.json()["task_instances"]]

    def delete_run(self, dag_id: str, run_id: str) -> None:
        self._send("DELETE", f"/dags/{dag_id}/dagRuns/{run_id}")

    def delete_dag(self, dag_id: str) -> None:
        self._send("DELETE", f"/dags/{dag_id}")

    def pool(self, name: str, *, slots: int, include_deferred: bool) -> None:
        """Make a pool, or change it."""
        body = {"name": name, "slots": slots, "include_deferred": include_deferred}
        if self.client.get(f"/pools/{name}").status_code == 200:
            self._send("PATCH", f"/pools/{name}", body)
        else:
            self._send("POST", "/pools", body)

    def pause_dag(self, dag_id: str, *, paused: bool = True) -> None:
        self._send("PATCH", f"/dags/{dag_id}", {"is_paused": paused})

    def age(self, dag_id: str, run_id: str, *, hours: int) -> None:
        """Let a DAG run have started so much earlier, so that its timeout comes when the test is ready."""
        with contextlib.closing(
            sqlite3.connect(self.stack.home / "airflow.db", timeout=PATIENCE)
        ) as database:
            database.execute(
                "update dag_run set start_date = strftime('%Y-%m-%d %H:%M:%f', start_date, ?)"
                " where dag_id = ? and run_id = ?",
                (f"-{hours} hours", dag_id, run_id),
            )
            database.commit()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send a request; again while Airflow's SQLite is locked, which it answers with 500."""

        def asked() -> httpx.Response | None:
            answer = self.client.request(method, path, json=body)
            return None if answer.status_code >= 500 else answer

        return wait_until(asked, f"{method} {path}")

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self.ask(method, path, body)
        assert answer.status_code < 300, answer.text
        return answer

    # components --------------------------------------------------------------------------------
    def crash(self, *components: str, restart: bool = True) -> None:
        """SIGKILL components, and start them again."""
        self.stack.kill(*components)
        if restart:
            self.stack.start(*components)
            if "api-server" in components:
                wait_until(self._answers, "the API server answers")
                self.connect()

    def revive(self) -> None:
        """Start what ended by itself, as an init system would."""
        for component in self.dead():
            self.stack.start(component)
        # a scheduler may fail over a DAG run that was just deleted; its process stays and does nothing
        newest = self.stack.log_tail("scheduler").rstrip().rpartition("\n")[2]
        if _SCHEDULER_ENDS in newest and "scheduler" in self.stack.processes:
            self.stack.kill("scheduler")
            with (self.stack.home / "scheduler.log").open("a") as log:
                log.write("started again\n")
            self.stack.start("scheduler")

    def dead(self) -> list[str]:
        """Return the components that ended by themselves."""
        return [name for name, each in self.stack.processes.items() if each.poll() is not None]

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.stack.url}/api/v2/version", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


_SCHEDULER_ENDS = "Shutting down LocalExecutor; waiting for running tasks"
_OVER = ENDED | {"skipped", "upstream_failed", "removed"}


def _name(instance: Mapping[str, Any]) -> str:
    index = instance["map_index"]
    return str(instance["task_id"]) if index < 0 else f"{instance['task_id']}[{index}]"


def _pids() -> Iterable[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> dict[str, str]:
    """Return the environment of a process that lives; empty for zombies and strangers."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        os.kill(pid, 0)
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in raw.split("\0") if "=" in item)
