"""The pod template of another system: kept as it is, but for what its controller gave a meaning."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.metadata import ACTED_UPON

__all__ = ["HostNames", "PodRules", "translate_template"]

_NAMED = re.compile(r"^metadata\.(?P<where>labels|annotations)\['(?P<name>[^']+)'\]$")
_RESERVED = re.compile(r"TRAINING_(?!CHECKPOINT_KEY$|DEVICE_COMMAND$|PARAMETERS$)")
_OPEN = "{{"
_ESCAPED = "{{ '{{' }}"
_INSIDE = "containers are not restarted inside their pod, where nobody would count it"
_WRITTEN_BY_CONTROLLERS = (
    "batch.kubernetes.io/",
    "controller-uid",
    "job-name",
    "jobset.sigs.k8s.io/",
    "training.kubeflow.org/",
)
_POD_NAME = "pods are named by run, role and index; the index stands last here too"
_OTHER_CONTAINER = (
    "the pod ended only when this container had ended too; here the training container alone decides, and"
    " others are ended with it. As an init container with restartPolicy Always it is a sidecar"
)


@dataclass(frozen=True, slots=True)
class HostNames:
    """How a system names the hosts of a job's pods, and which instance of ours each is."""

    pattern: re.Pattern[str]
    """Groups `host` (with its domain) and perhaps `port`."""
    instance: Callable[[re.Match[str]], tuple[str, int] | None]
    """Role and index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRules:
    """What the format around a template says about it."""

    container: str = ""
    """Name of the training container, where there are several; empty: the first."""
    ours: str
    """What our framework calls it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that the controller set, and the values they have here."""
    named: Mapping[str, str] = field(default_factory=dict)
    """Labels and annotations that the controller set, and their values here."""
    taken: frozenset[str] = frozenset()
    """Variables that the controller set over those of the document."""
    hosts: HostNames
    ports: Mapping[str, int] = field(default_factory=dict)
    """Role -> its first port, with which `address()` answers."""


def translate_template(template: SourceField, to: Loc, rules: PodRules) -> dict[str, Any]:
    """Return our template; `spec.restartPolicy` is left to the caller, who knows what it counted for."""
    result = _copy(template.block())
    template.keep(to)
    for key in ("apiVersion", "kind"):
        if key in result:
            del result[key]
            template[key].drop("a pod template has no such field")
    _metadata(template["metadata"].block(), result)
    pod = template["spec"].block()
    spec = result["spec"] = _copy(pod)
    spec.pop("restartPolicy", None)
    for key in ("hostname", "subdomain"):
        if pod[key]:
            del spec[key]
            pod[key].refuse("a pod's host is named by its run, role and index")
    for key in ("affinity", "topologySpreadConstraints"):
        if pod[key] and any(map(_of_controller, _label_names(pod[key].value))):
            del spec[key]
            pod[key].refuse(
                "selects pods by labels that a controller wrote, which ours do not have"
            )
    reader = _TextReader(
        rules,
        {
            where: frozenset(template.at("metadata", where).names())
            for where in ("labels", "annotations")
        },
    )
    if pod["initContainers"]:
        # a controller sets its variables in the containers that train
        prepares = replace(reader, rules=replace(rules, taken=frozenset()))
        spec["initContainers"] = [
            _container(each, (*to, "spec", "initContainers", i), prepares)
            for i, each in enumerate(pod["initContainers"].items())
        ]
    for volume in pod["volumes"].items():
        for item in volume.at("downwardAPI", "items").items():
            reader.file(item.at("fieldRef", "fieldPath"))
    spec["containers"] = _training_container(pod, (*to, "spec", "containers", 0), reader)
    return result


def _copy(source: SourceField) -> dict[str, Any]:
    return copy.deepcopy(source.value) if isinstance(source.value, dict) else {}


def _metadata(source: SourceField, result: dict[str, Any]) -> None:
    if "metadata" not in result:
        return
    written = result["metadata"] = _copy(source)
    for key in ("name", "namespace", "generateName", "creationTimestamp"):
        if key in written:
            del written[key]
            source[key].drop("pods are named by run, role and index, in the job's namespace")
    for where in ("labels", "annotations"):
        for key in source[where].names():
            if key.startswith(ACTED_UPON):
                del written[where][key]
                source[where][key].refuse("a controller acts upon it, and will not see it")
        if where in written and not written[where]:
            del written[where]
            if not source[where].names():
                source[where].drop("says nothing")
    if not written:
        del result["metadata"]
        if not source.names():
            source.drop("says nothing")


def _training_container(pod: SourceField, to: Loc, reader: _TextReader) -> list[dict[str, Any]]:
    """Return the training container alone, under the name that our framework gives it."""
    rules, written = reader.rules, pod["containers"].items()
    names = [each["name"].text() for each in written]
    if not names:
        pod.accounts.mistake(pod["containers"].loc, "missing", "a pod needs a container")
        return []
    if rules.container and rules.container not in names and len(names) > 1:
        message = f"one of the containers has to be called {rules.container!r}"
        pod.accounts.mistake(pod["containers"].loc, "missing", message)
        return []
    chosen = names.index(rules.container) if rules.container in names else 0
    for each in written:
        each.refuse(_OTHER_CONTAINER)
    source = written[chosen]
    container = _container(source, to, reader, rules.env)
    if container.get("name") != rules.ours:
        container["name"] = rules.ours
        why = f"the training container is called {rules.ours!r}"
        source["name"].translate((*to, "name"), why)
    return [container]


def _container(
    source: SourceField, to: Loc, reader: _TextReader, env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a container with its words as we understand them, and `env` before its own."""
    result = _copy(source.block())
    if result:
        source.keep(to)
    policy, rules = source["restartPolicy"], source["restartPolicyRules"]
    if policy.text("Never") not in (("Never",) if env is not None else ("Never", "Always")):
        del result["restartPolicy"]
        policy.refuse(_INSIDE)
    if rules:
        del result["restartPolicyRules"]
        rules.refuse(_INSIDE)
    for key in ("command", "args"):
        if source[key]:
            result[key] = [
                reader.text(word, (*to, key, i)) for i, word in enumerate(source[key].items())
            ]
    variables = source["env"].items()
    written = {each["name"].text() for each in variables}
    known = [
        {"name": name, "value": value} for name, value in (env or {}).items() if name not in written
    ]
    for each in variables:
        variable = reader.variable(each, (*to, "env", len(known)))
        if variable is not None:
            known.append(variable)
    if known:
        result["env"] = known
    elif source["env"]:
        result.pop("env", None)
    if source["env"].value == []:
        source["env"].drop("says nothing")
    return result


def _label_names(value: Any) -> Iterator[str]:
    """Yield the labels by which selectors inside a value choose."""
    if isinstance(value, list):
        for item in value:
            yield from _label_names(item)
    elif isinstance(value, dict):
        for key, inside in value.items():
            if key == "matchLabels" and isinstance(inside, dict):
                yield from inside
            elif key == "key" and "operator" in value:
                yield str(inside)
            else:
                yield from _label_names(inside)


def _of_controller(label: str) -> bool:
    return label.startswith(_WRITTEN_BY_CONTROLLERS)


@dataclass(frozen=True, slots=True)
class _TextReader:
    """Reads words of a container: hosts, labels of the controller, and braces that are ours."""

    rules: PodRules
    own: Mapping[str, frozenset[str]]
    """`labels` and `annotations` -> those that the template itself has."""

    def variable(self, source: SourceField, to: Loc) -> dict[str, Any] | None:
        """Return a variable of the environment; None: not taken over."""
        source.block()
        if source["name"].text() in self.rules.taken:
            source.drop("the controller set its own over it, and so does the framework")
            return None
        if _RESERVED.match(source["name"].text()) and self.rules.ours != "paddle":
            source.refuse("every instance has a variable of this name, which says something else")
            return None
        result = _copy(source)
        source.keep(to)
        if isinstance(source["value"].value, str):
            result["value"] = self.text(source["value"], (*to, "value"))
        path = source.at("valueFrom", "fieldRef", "fieldPath")
        named = _NAMED.match(path.text()) if path else None
        if named and named["name"] not in self.own[named["where"]]:
            value = self.rules.named.get(named["name"])
            if value is None:
                source.refuse(f"no pod has {named['name']} here")
                return None
            source["valueFrom"].translate(
                (*to, "value"), f"what the controller wrote as {named['name']}"
            )
            return {"name": result["name"], "value": value}
        if path and path.text() == "metadata.name":
            path.translate((*to, "valueFrom", "fieldRef", "fieldPath"), _POD_NAME)
        return result

    def file(self, path: SourceField) -> None:
        """Account for a label or annotation that a volume hands on as a file."""
        named = _NAMED.match(path.text()) if path else None
        if named and named["name"] not in self.own[named["where"]]:
            path.refuse(f"no pod has {named['name']} here; the file will be empty")

    def text(self, source: SourceField, to: Loc) -> Any:
        """Return a word as it has to be written in our document."""
        if not isinstance(source.value, str):
            return source.value
        text = source.value.replace(_OPEN, _ESCAPED)
        if text != source.value:
            source.translate(to, "two braces begin an expression here")
        lost: list[str] = []

        def address(match: re.Match[str]) -> str:
            role, index = self.rules.hosts.instance(match) or ("", 0)
            port = match.groupdict().get("port")
            if not role or port is None or self.rules.ports.get(role) != int(port):
                lost.append(match["host"])
                return match[0]
            return f"{{{{ address('{role}', {index}) }}}}"

        found = self.rules.hosts.pattern.sub(address, text)
        if lost:
            source.refuse(
                f"names the host {lost[0]}, which no instance has here; it is left as it was:"
                " address() and the framework's variables name hosts"
            )
        elif found != text:
            source.translate(to, "hosts are named by address(), whatever the run is called")
        return found
