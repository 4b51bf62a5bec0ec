"""The cluster of `$KUBECONFIG` as the tests use it: one namespace, two images, an administrator's hands."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from kubernetes.client.api.core_v1_api import CoreV1Api
from kubernetes.client.api.custom_objects_api import CustomObjectsApi
from kubernetes.client.exceptions import ApiException
from kubernetes.config.kube_config import new_client_from_config

from tests.waiting import wait_until

Document = dict[str, Any]
T = TypeVar("T")
KEPT = "airflow-training/kept"
ROLE = "airflow-training/role"


class MissingVariable(Exception):
    """What the suite needs was not said."""


@dataclass(frozen=True, kw_only=True)
class Site:
    kubeconfig: Path
    namespace: str
    training_image: str
    """Has Python 3, numpy, mpi4py, Open MPI and sshd."""
    busybox_image: str
    patience_seconds: float
    """How long anything may take before a test gives up."""
    client: Any

    @property
    def core(self) -> Any:
        return CoreV1Api(self.client)

    @property
    def custom(self) -> Any:
        return CustomObjectsApi(self.client)

    # waiting

    def until(self, what: str, look: Callable[[], T | None]) -> T:
        """Return the first answer of `look` that is something; fails after a while."""
        return wait_until(look, what, patience=self.patience_seconds)

    # objects

    def pods(self, run: str = "", *, role: str = "") -> Sequence[Document]:
        """Return the pods of one run (its uid), or of the whole namespace, by name."""
        wanted = [f"airflow-training/run={run}"] if run else []
        wanted += [f"{ROLE}={role}"] if role else []
        answer = self.core.list_namespaced_pod(self.namespace, label_selector=",".join(wanted))
        found: list[Document] = [self._plain(each) for each in answer.items]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def living(self, run: str = "", *, role: str = "") -> Sequence[Document]:
        """Return pods that have not ended and are not about to go."""
        return [
            pod
            for pod in self.pods(run, role=role)
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
            and not pod["metadata"].get("deletionTimestamp")
        ]

    def running(self, run: str, *, role: str = "") -> Sequence[Document]:
        return [pod for pod in self.living(run, role=role) if pod["status"]["phase"] == "Running"]

    def leftovers(self, run: str) -> Sequence[str]:
        """Return what there is of a run, as `kind/name`."""
        selector = f"airflow-training/run={run}"
        lists = {
            "pod": self.core.list_namespaced_pod,
            "service": self.core.list_namespaced_service,
            "configmap": self.core.list_namespaced_config_map,
            "secret": self.core.list_namespaced_secret,
        }
        return [
            f"{kind}/{each.metadata.name}"
            for kind, ask in lists.items()
            for each in ask(self.namespace, label_selector=selector).items
        ]

    def delete_pod(self, name: str, *, grace_seconds: int = 1) -> None:
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=grace_seconds)

    def evict(self, name: str) -> None:
        """Do to one pod what `kubectl drain` does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": self.namespace},
            "deleteOptions": {"gracePeriodSeconds": 1},
        }
        self.core.create_namespaced_pod_eviction(name, self.namespace, body)

    def serves(self, group: str, version: str, plural: str) -> bool:
        """Return whether the cluster knows a custom resource."""
        try:
            known = self.custom.get_api_resources(group, version)
        except ApiException as error:
            if error.status == 404:
                return False
            raise
        return plural in {each.name for each in known.resources}

    def _plain(self, found: Any) -> Document:
        plain: Document = self.client.sanitize_for_serialization(found)
        return plain

    # what a failed test shows

    def story(self, runs: Sequence[str]) -> str:
        """Return the pods of these runs (all without any) and the events of the namespace, for people."""
        lines = []
        for pod in [pod for run in runs or ("",) for pod in self.pods(run)]:
            status = pod.get("status") or {}
            lines.append(
                f"{pod['metadata']['name']}: {status.get('phase')} {status.get('reason') or ''}"
                f" node={pod['spec'].get('nodeName')}"
                f" deleted={pod['metadata'].get('deletionTimestamp') or 'no'}"
            )
            lines += [
                f"    {each['name']}: {each.get('state')} last={each.get('lastState')}"
                for key in ("initContainerStatuses", "containerStatuses")
                for each in status.get(key) or ()
            ]
            lines += [
                f"    {each['type']}={each['status']}: {each['message']}"
                for each in status.get("conditions") or ()
                if each.get("message")
            ]
        lines.append("")
        events = [
            self._plain(each) for each in self.core.list_namespaced_event(self.namespace).items
        ]
        for event in sorted(events, key=lambda each: str(each.get("lastTimestamp")))[-60:]:
            about = (event.get("involvedObject") or {}).get("name")
            lines.append(
                f"{event.get('lastTimestamp')} {about}: {event.get('reason')}: {event.get('message')}"
            )
        return "\n".join(lines)


def variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise MissingVariable(
            f"set {name}: KUBECONFIG names the cluster, TRAINING_IMAGE has Python 3, numpy, mpi4py"
            " and Open MPI with sshd, BUSYBOX_IMAGE has sh"
        )
    return value


@contextlib.contextmanager
def open_site() -> Iterator[Site]:
    """Make a namespace on the cluster of `$KUBECONFIG`; it is gone afterwards, whatever happened."""
    kubeconfig = Path(variable("KUBECONFIG").partition(os.pathsep)[0])
    client = new_client_from_config(str(kubeconfig))
    site = Site(
        kubeconfig=kubeconfig,
        namespace="",
        training_image=variable("TRAINING_IMAGE"),
        busybox_image=variable("BUSYBOX_IMAGE"),
        patience_seconds=float(os.environ.get("E2E_PATIENCE_SECONDS", "300")),
        client=client,
    )
    try:
        # the images may run as root, whatever a cluster enforces where nothing is said
        with a_namespace(site, pod_security="baseline") as made:
            yield made
    finally:
        client.close()


@contextlib.contextmanager
def a_namespace(site: Site, *, pod_security: str) -> Iterator[Site]:
    """Make a namespace that enforces a level, and return the site with it; it is gone afterwards."""
    labels = {"pod-security.kubernetes.io/enforce": pod_security}
    site = dataclasses.replace(site, namespace=f"airflow-training-e2e-{uuid4().hex[:8]}")
    site.core.create_namespace({"metadata": {"name": site.namespace, "labels": labels}})
    try:
        _await_service_account(site)
        yield site
    finally:
        _remove(site)


def _await_service_account(site: Site) -> None:
    """A pod is refused until the namespace has its default service account; not all clusters use them."""
    with contextlib.suppress(AssertionError):
        wait_until(lambda: _has_account(site), patience=20)


def _has_account(site: Site) -> bool:
    try:
        site.core.read_namespaced_service_account("default", site.namespace)
    except ApiException as error:
        if error.status == 404:
            return False
        raise
    return True


def _remove(site: Site) -> None:
    site.core.delete_namespace(site.namespace)

    def is_gone() -> bool:
        try:
            site.core.read_namespace(site.namespace)
        except ApiException as error:
            return bool(error.status == 404)
        return False

    site.until(f"namespace {site.namespace} to go", is_gone)
