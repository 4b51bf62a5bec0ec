"""The Framework document: roles, templates, environment and policies as data. No code paths."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from airflow_training.documents.base import (
    DnsLabel,
    Many,
    Model,
    Number,
    RuntimeName,
    discriminate_by_kind,
)
from airflow_training.documents.logs import Logs
from airflow_training.documents.resolved import (
    DependencyStatus,
    FailureClass,
    RestartPolicy,
    RestartScope,
    RuleAction,
)

__all__ = [
    "DependencyDefault",
    "ElasticDefinition",
    "EnvDefinition",
    "ExitCodeDefinition",
    "FileDefinition",
    "Framework",
    "FrameworkSpec",
    "PortDefinition",
    "RoleDefinition",
    "TemplateLayer",
]

ExitCode = Annotated[int, Field(ge=1, le=255)]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _FrozenModel(Model):
    model_config = ConfigDict(frozen=True, validate_assignment=False)


class PortDefinition(_FrozenModel):
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=15)]
    container_port: Annotated[int, Field(ge=1, le=65535)]
    yields: bool = False
    """Left out where the job declares ports of its own."""


class DependencyDefault(_FrozenModel):
    """A default `dependsOn` entry; left out where the job does not have that role."""

    role: DnsLabel
    status: DependencyStatus = "AddressKnown"
    require: Literal["All", "Any"] = "All"
    listener: Literal["Each", "Any"] = "Each"
    answer: Literal["Auto", "List", "Confirmation"] = "Auto"


class TemplateLayer(_FrozenModel):
    """A pod template that counts only where something holds."""

    when: str = Field(min_length=1)
    """As that of a variable."""
    template: dict[str, Any]


class RoleDefinition(_FrozenModel):
    """One role the framework knows. The order in the document is the order of ranks."""

    name: DnsLabel
    description: str = ""
    required: bool = False
    chief: bool = False
    """Its index 0 decides the result; without one, the first ranked role of the job does."""
    ranked: bool = True
    tracked: bool = True
    max_replicas: int | None = Field(default=None, ge=1)
    ports: Many[PortDefinition] | None = None
    """Instead of the framework's."""
    depends_on: Many[DependencyDefault] = Field(default_factory=list)
    restart_policy: RestartPolicy | None = None
    own_command: bool = False
    """The role serves others: a command written for the whole job does not reach it."""
    command_prefix: Many[str] = Field(default_factory=list)
    """Words before the role's command, which they start. Templates over what is known before a run."""
    template: dict[str, Any] = Field(default_factory=dict)
    """PodTemplateSpec below the user's. Its texts may hold what a job's may, and `$(NAME)`."""
    templates: Many[TemplateLayer] = Field(default_factory=list)
    """Merged over `template`, in this order, those whose condition holds."""
    template_for: dict[RuntimeName, dict[str, Any]] = Field(default_factory=dict)
    """Merged over these on that runtime."""


class _Conditional(_FrozenModel):
    roles: Many[DnsLabel] = Field(default_factory=list)
    """Only for these; empty: for all."""
    when: str = ""
    """An expression over what is known before a run: parameters, runs_here, roles, elastic, ..."""


class EnvDefinition(_Conditional):
    name: EnvName
    value: str
    """A template."""
    overridable: bool = False
    """True: a default the user may set; False: reserved."""


class FileDefinition(_Conditional):
    path: str = Field(min_length=1)
    """A template. Relative: under the instance's own directory."""
    content: str
    executable: bool = False
    live: bool = False
    """Written from the addresses that are live when the instance is released."""


class ExitCodeDefinition(_FrozenModel):
    retryable: Many[ExitCode] = Field(default_factory=list)
    permanent: Many[ExitCode] = Field(default_factory=list)


class SuccessDefault(_FrozenModel):
    operator: Literal["All", "Any"] = "All"
    target_roles: Many[DnsLabel] = Field(default_factory=list)
    """Those the job has; where it has none of them (or none are named), every tracked role."""


class RuleDefault(_FrozenModel):
    name: str
    action: RuleAction
    on_classes: Many[FailureClass] = Field(default_factory=list)
    on_reasons: Many[str] = Field(default_factory=list)
    on_exit_codes: Many[ExitCode] = Field(default_factory=list)
    target_roles: Many[DnsLabel] = Field(default_factory=list)


class FailureDefault(_FrozenModel):
    operator: Literal["All", "Any"] = "Any"
    target_roles: Many[DnsLabel] = Field(default_factory=list)
    rules: Many[RuleDefault] = Field(default_factory=list)


class RestartDefault(_FrozenModel):
    scope: RestartScope = "Instance"


class ElasticDefinition(_FrozenModel):
    """Which roles may change in number while the others go on, and with what."""

    roles: Many[DnsLabel]
    mechanism: str
    """For people: what re-forms the group."""
    scope: RestartScope = "Instance"


class FrameworkMetadata(_FrozenModel):
    name: DnsLabel


class FrameworkSpec(_FrozenModel):
    description: str = ""
    container: DnsLabel = "main"
    ports: Many[PortDefinition] = Field(default_factory=list)
    roles: Many[RoleDefinition] = Field(default_factory=list)
    any_role: bool = False
    """Roles beyond those in `roles` are welcome, with plain defaults."""
    other_roles: DnsLabel | None = None
    """The role of `roles` that those beyond them are like; none: there are none beyond them."""
    env: Many[EnvDefinition] = Field(default_factory=list)
    files: Many[FileDefinition] = Field(default_factory=list)
    reserved_env: Many[EnvName] = Field(default_factory=list)
    """Reserved besides the names in `env`: what the framework's own launcher sets."""
    role_variable: EnvName = "TRAINING_ROLE"
    """What tells an instance its role; another one where the framework itself uses that name."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """JSON Schema of each parameter, by name."""
    restart_policy: RestartPolicy = "OnFailure"
    restart: RestartDefault = Field(default_factory=RestartDefault)
    success_policy: SuccessDefault = Field(default_factory=SuccessDefault)
    failure_policy: FailureDefault = Field(default_factory=FailureDefault)
    exit_codes: Annotated[
        Annotated[Literal["default", "kubeflow", "kubedl"], Tag("<text>")]
        | Annotated[ExitCodeDefinition, Tag("<object>")],
        discriminate_by_kind(
            "the name of a table or {retryable, permanent}", kinds=("<text>", "<object>")
        ),
    ] = "default"
    output_role: DnsLabel | None = None
    output_uri: str | None = None
    """A template, as `output.uri` of a job: where the output goes of a job that names no place."""
    clean_pod_policy: Literal["Running", "All", "None"] | None = None
    """Of jobs that say nothing; none: `Running`."""
    ttl_seconds_after_finished: Annotated[Number, Field(ge=0)] | None = None
    """Of jobs that say nothing; none: what is left of them stays."""
    elastic: ElasticDefinition | None = None
    logs: Logs = Field(default_factory=Logs)
    """Formats of lines that its programs print."""
    single_role: DnsLabel | None = None
    """Role that `--single` keeps as the only instance; none: the job makes no sense alone."""
    hook: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")] | None = None
    """`module:function` from ResolvedJob to ResolvedJob; only from an installed package."""

    def role(self, name: str) -> RoleDefinition | None:
        """Return the definition of a role, or None where the framework has none."""
        for role in self.roles:
            if role.name == self.kind_of(name):
                return role if role.name == name else role.model_copy(update={"name": name})
        return None

    def kind_of(self, name: str) -> str:
        """Return the name of the role in `roles` that a role is or is like; its own where it is like none."""
        known = any(role.name == name for role in self.roles)
        return name if known or self.other_roles is None else self.other_roles

    @model_validator(mode="after")
    def _roles_exist(self) -> FrameworkSpec:
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise PydanticCustomError("duplicate", "two roles have the same name")
        if sum(role.chief for role in self.roles) > 1:
            raise PydanticCustomError("conflict", "more than one role is the chief")
        if not self.roles and not self.any_role:
            raise PydanticCustomError("missing", "a framework has roles, or anyRole: true")
        return self


class Framework(_FrozenModel):
    """A framework as its author writes it."""

    api_version: Literal["airflow-training/v1"]
    kind: Literal["Framework"]
    metadata: FrameworkMetadata
    spec: FrameworkSpec

    @property
    def name(self) -> str:
        return self.metadata.name
