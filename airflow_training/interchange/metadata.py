"""What all objects of a Kubernetes API have in common: name, namespace, labels, and what the server writes."""

from __future__ import annotations

from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField

__all__ = [
    "ACTED_UPON",
    "QUEUE_LABEL",
    "job_document",
    "managed_by",
    "queue_of_labels",
    "suspended",
]

_SERVER = "written by the API server about the object it had"
_OF_SERVER = (
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
ACTED_UPON = ("kueue.x-k8s.io/", "jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/")
"""Beginnings of labels and annotations that are no mere words: somebody acts upon them."""


def job_document(source: SourceField, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the whole document around its `spec`."""
    source["apiVersion"].translate(("apiVersion",), "the document is ours now")
    source["kind"].translate(("kind",), "the document is ours now")
    source["status"].drop(_SERVER)
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": _metadata(source["metadata"].block()),
        "spec": spec,
    }


def _metadata(source: SourceField) -> dict[str, Any]:
    to: Loc = ("metadata",)
    source.anchor(to)
    found: dict[str, Any] = {}
    name, stem = source["name"], source["generateName"]
    if name:
        found["name"] = name.text().replace(".", "-")
        name.keep((*to, "name"))
        if found["name"] != name.text():
            name.translate((*to, "name"), "names of jobs have no dots")
        stem.drop("a name is given")
    elif stem:
        found["name"] = stem.text().rstrip("-.")
        stem.translate((*to, "name"), "every run of the job has an id of its own")
    else:
        source.accounts.mistake(source.loc, "missing", "a job needs metadata.name")
    if source["namespace"]:
        found["namespace"] = source["namespace"].text()
        source["namespace"].keep((*to, "namespace"))
    for key in ("labels", "annotations"):
        if words := _words(source[key].block(), (*to, key)):
            found[key] = words
    for key in _OF_SERVER:
        source[key].drop(_SERVER)
    source["ownerReferences"].refuse("a run is not removed with the owner of an object")
    source["finalizers"].refuse("nobody waits for others before a run's objects are removed")
    return found


def _words(source: SourceField, to: Loc) -> dict[str, Any]:
    source.anchor(to)
    found = {}
    for key in source.names():
        word = source[key]
        if key == _LAST_APPLIED:
            word.drop("kubectl's own copy of the document")
        elif key == QUEUE_LABEL:
            word.translate(("spec", "schedulingPolicy", "queue"), "waits in this queue as a group")
        elif key.startswith(ACTED_UPON):
            word.refuse("a controller acts upon it, and will not see it")
        else:
            found[key] = word.value
            word.keep((*to, key))
    return found


def queue_of_labels(source: SourceField) -> dict[str, Any]:
    """Return the scheduling policy of a job that names its queue by a label."""
    queue = source.at("metadata", "labels", QUEUE_LABEL)
    return {"gang": "kueue", "queue": queue.text()} if queue else {}


def suspended(source: SourceField) -> dict[str, Any]:
    """Our field for `suspend`."""
    if not source:
        return {}
    source.keep(("spec", "suspend"))
    return {"suspend": source.flag()}


def managed_by(source: SourceField, *, own: str) -> None:
    """Account for who drives the job: its own controller does not matter, another one does."""
    if source and source.text() != own:
        source.refuse("another controller would have run this job, by rules that are not told here")
    else:
        source.drop("its own controller; here runs are driven by their loop")
