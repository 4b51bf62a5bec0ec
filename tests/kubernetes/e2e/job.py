"""A job as a user runs it: a file, and `airflow-training run --runtime kubernetes` as a process."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from airflow_training.runtimes.kubernetes.observing import CANNOT_START_SECONDS
from tests.kubernetes.e2e.site import Document, Site

COMMAND = (sys.executable, "-m", "airflow_training.cli")


class Job:
    """One run of one job file, and the commands that act on it."""

    def __init__(
        self, site: Site, home: Path, document: Document, *, kubeconfig: Path | None = None
    ) -> None:
        self.site = site
        self.run_id = f"e2e-{uuid4().hex[:8]}"
        self._home = home
        self._file = home / f"{self.run_id}.yaml"
        self._out = home / f"{self.run_id}.out"
        self._file.write_text(yaml.safe_dump(document, sort_keys=False))
        self._environment = {
            **os.environ,
            "AIRFLOW_HOME": str(home),
            "KUBECONFIG": str(kubeconfig or site.kubeconfig),
            "AIRFLOW__TRAINING__AGENT_IMAGE": site.training_image,
        }
        self._process: subprocess.Popen[bytes] | None = None

    # the controlling process

    def start(self) -> Job:
        """Start the run, or go on with it after `kill_controller`."""
        with (
            self._out.open("w") as out,
            (self._home / f"{self.run_id}.stderr").open("a") as errors,
        ):
            self._process = subprocess.Popen(
                [
                    *COMMAND,
                    "run",
                    self._file,
                    "--runtime",
                    "kubernetes",
                    "--run-id",
                    self.run_id,
                    "-o",
                    "json",
                ],
                env=self._environment,
                stdout=out,
                stderr=errors,
            )
        return self

    def kill_controller(self) -> None:
        """End the process that drives the run, without a word to the run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def result(self) -> Document:
        """Wait for the end; return what `run` prints on stdout."""
        assert self._process is not None
        # a container may be unable to start for so long before that is a failure
        timeout = CANNOT_START_SECONDS + self.site.patience_seconds
        self._process.wait(timeout)
        out = self._out.read_text()
        assert out, f"exit code {self._process.returncode}:\n{self.stderr}"
        found: Document = json.loads(out)
        return found

    def succeed(self) -> Document:
        """Wait for the end, which is a success; everything alive is gone then."""
        result = self.result()
        assert result["state"] == "Succeeded", f"{result['reason']}: {result['message']}"
        assert not self.site.living(self.uid)
        return result

    def clean(self) -> None:
        """End the process, if a test left it."""
        if self._process is not None and self._process.poll() is None:
            self.interrupt()
            try:
                self._process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill_controller()

    @property
    def stderr(self) -> str:
        return (self._home / f"{self.run_id}.stderr").read_text()

    # other commands

    def command(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run `airflow-training ...` beside the run."""
        return subprocess.run(
            [*COMMAND, *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=check,
            timeout=self.site.patience_seconds,
        )

    def status(self) -> Document:
        found: Document = json.loads(self.command("status", self.run_id, "-o", "json").stdout)
        return found

    def events(self) -> Sequence[Mapping[str, Any]]:
        """Return the story so far; nothing before the run is in the store."""
        done = self.command("events", self.run_id, "-o", "json", check=False)
        found: Sequence[Mapping[str, Any]] = (
            json.loads(done.stdout)["events"] if not done.returncode else ()
        )
        return found

    def log(self, role: str, index: int = 0, *, attempt: int | None = None) -> str:
        words = ["logs", "show", self.run_id, "--role", role, "--index", str(index)]
        if attempt is not None:
            words += ["--attempt", str(attempt)]
        return self.command(*words).stdout

    # on the cluster

    @property
    def uid(self) -> str:
        from airflow_training.documents.resolved import RunKey

        return RunKey(source="cli", run_id=self.run_id).uid

    def until_running(self, role: str, count: int = 1) -> Sequence[Document]:
        """Return the role's pods when as many run."""

        def look() -> Sequence[Document] | None:
            self.still_there()
            found = self.site.running(self.uid, role=role)
            return found if len(found) >= count else None

        return self.site.until(f"{count} running {role}", look)

    def until_exists(self, role: str) -> Document:
        """Return a pod of the role as soon as there is one."""

        def look() -> Document | None:
            self.still_there()
            return next(iter(self.site.living(self.uid, role=role)), None)

        return self.site.until(f"a pod of {role}", look)

    def still_there(self) -> None:
        """Fail at once where the run's process is gone: nothing will come."""
        assert self._process is not None
        assert self._process.poll() is None, f"the run is over:\n{self.stderr}"


def document(site: Site, name: str, *roles: Document, **spec: Any) -> Document:
    """Return a job of framework custom, unless `spec` says another.

    Nothing is pulled that a node has: the cluster may have no registry, and a tag be `latest`.
    """
    framework = spec.get("framework", "custom")
    container = "main" if framework == "custom" else framework
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": site.namespace},
        "spec": {
            "framework": "custom",
            "image": site.busybox_image,
            "restart": {"backoff": {"initialSeconds": 0}},
            "roles": [_pulled_only_where_missing(each, container) for each in roles],
            **spec,
        },
    }


def _pulled_only_where_missing(role: Document, container: str) -> Document:
    made = copy.deepcopy(role)
    containers = made["template"]["spec"].setdefault("containers", [])
    found = next((each for each in containers if each["name"] == container), None)
    if found is None:
        found = {"name": container}
        containers.append(found)
    found["imagePullPolicy"] = "IfNotPresent"
    return made


def role(name: str, script: str = "", *, replicas: int = 1, **keys: Any) -> Document:
    """Return a role whose training container runs a shell script."""
    pod_spec = keys.pop("pod", {"terminationGracePeriodSeconds": 1})
    made: Document = {"name": name, "replicas": replicas, "template": {"spec": pod_spec}, **keys}
    if script:
        made["command"] = ["sh", "-c", script]
    return made
