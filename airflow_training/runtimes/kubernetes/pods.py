"""The pod of one attempt: the user's template, and what a run needs besides. Pure.

What the user wrote stays: labels, annotations, scheduler, probes, mounts of the same path. Ours is
what makes it an instance: names, labels, owner, deadline, files, gang, and the agent where asked.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.agent.order import TERMINATION_LOG, Order
from airflow_training.documents.resolved import ResolvedSpot
from airflow_training.errors import InputError
from airflow_training.frameworks.naming import service_host
from airflow_training.runtimes.kubernetes import inject, names
from airflow_training.runtimes.kubernetes.capabilities import CODE_DIR_IN_POD, OUTPUT_DIR_IN_POD
from airflow_training.runtimes.kubernetes.environment_volume import (
    environment_container,
    environment_in_pod,
    environment_volume,
    makes_environment,
)
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.kubernetes.gangs import marks_of
from airflow_training.runtimes.kubernetes.observing import CANNOT_START_SECONDS
from airflow_training.runtimes.kubernetes.pod_attempts import FOR_LOOK_INSIDE, FOR_NEXT_ATTEMPT
from airflow_training.runtimes.kubernetes.pod_files import (
    answer_shards,
    file_mounts,
    files_annotation,
    files_volume,
    live_modes,
    replaced_volumes,
)
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.template import template_of
from airflow_training.runtimes.port import InstanceSpec
from airflow_training.runtimes.rendering import sibling_address

__all__ = [
    "PodOptions",
    "address_of",
    "can_follow",
    "life_seconds",
    "needs_agent",
    "pod_of",
    "progress_uri_of",
    "waits_for",
]

_MESSAGE_POLICY, _FROM_LOG = "terminationMessagePolicy", "FallbackToLogsOnError"

_PROGRESS_FILE = f"{inject.TRAINING_FOLDER}/progress.jsonl"
_PREDICTIONS_DIR = f"{inject.TRAINING_FOLDER}/predictions"
_PORT_PROBE_FAILURES = 1_000_000
_MAX_SECONDS = 2**31 - 1
"""Longest `activeDeadlineSeconds` that the API server takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """What the deployment says about pods."""

    agent_image: str = ""
    """For the init container; "": the image of the training container."""
    agent_user: int = 65532
    """User id of the init container where the pod names none; 0: the cluster says who."""
    agent_config_map: str = ""
    """Name of the ConfigMap with the agent; needed where `needs_agent` says so."""
    callback_url: str = ""
    """Where instances report progress; "": in the job's object storage, beside its output."""


def pod_of(
    spec: InstanceSpec, facts: RunFacts, owner_uid: str, *, options: PodOptions
) -> dict[str, Any]:
    """Return the pod to create; raises InputError for what cannot be made from the template."""
    ref = spec.ref
    template = template_of(spec)
    pod_spec: dict[str, Any] = {
        key: value for key, value in (template.get("spec") or {}).items() if value not in (None, [])
    }
    made = _PodBuilder(spec, facts, options, pod_spec)
    marks = marks_of(facts.gang, ref.role)
    written = template.get("metadata") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": made.name,
            "namespace": ref.run.namespace,
            "labels": {
                **facts.labels,
                **(written.get("labels") or {}),
                **marks.labels,
                **names.instance_labels(ref),
            },
            "annotations": {
                **facts.annotations,
                **(written.get("annotations") or {}),
                **marks.annotations,
                **made.annotations(),
            },
            "ownerReferences": [names.owner_reference(ref.run, owner_uid)],
            **({"finalizers": written["finalizers"]} if written.get("finalizers") else {}),
        },
        "spec": made.spec(marks.scheduler_name),
    }


def address_of(spec: InstanceSpec) -> str:
    """Return where other instances reach this one: `host:port`, or the host without a port."""
    run = spec.ref.run
    host = service_host(run.prefix, run.namespace, spec.ref.role, spec.ref.index)
    port = next(iter(spec.ports.values()), None)
    return host if port is None else f"{host}:{port}"


def needs_agent(spec: InstanceSpec, options: PodOptions) -> bool:
    """Return whether the agent's program has to be mounted into the instance's pod."""
    return spec.held or _is_wrapped(spec, options)


def _is_wrapped(spec: InstanceSpec, options: PodOptions) -> bool:
    """Return whether the agent is the command's parent.

    For the code, the output, an environment, to be told to finish, to replace files, to report progress, and for checkpoints: to
    bring the library and to find hangs. A training without a script is in the agent's program itself.
    """
    if spec.output_uri or spec.code or spec.resolved.trains_network or makes_environment(spec):
        return True
    if (spec.finishes or spec.replaced) and spec.command:
        return True
    annotations = (spec.resolved.template.get("metadata") or {}).get("annotations") or {}
    return (
        (bool(options.callback_url) or spec.stall is not None)
        and bool(spec.command)
        and annotations.get(names.AGENT) != "false"
    )


def waits_for(spec: InstanceSpec, facts: RunFacts, options: PodOptions) -> str:
    """The event that the pod's agent waits for once its command has failed; "": nobody would hear of it.

    A next attempt may not follow everywhere: what a hold writes is written once, and Kueue numbers pods
    by attempt. There it waits for a look inside only.
    """
    told = bool(options.callback_url) and _is_wrapped(spec, options)
    if not told or not spec.in_place_seconds:
        return ""
    if not spec.live_files and not facts.numbered:
        return FOR_NEXT_ATTEMPT
    return FOR_LOOK_INSIDE if spec.keep_seconds else ""


def life_seconds(
    deadline_seconds: float | None, *, most: float | None, keep_seconds: float = 0.0
) -> float | None:
    """Return how long the pod of an instance with such a deadline may live; None: for ever.

    It has longer by what it may stay for a look inside: the agent ends the training at the deadline.
    The kubelet's clock runs while images are pulled, so it has longer, by as long as that may take.
    """
    if deadline_seconds is None:
        return most or None
    life = deadline_seconds + min(deadline_seconds, CANNOT_START_SECONDS) + keep_seconds
    return min(life, most or life)


def can_follow(pod: PodView, wanted: PodView, *, age_seconds: float) -> bool:
    """Return whether an attempt can begin in `pod`; `wanted`: the pod that it would get.

    The environment and the command may be others; image, resources and files may not. The pod must
    have left at least half of the life that a new one would have.
    """
    asked = all(names.IN_PLACE in each.annotations for each in (pod, wanted))
    same = all(
        getattr(pod, name) == getattr(wanted, name) for name in ("image", "working_dir", "files")
    )
    return asked and same and pod.life_seconds - age_seconds >= wanted.life_seconds / 2


class _PodBuilder:
    """One pod in the making."""

    def __init__(
        self, spec: InstanceSpec, facts: RunFacts, options: PodOptions, written: dict[str, Any]
    ) -> None:
        self._instance = spec
        self._facts = facts
        self._options = options
        self._written = written
        self._mounts: list[dict[str, Any]] = []
        self._volumes: list[dict[str, Any]] = []
        self.name = names.pod_name(spec.ref, numbered=facts.numbered)
        self._role = facts.roles.get(spec.ref.role)
        self._stays = waits_for(spec, facts, options)
        self._takes_orders = bool(self._stays) or spec.finishes or bool(spec.replaced)
        self._has_deadline = facts.deadline_seconds is not None
        self._ssh_path = str(self._template_annotations().get(names.SSH_KEYS, ""))
        self._main: dict[str, Any] = next(
            (dict(c) for c in written.get("containers") or () if c.get("name") == spec.container),
            {"name": spec.container},
        )
        self._probes_port = (
            self._role is not None
            and self._role.awaits_port
            and bool(spec.ports)
            and not self._main.get("startupProbe")
        )

    def annotations(self) -> dict[str, str]:
        instance = self._instance
        ours = {
            names.GENERATION: str(instance.ref.run.generation),
            names.CONTAINER: instance.container,
            names.ADDRESS: address_of(instance),
        }
        if instance.held:
            ours[names.HELD] = "true"
        if self._probes_port:
            ours[names.PORT_PROBE] = "true"
        if self._stays:
            ours[names.IN_PLACE] = self._stays
        if instance.output_uri and not self._options.callback_url:
            ours[names.PROGRESS] = progress_uri_of(instance)
        ours |= files_annotation({path: instance.files[path] for path in instance.replaced})
        if self._facts.unfit_nodes:
            ours[names.UNFIT_NODES] = self._facts.unfit_nodes
        return ours

    def spec(self, scheduler_name: str) -> dict[str, Any]:
        instance, written = self._instance, self._written
        ref = instance.ref
        self._own_volumes()
        # where one of theirs fails, its last lines come with the pod: nobody has its log once that is gone
        init = [
            {_MESSAGE_POLICY: _FROM_LOG, **each} for each in written.get("initContainers") or ()
        ]
        if makes_environment(instance):
            init.append(self._environment())
        if instance.held:
            init.append(self._hold())
        main = self._training_container()
        others = [dict(each) for each in written.get("containers") or ()]
        containers = [main if each.get("name") == main["name"] else each for each in others]
        if main not in containers:
            containers.insert(0, main)
        made: dict[str, Any] = {
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            **written,
            "restartPolicy": "Never",
            "hostname": names.pod_name(ref, numbered=False),
            "subdomain": names.service_name(ref.run.prefix, ref.role),
            # 0 would be force, whoever deletes: the object gone while its processes may live
            "terminationGracePeriodSeconds": max(1, math.ceil(instance.grace_seconds)),
            "containers": containers,
        }
        if init:
            made["initContainers"] = init
        if self._volumes:
            theirs = written.get("volumes") or []
            made["volumes"] = [*theirs, *self._volumes]
        deadlines = [
            each
            for each in (instance.deadline_seconds, written.get("activeDeadlineSeconds"))
            if each is not None
        ]
        if deadlines:
            made["activeDeadlineSeconds"] = min(max(1, math.ceil(min(deadlines))), _MAX_SECONDS)
        self._place(made, scheduler_name)
        return made

    def _place(self, made: dict[str, Any], scheduler_name: str) -> None:
        """Say where it may go and before whom; what the template says is stronger."""
        gang = self._facts.gang
        if scheduler_name:
            made.setdefault("schedulerName", scheduler_name)
        if gang.priority_class_name:
            made.setdefault("priorityClassName", gang.priority_class_name)
        # Kueue tells the pods of a group apart by what they ask for
        if self._instance.avoid_nodes and gang.kind != "kueue":
            made["affinity"] = _away_from(
                self._instance.avoid_nodes, self._written.get("affinity") or {}
            )
        spot = self._instance.resolved.spot
        if spot is not None:
            on_spot = self._instance.resolved.is_on_spot(self._instance.ref.index)
            made["affinity"] = _on_capacity(spot, made.get("affinity") or {}, wanted=on_spot)
            if on_spot:
                made["tolerations"] = [
                    *(self._written.get("tolerations") or ()),
                    {"key": spot.label, "operator": "Equal", "value": spot.value},
                ]
        if self._instance.excluded_nodes and gang.kind != "kueue":
            made["affinity"] = _never_on(self._instance.excluded_nodes, made.get("affinity") or {})
        if gang.spread:
            made["topologySpreadConstraints"] = [
                *(self._written.get("topologySpreadConstraints") or ()),
                {
                    "topologyKey": gang.spread["topologyKey"],
                    "maxSkew": int(gang.spread.get("maxSkew", 1)),
                    "whenUnsatisfiable": gang.spread.get("whenUnsatisfiable", "ScheduleAnyway"),
                    "labelSelector": {"matchLabels": {names.RUN: self._instance.ref.run.uid}},
                },
            ]

    # the training container ----------------------------------------------------------------------
    def _training_container(self) -> dict[str, Any]:
        instance = self._instance
        made = {key: value for key, value in self._main.items() if value not in (None, [])}
        if instance.code is not None or made.get("workingDir") in (".", "./"):
            # where the job's files are: in an image its own folder, and code is not there when the container starts
            made.pop("workingDir", None)
        env = [
            {"name": "TRAINING_PROGRESS_FILE", "value": _PROGRESS_FILE},
            *(dict(each) for each in made.get("env") or ()),
        ]
        if _is_wrapped(instance, self._options):
            made["command"], order = self._wrapped(made)
            env.append(inject.order_variable(order))
            if order.predictions_dir:
                env.append({"name": "TRAINING_PREDICTIONS_DIR", "value": order.predictions_dir})
            volume, mount = inject.agent_volume(self._options.agent_config_map)
            self._add(volume, mount)
            if self._takes_orders:
                volume, mount = inject.order_volume()
                self._add(volume, mount)
                uid = {"fieldRef": {"fieldPath": "metadata.uid"}}
                env.append({"name": "TRAINING_POD_UID", "valueFrom": uid})
            if self._options.callback_url:
                secret = names.callback_secret_name(instance.ref.run)
                source = {"secretKeyRef": {"name": secret, "key": inject.TOKEN_KEY}}
                env.append({"name": "TRAINING_CALLBACK_TOKEN", "valueFrom": source})
        made["env"] = env
        made.setdefault(_MESSAGE_POLICY, _FROM_LOG)
        if self._probes_port:
            made["startupProbe"] = {
                "tcpSocket": {"port": next(iter(instance.ports.values()))},
                "periodSeconds": 1,
                # the dependency's own timeout says when it takes too long
                "failureThreshold": _PORT_PROBE_FAILURES,
            }
        theirs = [dict(each) for each in made.get("volumeMounts") or ()]
        taken = {str(each.get("mountPath", "")).rstrip("/") for each in theirs}
        made["volumeMounts"] = theirs + [m for m in self._mounts if m["mountPath"] not in taken]
        return made

    def _wrapped(self, made: Mapping[str, Any]) -> tuple[list[str], Order]:
        """Return the command line with the agent in front, and the agent's order."""
        instance, options = self._instance, self._options
        command = [str(part) for part in made.get("command") or ()]
        if not command:
            raise InputError.of(
                code="not_supported",
                field=f"spec.roles.{instance.ref.role}.command",
                message="the agent that brings code and output starts the command, so the job"
                " has to name it: what the image starts by itself cannot be seen from here",
                hint="write the image's entrypoint as command",
            )
        ref = instance.ref
        progress_url = progress_uri = ""
        if options.callback_url:
            progress_url = f"{options.callback_url.rstrip('/')}/runs/{ref.run.uid}/progress"
        elif instance.output_uri:
            progress_uri = progress_uri_of(instance)
        reports = progress_url or progress_uri or instance.readiness or instance.stall is not None
        order = Order(
            **_code_order(instance),
            environment=environment_in_pod(instance),
            readiness=None if instance.readiness is None else instance.readiness.to_document(),
            watch=instance.watch,
            ports=dict(instance.ports) if self._stays else {},
            progress_file=_PROGRESS_FILE if reports else "",
            progress_url=progress_url,
            progress_uri=progress_uri,
            stall=None if instance.stall is None else instance.stall.to_order(),
            predictions_dir=_PREDICTIONS_DIR if instance.predictions_uri else "",
            predictions_uri=instance.predictions_uri,
            orders_file=inject.ORDERS_FILE if self._takes_orders else "",
            output_dir=OUTPUT_DIR_IN_POD if instance.output_uri else "",
            output_uri=instance.output_uri,
            output_continuous=instance.output_continuous,
            termination_log=str(made.get("terminationMessagePath") or TERMINATION_LOG),
            in_place_seconds=instance.in_place_seconds if self._stays else 0.0,
            **self._own_deadline(),
        )
        return inject.wrapped_command(command), order

    def _own_deadline(self) -> dict[str, Any]:
        """Return when the agent ends its command: of a pod that may stay, the kubelet's deadline is later."""
        instance = self._instance
        kept, life = instance.keep_seconds, instance.deadline_seconds
        if not (self._stays and kept and self._has_deadline and life is not None and life > kept):
            return {}
        return {"deadline_seconds": life - kept, "grace_seconds": instance.grace_seconds}

    # volumes -------------------------------------------------------------------------------------
    def _add(self, volume: dict[str, Any], *mounts: dict[str, Any]) -> None:
        if all(each["name"] != volume["name"] for each in self._volumes):
            self._volumes.append(volume)
        self._mounts += mounts

    def _own_volumes(self) -> None:
        """Give the training container its folder, its output, its files and its ssh keys."""
        instance = self._instance
        for name, path in (
            ("airflow-training", inject.TRAINING_FOLDER),
            ("airflow-training-output", OUTPUT_DIR_IN_POD),
        ):
            self._add({"name": name, "emptyDir": {}}, {"name": name, "mountPath": path})
        for volume, mount in replaced_volumes(instance):
            self._add(volume, mount)
        own = files_volume(self.name, instance)
        if own is not None:
            self._add(own)
        self._mounts += file_mounts(instance)
        if self._ssh_path:
            secret = {"secretName": names.ssh_secret_name(instance.ref.run), "defaultMode": 0o444}
            self._add(
                {"name": "airflow-training-ssh", "secret": secret},
                {"name": "airflow-training-ssh", "mountPath": self._ssh_path, "readOnly": True},
            )

    def _environment(self) -> dict[str, Any]:
        program, program_mount = inject.agent_volume(self._options.agent_config_map)
        volume, mount = environment_volume()
        self._add(program)
        self._add(volume, mount)
        return environment_container(self._instance, self._main, [program_mount, mount])

    def _hold(self) -> dict[str, Any]:
        live = live_modes(self._instance)
        volumes, mounts = inject.hold_volumes(
            self.name, live=bool(live), shards=answer_shards(self._facts)
        )
        program, program_mount = inject.agent_volume(self._options.agent_config_map)
        for volume in (program, *volumes):
            self._add(volume)
        folder = {"name": "airflow-training", "mountPath": inject.TRAINING_FOLDER}
        return inject.hold_container(
            image=self._options.agent_image or str(self._main.get("image") or ""),
            # the job's own image is pulled as the job says
            pull_policy="IfNotPresent"
            if self._options.agent_image
            else str(self._main.get("imagePullPolicy") or ""),
            user=self._hold_user(),
            mounts=[program_mount, folder, *mounts],
            live_keys=live,
            beside=self._main,
        )

    def _hold_user(self) -> int:
        """Return the user id to ask for; 0: the pod's own, or what the cluster says."""
        pod_security = self._written.get("securityContext") or {}
        return 0 if pod_security.get("runAsUser") else self._options.agent_user

    def _template_annotations(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (self._instance.resolved.template.get("metadata") or {}).get(
            "annotations"
        ) or {}
        return found


def _code_order(spec: InstanceSpec) -> dict[str, Any]:
    """Return what the agent is told of the code that it lays out, and of the folder to start in."""
    if spec.code is None:
        return {}
    return {
        "code": spec.code.to_order(),
        "code_dir": CODE_DIR_IN_POD,
        # an absolute second part replaces the first
        "working_dir": posixpath.join(CODE_DIR_IN_POD, spec.working_dir),
    }


def progress_uri_of(spec: InstanceSpec) -> str:
    """Return where an instance leaves its newest progress beside the job's output."""
    folder = sibling_address(spec.output_uri, "progress")
    return f"{folder}/{spec.ref.key}.json"


def _away_from(nodes: Sequence[str], affinity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an affinity that prefers any other node, beside what the template says."""
    of_nodes = affinity.get("nodeAffinity") or {}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    away = [
        {
            "weight": 100,
            "preference": {
                "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]}]
            },
        }
        for node in nodes
    ]
    return {
        **affinity,
        "nodeAffinity": {**of_nodes, preferred: [*(of_nodes.get(preferred) or ()), *away]},
    }


def _never_on(nodes: Sequence[str], affinity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an affinity that allows none of these nodes, beside what the template and others say."""
    # a field is compared with one value
    never = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return _with_requirements(affinity, "matchFields", never)


def _on_capacity(
    spot: ResolvedSpot, affinity: Mapping[str, Any], *, wanted: bool
) -> dict[str, Any]:
    """Return an affinity to nodes that may be taken away, or to those that are not said to be such."""
    operator = "In" if wanted else "NotIn"  # which nodes without the label meet, too
    asked = {"key": spot.label, "operator": operator, "values": [spot.value]}
    return _with_requirements(affinity, "matchExpressions", [asked])


def _with_requirements(
    affinity: Mapping[str, Any], kind: str, asked: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return an affinity that asks this of a node besides: in each of its terms, as each is enough by itself."""
    of_nodes = affinity.get("nodeAffinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_nodes.get(required) or {}).get("nodeSelectorTerms") or [{}]
    allowed = [{**each, kind: [*(each.get(kind) or ()), *asked]} for each in terms]
    return {
        **affinity,
        "nodeAffinity": {**of_nodes, required: {"nodeSelectorTerms": allowed}},
    }
