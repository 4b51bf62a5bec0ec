"""Names that a user wrote and that no cluster takes, or none before a version, each where it stands. Pure.

Kubernetes' own document of a pod says where names are; here stands which rule each has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_training.documents.layers import UserTemplate
from airflow_training.documents.paths import Loc, format_path
from airflow_training.documents.podmodel.check import ROOT, table
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import Problem
from airflow_training.frameworks.naming import service_host
from airflow_training.runtimes.kubernetes.name_rules import (
    ANNOTATION_KEY,
    CONFIG_KEY,
    CONTAINER_RESOURCE,
    DNS_LABEL,
    DNS_SUBDOMAIN,
    ENV_NAME,
    FINALIZER,
    LABEL_KEY,
    LABEL_VALUE,
    OLD_ENV_NAME,
    PORT_NAME,
    Rule,
)
from airflow_training.runtimes.kubernetes.names import (
    AGENT,
    AGENT_CONTAINER,
    ENVIRONMENT_CONTAINER,
    MARKS,
    SSH_KEYS,
)

__all__ = ["OWN_VOLUMES", "name_warnings", "refused_names"]

OWN_VOLUMES = frozenset(
    {"airflow-training"}
    | {
        f"airflow-training-{what}"
        for what in ("agent", "answers", "files", "live", "order", "output", "pod", "ssh")
    }
)
"""Of our pods; a volume of the user must have another name."""


def _if_given(rule: Rule) -> Rule:
    return replace(rule, pattern=f"({rule.pattern})?")


_RULES: Mapping[tuple[str, str], Rule] = {
    ("V1ConfigMapKeySelector", "key"): CONFIG_KEY,
    ("V1Container", "name"): replace(DNS_LABEL, taken=(AGENT_CONTAINER, ENVIRONMENT_CONTAINER)),
    ("V1ContainerPort", "name"): _if_given(PORT_NAME),
    ("V1EnvVar", "name"): ENV_NAME,
    ("V1HostAlias", "hostnames"): DNS_SUBDOMAIN,
    ("V1KeyToPath", "key"): CONFIG_KEY,
    ("V1LabelSelectorRequirement", "key"): LABEL_KEY,
    ("V1NodeSelectorRequirement", "key"): LABEL_KEY,
    ("V1ObjectMeta", "finalizers"): FINALIZER,
    ("V1PodAffinityTerm", "topologyKey"): LABEL_KEY,
    ("V1PodResourceClaim", "name"): DNS_LABEL,
    ("V1PodSpec", "nodeName"): _if_given(DNS_SUBDOMAIN),
    ("V1PodSpec", "priorityClassName"): _if_given(DNS_SUBDOMAIN),
    ("V1PodSpec", "runtimeClassName"): _if_given(DNS_SUBDOMAIN),
    ("V1PodSpec", "serviceAccountName"): _if_given(DNS_SUBDOMAIN),
    ("V1SecretKeySelector", "key"): CONFIG_KEY,
    ("V1Toleration", "key"): _if_given(LABEL_KEY),
    ("V1TopologySpreadConstraint", "topologyKey"): LABEL_KEY,
    ("V1Volume", "name"): replace(DNS_LABEL, taken=OWN_VOLUMES),
}
"""(Kind, field) -> the rule of its text, or of each text of its list."""
_OWN_ANNOTATION = replace(ANNOTATION_KEY, taken_prefix=MARKS, free=(AGENT, SSH_KEYS))
_OWN_LABEL = replace(LABEL_KEY, taken_prefix=MARKS)
_PAIRS: Mapping[tuple[str, str], tuple[Rule, Rule | None]] = {
    ("V1LabelSelector", "matchLabels"): (LABEL_KEY, LABEL_VALUE),
    ("V1ObjectMeta", "annotations"): (_OWN_ANNOTATION, None),
    ("V1ObjectMeta", "labels"): (_OWN_LABEL, LABEL_VALUE),
    ("V1PodSpec", "nodeSelector"): (LABEL_KEY, LABEL_VALUE),
    ("V1ResourceRequirements", "limits"): (CONTAINER_RESOURCE, None),
    ("V1ResourceRequirements", "requests"): (CONTAINER_RESOURCE, None),
}
"""(Kind, field) -> the rules of its keys and of its values."""
_UNKNOWN_HASH = "-00000"
_CLUSTER_DOMAIN = ".cluster.local"
_KERNEL_HOST_NAME = 64

_Named = tuple[Loc, Rule, Any]
_Written = tuple[UserTemplate, str]
"""What a user wrote of a role's pod, and the role."""


def refused_names(job: ResolvedJob) -> Collection[Problem]:
    """Return each name of a document that a server refuses with 422."""
    return _once(_refused(job))


def name_warnings(job: ResolvedJob) -> Collection[Problem]:
    """Return names that only newer servers take, and those that a pod gets from its run instead."""
    return _once(_doubtful(job))


def _once(problems: Iterable[Problem]) -> Collection[Problem]:
    """Return them without what the job's own keys say again for each role."""
    return {(each.code, each.field): each for each in problems}.values()


def _refused(job: ResolvedJob) -> Iterator[Problem]:
    told = []
    for written, role in _roles(job):
        names = _names(written.merged, ROOT, ())
        told += [*_judge(names, written.find), *_full_host_name(job, written, role)]
    yield from _judge(_of_the_job(job))
    yield from told
    yield from _of_the_framework(job, users={each.value for each in told})


def _of_the_framework(job: ResolvedJob, *, users: Collection[Any]) -> Iterator[Problem]:
    """Yield the first name that is in the pods and that the user did not write."""
    for role in job.roles:
        ports = (((name,), _RULES["V1ContainerPort", "name"], name) for name in role.ports)
        for each in _judge([*_names(role.template, ROOT, ()), *ports]):
            if each.value not in users:
                message = f"gives the pods of {role.name} a name that {each.message} ({each.field})"
                yield replace(each, field="spec.framework", message=message)
                return


def _doubtful(job: ResolvedJob) -> Iterator[Problem]:
    for written, _ in _roles(job):
        for place, rule, name in _names(written.merged, ROOT, ()):
            is_new = rule is ENV_NAME and ENV_NAME.refusal(str(name)) is None
            if not is_new or not OLD_ENV_NAME.refusal(str(name)):
                continue
            if (found := written.find(place)) is not None:
                message = f"servers of Kubernetes before 1.32 want {OLD_ENV_NAME.words}"
                yield _problem("bad_name", found, name, message)
        for key in ("hostname", "subdomain"):
            found = written.find(("spec", key)) if _pod(written).get(key) else None
            if found is not None:
                message = "has no effect: a pod's host is named by its run, role and index"
                yield _problem("not_supported", found, _pod(written)[key], message)


def _roles(job: ResolvedJob) -> Iterator[_Written]:
    spec = mapping(job.document.get("spec"))
    for i, role in enumerate(mappings(spec.get("roles"))):
        container = job.roles[0].container
        written = UserTemplate(spec, role, ("spec", "roles", i), container=container)
        yield written, str(role.get("name"))


def _pod(written: UserTemplate) -> Mapping[str, Any]:
    return mapping(written.merged.get("spec"))


def _of_the_job(job: ResolvedJob) -> Iterator[_Named]:
    """Yield the names that the job itself gives to its pods and to its scheduler."""
    yield from _pairs(job.labels, _OWN_LABEL, LABEL_VALUE, ("metadata", "labels"))
    yield from _pairs(job.annotations, _OWN_ANNOTATION, None, ("metadata", "annotations"))
    wanted, here = job.scheduling, ("spec", "schedulingPolicy")
    if wanted.queue:
        rule = LABEL_VALUE if wanted.gang == "kueue" else DNS_SUBDOMAIN
        yield (*here, "queue"), rule, wanted.queue
    if wanted.priority_class_name:
        yield (*here, "priorityClassName"), DNS_SUBDOMAIN, wanted.priority_class_name
    if wanted.spread:
        yield (*here, "spread", "topologyKey"), LABEL_KEY, wanted.spread.get("topologyKey")


def _names(value: Any, kind: str, here: Loc) -> Iterator[_Named]:
    """Yield the names in a part of a pod template, by what Kubernetes calls its parts."""
    shape, _, inner = kind.rpartition(":")
    if shape == "list":
        for i, item in enumerate(mappings(value)):
            yield from _names(item, inner, (*here, i))
    elif kind in table():
        fields: Mapping[str, str] = table()[kind]["fields"]
        for key, each in mapping(value).items():
            if key in fields:
                yield from _field(each, kind, key, (*here, key)) or _names(
                    each, fields[key], (*here, key)
                )


def _field(value: Any, kind: str, key: str, here: Loc) -> list[_Named]:
    """Return the names of a field whose rule is known; nothing for all others."""
    if (kind, key) in _PAIRS:
        return list(_pairs(value, *_PAIRS[kind, key], here))
    rule = _RULES.get((kind, key))
    if rule is None:
        return []
    if isinstance(value, list | tuple):
        return [((*here, i), rule, each) for i, each in enumerate(value)]
    return [(here, rule, value)]


def _pairs(value: Any, key_rule: Rule, value_rule: Rule | None, here: Loc) -> Iterator[_Named]:
    for key, text in mapping(value).items():
        yield (*here, key), key_rule, key
        if value_rule is not None:
            yield (*here, key), value_rule, text


def _itself(place: Loc) -> Loc:
    return place


def _judge(
    names: Iterable[_Named], find: Callable[[Loc], Loc | None] = _itself
) -> Iterator[Problem]:
    """Yield what is wrong with names, each at the place of the document that `find` tells, if any."""
    for place, rule, name in names:
        refusal = rule.refusal(name) if isinstance(name, str) else None
        found = find(place) if refusal is not None else None
        if refusal is not None and found is not None:
            hint = did_you_mean(name, rule.usual) or _by_part(name, rule.usual)
            yield replace(_problem(refusal[0], found, name, refusal[1]), hint=hint)


def _by_part(name: str, usual: Collection[str]) -> str:
    """Return `did you mean 'nvidia.com/gpu'?` for `gpus`: which of the usual ends so."""
    meant = (each for each in usual if each.endswith(f"/{name.lower().rstrip('s')}"))
    return next((f"did you mean '{each}'?" for each in meant), "")


def _full_host_name(job: ResolvedJob, written: UserTemplate, role: str) -> Iterator[Problem]:
    """Yield where a pod shall bear its full name and the kernel has no room for it."""
    place: Loc = ("spec", "setHostnameAsFQDN")
    found = written.find(place) if _pod(written).get("setHostnameAsFQDN") is True else None
    known = [each for each in job.roles if each.name == role]
    if found is None or not known:
        return
    most = max(known[0].replicas, known[0].max_replicas or 0, 1)
    host = service_host(job.name + _UNKNOWN_HASH, job.namespace, role, most - 1) + _CLUSTER_DOMAIN
    if len(host) > _KERNEL_HOST_NAME:
        message = (
            f"makes the host name '{host}' of {len(host)} characters, at most"
            f" {_KERNEL_HOST_NAME} fit: the pod would never start"
        )
        hint = "leave it out, or shorten the names of job, role and namespace"
        yield replace(_problem("name_too_long", found, host, message), hint=hint)


def _problem(code: str, loc: Loc, value: Any, message: str) -> Problem:
    return Problem(code=code, field=format_path(loc), value=value, message=message)
