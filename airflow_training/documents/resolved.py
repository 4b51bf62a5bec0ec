"""The resolved job: immutable plain data, everything later rooms need and nothing they must look up.

Made by `frameworks.resolve`, stored by `state`, read by `control`, `runtimes` and `supervise`.
Standard library and our errors only. Serialise with `to_json` / `from_json`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from airflow_training.builtin_runtimes import HERE
from airflow_training.documents.resolved_blocks import (
    ResolvedCheckpoint,
    ResolvedCode,
    ResolvedData,
    ResolvedEnvironment,
    ResolvedLogPattern,
    ResolvedPlan,
    ResolvedTrainer,
)
from airflow_training.documents.stop_conditions import Over
from airflow_training.errors import InputError, Problem

DependencyStatus = Literal["Running", "AddressKnown", "PortOpen", "Ready", "Complete"]
FailureClass = Literal["user", "infrastructure", "preemption", "resource", "unknown"]
RestartPolicy = Literal["Always", "OnFailure", "Never", "ExitCode"]
RuleAction = Literal[
    "FailJob",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
    "RestartRole",
    "RestartInstance",
    "Ignore",
    "CompleteJob",
]
RestartScope = Literal["Instance", "Role", "Job"]
Startup = Literal["ordered", "perWave", "firstWaveReserveAll", "createAllHold"]
Threshold = int | str
"""`All`, `Any`, a count, or a percentage such as `50%`."""
PREFLIGHT_PORT = "preflight"
"""Name of the port at which instances measure the network before their commands start."""
KEY_LENGTH = 250
"""Of each text in a run's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """What names one execution of a job; `uid` is the opaque id used everywhere outside."""

    source: str
    """`cli`, or the deployment id of an Airflow."""
    run_id: str
    dag_id: str = ""
    group_id: str = ""
    map_index: int = -1

    @property
    def uid(self) -> str:
        """Return 20 characters of a-z and 2-7, equal for equal keys.

        Base 32, because object names carry only the first five: 33 million names for the runs of a
        job where hex digits would give one million.
        """
        parts = (self.source, self.dag_id, self.run_id, self.group_id, str(self.map_index))
        digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
        return base64.b32encode(digest).decode().lower()[:20]

    def check(self) -> None:
        """Raise InputError where a part of it is longer than the store keeps."""
        problems = [
            Problem(
                code="out_of_range",
                field=name,
                message=f"is longer than {KEY_LENGTH} characters",
                value=value,
            )
            for name in ("source", "dag_id", "run_id", "group_id")
            if len(value := getattr(self, name)) > KEY_LENGTH
        ]
        if problems:
            raise InputError(problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRef:
    """A run as the runtime sees it."""

    uid: str
    job: str
    namespace: str
    controller: str
    """Deployment id: adopt and sweep only one's own."""
    generation: int = 0
    submitted_at: float | None = None
    """None: the store does not know the run yet. What has another time is of an earlier run of that id."""

    @property
    def prefix(self) -> str:
        """Return `<job>-<5-character hash>`, with which every object name of the run begins."""
        return f"{self.job}-{self.uid[:5]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedDependency:
    role: str
    status: DependencyStatus = "AddressKnown"
    require: Literal["All", "Any"] = "All"
    listener: Literal["Each", "Any"] = "Each"
    answer: Literal["Auto", "List", "Confirmation"] = "Auto"
    timeout_seconds: float = 600.0
    poll_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTemplate:
    """A file the framework writes into the instance before its command starts."""

    path: str
    content: str
    reads_addresses: bool = False
    """True where the content depends on *live* addresses (so `answer: Auto` means `List`)."""
    executable: bool = False
    literal: bool = False
    """True where the content is written as it is, and no template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedNetworkRule:
    """Whom one rule of a network policy names; nobody named: everybody."""

    roles: tuple[str, ...] = ()
    peers: tuple[Mapping[str, Any], ...] = ()
    """As `NetworkPolicyPeer` of Kubernetes."""
    ports: tuple[int, ...] = ()
    """None of them: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedNetworkPolicy:
    """With whom the instances of a role may speak. None: with anybody."""

    ingress: tuple[ResolvedNetworkRule, ...] | None = None
    egress: tuple[ResolvedNetworkRule, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSpot:
    """Which instances of a role are on machines that may be taken away, and how such nodes are known."""

    from_index: int
    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRole:
    name: str
    replicas: int
    min_replicas: int | None = None
    max_replicas: int | None = None
    depends_on: tuple[ResolvedDependency, ...] = ()
    restart_policy: RestartPolicy = "OnFailure"
    backoff_limit: int = 6
    max_restarts: int | None = None
    """Of all its instances together; None: as many as the run has."""
    min_succeeded: Threshold = "All"
    min_failed: Threshold = "Any"
    tracked: bool = True
    container: str = "main"
    """Name of the training container inside `template`."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Port name -> number; the first one is what `PortOpen` and the address mean."""
    network_policy: ResolvedNetworkPolicy | None = None
    spot: ResolvedSpot | None = None
    """None: wherever the template says."""
    warm_spares: int = 0
    """Places that are held beside those of its instances."""
    template: Mapping[str, Any] = field(default_factory=dict)
    """Merged PodTemplateSpec as JSON; strings still hold the user's template expressions."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The framework's and our own environment as templates (the user's is in `template`)."""
    files: tuple[FileTemplate, ...] = ()
    rank_offset: int | None = 0
    """Rank of index 0; None where the role takes no rank (a parameter server, a launcher)."""
    chief: bool = False
    """True for the role whose index 0 is rank 0 (deleted last, its output counts)."""

    def rank_of(self, index: int) -> int | None:
        """Return the rank of one of its instances; None where the role takes none."""
        return None if self.rank_offset is None else self.rank_offset + index

    def is_on_spot(self, index: int) -> bool:
        """Return whether one of its instances is on a machine that may be taken away at any time."""
        return self.spot is not None and index >= self.spot.from_index

    @property
    def trains_network(self) -> bool:
        """Return whether its instances run our trainer, which the agent brings."""
        return "TRAINER_FILE" in self.env


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    name: str
    action: RuleAction
    on_classes: tuple[FailureClass, ...] = ()
    on_reasons: tuple[str, ...] = ()
    on_exit_codes: tuple[int, ...] = ()
    exit_code_operator: Literal["In", "NotIn"] = "In"
    on_message_pattern: str = ""
    target_roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSuccessPolicy:
    operator: Literal["All", "Any"] = "All"
    target_roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedFailurePolicy:
    operator: Literal["All", "Any"] = "Any"
    target_roles: tuple[str, ...] = ()
    rules: tuple[FailureRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodeTable:
    """Which exit codes may be retried; a code in neither set falls to its failure class."""

    name: str = "default"
    retryable: tuple[int, ...] = ()
    permanent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGrowth:
    """What the next attempt of an instance asks for whose host memory ran out."""

    factor: float
    up_to_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRules:
    scope: RestartScope = "Instance"
    max_restarts: int = 3
    window_seconds: float | None = None
    window_max_restarts: int | None = None
    backoff_initial_seconds: float = 2.0
    backoff_factor: float = 2.0
    backoff_max_seconds: float = 300.0
    exit_codes: ExitCodeTable = field(default_factory=ExitCodeTable)
    then: Literal["FreshJob", "Fail"] = "Fail"
    max_fresh_jobs: int = 1
    fresh_from: Literal["newest", "scratch"] = "newest"
    ready_timeout_seconds: float = 60.0
    on_out_of_memory: MemoryGrowth | None = None
    """None: each attempt asks for the same."""
    keep_failed_seconds: float = 0.0
    """How long the instance that failed first stays, once the job has failed; 0: it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfitNodePolicy:
    """Which machines an instance should leave, in the words of its runtime, and whether it does."""

    action: Literal["Move", "Warn", "Ignore"] = "Warn"
    max_moves: int = 5
    """Of an instance, and of all together where they restart together."""
    conditions: tuple[str, ...] | None = None
    """None: those that the runtime knows."""
    taints: tuple[str, ...] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPreflight:
    """What instances have to find before their commands start, besides what every start needs."""

    timeout_seconds: float
    gpus: int | None = None
    """None: what the resources of the role say."""
    gpu_free_bytes: int = 0
    """Of each."""
    disk_path: str = ""
    """"": where the instance keeps its own files."""
    disk_free_bytes: int = 0
    disk_bandwidth: float = 0.0
    """Bytes a second; 0: it is not measured."""
    network: bool = False
    network_bandwidth: float = 0.0
    """Bytes a second."""
    network_latency: float = 0.0
    """Seconds; 0: any."""
    network_wait_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    gang: str = "none"
    """In the word of the runtime that brings it."""
    keeps_size: bool = False
    """Its group stays as large as it began, and loses a member only to another."""
    min_available: int | None = None
    startup: Startup = "ordered"
    """Never `auto`: `control.gang` has chosen."""
    queue: str = ""
    priority_class_name: str = ""
    priority: int = 0
    preempts_lower_priority: bool = False
    """Runs of a lower priority give their place in our queue up to it."""
    schedule_timeout_seconds: float = 3600.0
    never_fits: Literal["Wait", "Fail"] = "Wait"
    """Where no machine could take an instance, even when it is empty."""
    unfit_nodes: UnfitNodePolicy = field(default_factory=UnfitNodePolicy)
    avoids_excluded: bool = True
    """Nothing of it is placed on nodes that are excluded for all runs."""
    spread: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedJob:
    """A job after defaults, framework merge and checks. Nothing in it changes any more."""

    name: str
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    framework: str = "custom"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Of the framework, with its defaults filled in."""
    runtime: str = HERE
    connection: str = ""
    runtime_options: Mapping[str, Any] = field(default_factory=dict)
    """What only the runtime understands, as its own model has checked it."""
    roles: tuple[ResolvedRole, ...] = ()
    """In rank order: the chief's role first."""
    success_policy: ResolvedSuccessPolicy = field(default_factory=ResolvedSuccessPolicy)
    failure_policy: ResolvedFailurePolicy = field(default_factory=ResolvedFailurePolicy)
    restart: RestartRules = field(default_factory=RestartRules)
    scheduling: Scheduling = field(default_factory=Scheduling)
    preflight: ResolvedPreflight | None = None
    """None: instances look at nothing that the job names."""
    active_deadline_seconds: float | None = None
    stop_until: str = ""
    """A condition under which it has done enough; empty: none."""
    stop_over: Over = "rank 0"
    """Whose values count where the condition does not say."""
    finishes: bool = False
    """The instance with the output is told to finish then, before all others are ended."""
    ttl_seconds_after_finished: float | None = None
    clean_pod_policy: Literal["Running", "All", "None"] = "Running"
    reconcile_seconds: float = 10.0
    unknown_seconds: float = 60.0
    grace_seconds: float = 30.0
    suspend: bool = False
    elastic: bool = False
    """True where the framework re-forms when replicas change; False: restart with dense ranks."""
    code: ResolvedCode | None = None
    """None: what runs is in the image, or on the machine."""
    environment: ResolvedEnvironment | None = None
    """None: commands run on the Python that the image or the machine has."""
    data: ResolvedData = field(default_factory=ResolvedData)
    checkpoint: ResolvedCheckpoint | None = None
    """None: the job keeps none."""
    output_uri: str = ""
    output_role: str = ""
    output_continuous: bool = False
    role_variable: str = "TRAINING_ROLE"
    """Name of the variable that tells an instance its role."""
    log_patterns: tuple[ResolvedLogPattern, ...] = ()
    """Formats of its own log lines, those of its framework last."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """What template expressions see: `params`, `run_id`, `logical_date`, data interval, assets."""
    base_dir: str = ""
    """Folder of the job file, absolute: `workingDir` on the local runtime is relative to it."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The user's document as written, for `export`."""
    plan: ResolvedPlan | None = None
    """None: nothing was planned."""
    trainer: ResolvedTrainer | None = None
    """None: its roles have a command of their own."""

    def role(self, name: str) -> ResolvedRole:
        """Return the role called `name`; raises KeyError."""
        for role in self.roles:
            if role.name == name:
                return role
        raise KeyError(name)

    def grace_of(self, role: str) -> float:
        """Return how many seconds an instance has to end: what its pod says, else the job's."""
        pod = next((each.template.get("spec") for each in self.roles if each.name == role), None)
        own = (pod or {}).get("terminationGracePeriodSeconds")
        return self.grace_seconds if own is None else float(own)

    @property
    def starts_from_elsewhere(self) -> bool:
        """Return whether training begins with something that another one left."""
        if self.data.initial_model:
            return True
        return self.checkpoint is not None and self.checkpoint.resume not in ("latest", "none")

    def may_shrink(self, name: str) -> bool:
        """Return whether a role goes on with fewer instances where not all can be had.

        An elastic one does. But a plan that was applied fits one size, a gang may have one for good
        (`keeps_size`), and any other gang starts with no fewer than its `minAvailable`.
        """
        plan = self.plan
        planned = plan is not None and bool(plan.applied_replicas or plan.applied_env)
        elastic = self.role(name).min_replicas is not None
        return elastic and not planned and self._gang_may_shrink

    @property
    def _gang_may_shrink(self) -> bool:
        gang = self.scheduling
        if gang.gang == "none" or gang.keeps_size:
            return not gang.keeps_size
        return gang.startup != "perWave" and self.gang_size < self.instances

    def least_of(self, name: str) -> int:
        """Return with how many instances a role can train: all of them, unless it may shrink."""
        role = self.role(name)
        return max(1, role.min_replicas or 0) if self.may_shrink(name) else role.replicas

    @property
    def gang_size(self) -> int:
        """Return how many instances its gang needs: `minAvailable`, else all."""
        return self.scheduling.min_available or self.instances

    @property
    def instances(self) -> int:
        """Return how many instances all roles want together."""
        return sum(role.replicas for role in self.roles)
