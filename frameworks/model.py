"""The Framework document: roles, templates, environment and policies as data. No code paths."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from airflow_training.spec.resolved import (
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
    "ExitCodes",
    "FileDefinition",
    "Framework",
    "FrameworkSpec",
    "PortDefinition",
    "RoleDefinition",
]

Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
"""RFC 1123."""
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True
    )


class PortDefinition(_Model):
    name: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=15)]
    container_port: int = Field(ge=1, le=65535)


class DependencyDefault(_Model):
    """A default `dependsOn` entry; left out where the job does not have that role."""

    role: Label
    status: DependencyStatus = "AddressKnown"
    require: Literal["All", "Any"] = "All"
    listener: Literal["Each", "Any"] = "Each"
    answer: Literal["Auto", "List", "Confirmation"] = "Auto"


class RoleDefinition(_Model):
    """One role the framework knows. The order in the document is the order of ranks."""

    name: Label
    description: str = ""
    required: bool = False
    chief: bool = False
    """Its index 0 decides the result; without one, the first ranked role of the job does."""
    ranked: bool = True
    tracked: bool = True
    max_replicas: int | None = Field(default=None, ge=1)
    ports: tuple[PortDefinition, ...] | None = None
    """Instead of the framework's."""
    depends_on: tuple[DependencyDefault, ...] = ()
    restart_policy: RestartPolicy | None = None
    own_command: bool = False
    """The role serves others: a command written for the whole job does not reach it."""
    template: dict[str, Any] = Field(default_factory=dict)
    template_for: dict[Literal["local", "kubernetes"], dict[str, Any]] = Field(
        default_factory=dict
    )
    """Merged over `template` on that runtime."""


class _Conditional(_Model):
    roles: tuple[Label, ...] = ()
    """Only for these; empty: for all."""
    when: str = ""
    """An expression over what is known before a run: parameters, runtime, roles, elastic, ..."""


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


class ExitCodes(_Model):
    retryable: tuple[Annotated[int, Field(ge=1, le=255)], ...] = ()
    permanent: tuple[Annotated[int, Field(ge=1, le=255)], ...] = ()


class SuccessDefault(_Model):
    operator: Literal["All", "Any"] = "All"
    target_roles: tuple[Label, ...] = ()
    """Those the job has; where it has none of them (or none are named), every tracked role."""


class RuleDefault(_Model):
    name: str
    action: RuleAction
    on_classes: tuple[FailureClass, ...] = ()
    on_reasons: tuple[str, ...] = ()
    on_exit_codes: tuple[Annotated[int, Field(ge=1, le=255)], ...] = ()
    target_roles: tuple[Label, ...] = ()


class FailureDefault(_Model):
    operator: Literal["All", "Any"] = "Any"
    target_roles: tuple[Label, ...] = ()
    rules: tuple[RuleDefault, ...] = ()


class RestartDefault(_Model):
    scope: RestartScope = "Instance"


class ElasticDefinition(_Model):
    """Which roles may change in number while the others go on, and with what."""

    roles: tuple[Label, ...]
    mechanism: str
    """For people: what re-forms the group."""
    scope: RestartScope = "Instance"


class Metadata(_Model):
    name: Label


class FrameworkSpec(_Model):
    description: str = ""
    container: Label = "main"
    ports: tuple[PortDefinition, ...] = ()
    roles: tuple[RoleDefinition, ...] = ()
    any_role: bool = False
    """Roles beyond those in `roles` are welcome, with plain defaults."""
    env: tuple[EnvDefinition, ...] = ()
    files: tuple[FileDefinition, ...] = ()
    reserved_env: tuple[EnvName, ...] = ()
    """Reserved besides the names in `env`: what the framework's own launcher sets."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """JSON Schema of each parameter, by name."""
    restart_policy: RestartPolicy = "OnFailure"
    restart: RestartDefault = RestartDefault()
    success_policy: SuccessDefault = SuccessDefault()
    failure_policy: FailureDefault = FailureDefault()
    exit_codes: Literal["default", "kubeflow", "kubedl"] | ExitCodes = "default"
    output_role: Label | None = None
    elastic: ElasticDefinition | None = None
    single_role: Label | None = None
    """Role that `--single` keeps as the only instance; none: the job makes no sense alone."""
    hook: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")] | None = None
    """`module:function` from ResolvedJob to ResolvedJob; only from an installed package."""

    def role(self, name: str) -> RoleDefinition | None:
        """Return the definition of a role, or None where the framework has none."""
        return next((role for role in self.roles if role.name == name), None)

    @model_validator(mode="after")
    def _roles_exist(self) -> FrameworkSpec:
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise ValueError("two roles have the same name")
        if sum(role.chief for role in self.roles) > 1:
            raise ValueError("more than one role is the chief")
        if not self.roles and not self.any_role:
            raise ValueError("a framework has roles, or anyRole: true")
        return self


class Framework(_Model):
    """A framework as its author writes it."""

    api_version: Literal["airflow-training/v1"]
    kind: Literal["Framework"]
    metadata: Metadata
    spec: FrameworkSpec

    @property
    def name(self) -> str:
        return self.metadata.name
