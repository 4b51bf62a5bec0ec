"""Reading a document of ours for export: its roles with their whole pods, and what no other system knows."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.merge import merge_templates, shorthand_template
from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField

__all__ = ["NO_LIMIT", "ExportRules", "ExportedRole", "OurJob", "read_job"]

NO_LIMIT = 1_000_000
"""What an import writes for a system without a limit."""
CONTAINERS = {
    "pytorch": "pytorch",
    "tensorflow": "tensorflow",
    "mpi": "mpi",
    "jax": "jax",
    "custom": "main",
}
_SHORTHAND = (
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "workingDir",
    "resources",
    "ports",
    "volumes",
    "volumeMounts",
)
_EXPRESSION = re.compile(r"\{\{\s*(?P<inside>'\{\{'|.*?)\s*\}\}")
_ADDRESS = re.compile(r"^address\(\s*['\"](?P<role>[\w-]+)['\"]\s*,\s*(?P<i>\d+)\s*\)$")
_VARIABLE = re.compile(r"\$\((?P<name>[A-Z_][A-Z0-9_]*)\)")
_OURS_ALONE = {
    "code": "files of a job are fetched by our agent",
    "environment": "an environment of ours is laid out by our agent",
    "data": "is handed on by variables of ours",
    "plan": "is made by our planner, and found again by our agent",
    "trainer": "is a program of ours",
    "preflight": "is looked at by our agent",
    "stop": "is judged by our loop",
    "checkpoint": "is watched, and found again, by our loop",
    "output": "is uploaded by our agent",
    "logs": "is read by our loop",
    "dag": "is read by Airflow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRules:
    """What another system says about words of a command, and which variables it sets itself."""

    host: Callable[[str, int], str | None] = lambda _role, _index: None
    """Role and index -> the name of the host there."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """A variable of ours -> how it is written there."""
    sets: Mapping[str, str] = field(default_factory=dict)
    """Variables that it sets itself, and the values that an import gives them."""
    port: int = 29500
    """Where a role names none."""


@dataclass(slots=True)
class ExportedRole:
    """A role, with the pod that its keys and those of the job make together."""

    source: SourceField
    number: int
    name: str
    replicas: int
    template: dict[str, Any]
    restart: str
    """Its restart policy."""
    limit: int
    """Its `backoffLimit`."""
    depends: Sequence[SourceField]

    @property
    def to(self) -> Loc:
        return self.source.loc

    @property
    def container(self) -> dict[str, Any]:
        containers = self.template.get("spec", {}).get("containers") or [{}]
        return dict(containers[0])


@dataclass(slots=True)
class OurJob:
    """A document of ours."""

    source: SourceField
    name: str
    framework: str
    roles: list[ExportedRole]

    @property
    def spec(self) -> SourceField:
        return self.source["spec"]

    @property
    def restarts(self) -> int:
        """Return the ceiling of the run."""
        return self.spec["restart"]["maxRestarts"].whole(3)

    @property
    def scope(self) -> str:
        default = (
            "Job"
            if self.framework in ("pytorch", "mpi", "jax", "xgboost", "lightgbm", "paddle")
            else "Instance"
        )
        return self.spec["restart"]["scope"].text(default)


def read_job(source: SourceField, rules: ExportRules, *, place: Callable[[int], Loc]) -> OurJob:
    """Return the job; `place`: where the pod template of a role stands in the other document."""
    for key in ("apiVersion", "kind"):
        source[key].translate((key,), "the document is another system's now")
    metadata = source["metadata"].block()
    for key in metadata.names():
        metadata[key].keep(("metadata", key))
    spec = source["spec"].block()
    framework = spec["framework"]
    name = (
        framework.value if isinstance(framework.value, str) else "custom" if not framework else ""
    )
    if not name:
        framework.refuse("a framework that is fetched is known to nobody else")
    if spec["parameters"].value == {}:
        spec["parameters"].drop("says nothing")
    for key, why in _OURS_ALONE.items():
        spec[key].refuse(why)
    spec["reconcileSeconds"].drop("says how often our loop looks at everything")
    job = OurJob(source, metadata["name"].text(), name, [])
    for number, role in enumerate(spec["roles"].items()):
        job.roles.append(_role(job, role, number, rules, place(number)))
    return job


def _role(job: OurJob, role: SourceField, number: int, rules: ExportRules, to: Loc) -> ExportedRole:
    role.block()
    spec = job.spec
    container = CONTAINERS.get(job.framework, job.framework)
    layers = _Layers(spec, role, container)
    for where in (spec, role):
        for key in _SHORTHAND:
            where[key].translate(
                (*to, "spec", "containers", 0, key), "of the training container of each role"
            )
    role["template"].keep(to)
    template = layers.merged()
    pod = template.setdefault("spec", {})
    pod.pop("restartPolicy", None)
    role["template"]["spec"]["restartPolicy"].drop("the role's own restartPolicy says it")
    if not pod.get("containers"):
        role.accounts.mistake(role.loc, "missing", "needs a command or an image, to be a pod")
    for kind in ("initContainers", "containers"):
        for i, each in enumerate(pod.get(kind) or ()):
            _words(job, each, (kind, i), layers, rules, to)
    return ExportedRole(
        role,
        number,
        role["name"].text(),
        role["replicas"].whole(1),
        template,
        role["restartPolicy"].one_of(("Always", "OnFailure", "Never", "ExitCode"), "OnFailure"),
        role["backoffLimit"].whole(6),
        role["dependsOn"].items(),
    )


def _words(
    job: OurJob,
    container: dict[str, Any],
    place: Loc,
    layers: _Layers,
    rules: ExportRules,
    to: Loc,
) -> None:
    kind, i = str(place[0]), int(place[1])
    name = str(container.get("name", ""))
    there: Loc = (*to, "spec", kind, i)
    for key in ("command", "args"):
        if isinstance(container.get(key), list):
            container[key] = [
                _word(
                    job, word, layers.field_of(kind, name, (key, j), word), (*there, key, j), rules
                )
                for j, word in enumerate(container[key])
            ]
    variables: list[dict[str, Any]] = []
    for variable in container.get("env") or ():
        named, value = str(variable.get("name")), variable.get("value")
        written = layers.variable(kind, name, named, variable)
        if named in rules.sets and rules.sets[named] == value:
            written.drop("set by the other system itself")
            continue
        if isinstance(value, str):
            at = (*there, "env", len(variables), "value")
            text = _word(job, value, written["value"] if written.value else written, at, rules)
            variable = {**variable, "value": text}
        variables.append(variable)
    if "env" in container:
        container["env"] = variables
        if not variables:
            del container["env"]


@dataclass(frozen=True, slots=True)
class _Layers:
    """Where the parts of a role's pod are written: the job's keys, the role's, and its template over them."""

    spec: SourceField
    role: SourceField
    container: str

    def merged(self) -> dict[str, Any]:
        """Return the pod template that they make together."""
        found: list[dict[str, Any]] = []
        for where in (self.spec, self.role):
            value = where.value if isinstance(where.value, dict) else {}
            keys = {key: value[key] for key in _SHORTHAND if key in value}
            found.append(shorthand_template(self.container, keys))
        template = self.role["template"].value
        return copy.deepcopy(
            merge_templates(*found, template if isinstance(template, dict) else {})
        )

    def _written(self, kind: str, name: str) -> Iterator[SourceField]:
        """Yield what says something of a container, the strongest first."""
        for each in self.role["template"]["spec"][kind].items():
            if each["name"].text() == name:
                yield each
        if kind == "containers" and name == self.container:
            yield self.role
            yield self.spec

    def field_of(self, kind: str, name: str, inside: Loc, value: Any) -> SourceField:
        """Return the field that holds a word of a container."""
        for each in self._written(kind, name):
            if each[str(inside[0])]:
                return SourceField(each.accounts, (*each.loc, *inside), value)
        return SourceField(self.spec.accounts, self.role.loc, value)

    def variable(self, kind: str, name: str, variable: str, value: Any) -> SourceField:
        """Return the field that holds a variable of a container."""
        for each in self._written(kind, name):
            for item in each["env"].items():
                if item["name"].text() == variable:
                    return item
        return SourceField(self.spec.accounts, self.role.loc, value)


def _word(job: OurJob, word: Any, source: SourceField, to: Loc, rules: ExportRules) -> Any:
    """Return a word as the other system has to be told it."""
    if not isinstance(word, str):
        return word
    lost: list[str] = []

    def expression(match: re.Match[str]) -> str:
        inside = match["inside"]
        if inside == "'{{'":
            return "{{"
        address = _ADDRESS.match(inside)
        host = rules.host(address["role"], int(address["i"])) if address else None
        if host is None or address is None:
            lost.append(match[0])
            return match[0]
        return f"{host}:{_port(job, address['role'], rules)}"

    def variable(match: re.Match[str]) -> str:
        known = rules.variables.get(match["name"])
        if known is None and match["name"].startswith("TRAINING_"):
            lost.append(match[0])
        return match[0] if known is None else known

    found = _VARIABLE.sub(variable, _EXPRESSION.sub(expression, word))
    if lost:
        source.refuse(f"{lost[0]} has no value there")
    elif found != word:
        source.translate(to, "as it is written there")
    return found


def _port(job: OurJob, role: str, rules: ExportRules) -> int:
    source = next(
        (each for each in job.spec["roles"].items() if each["name"].text() == role), job.spec
    )
    layers = _Layers(job.spec, source, CONTAINERS.get(job.framework, job.framework))
    for each in layers.merged().get("spec", {}).get("containers", ())[:1]:
        for port in each.get("ports", ())[:1]:
            return int(port["containerPort"])
    return rules.port
