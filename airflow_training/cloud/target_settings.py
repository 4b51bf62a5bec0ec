"""What a target runs submissions on: a document that a service reads, or that a login keeps where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from airflow_training.builtin_runtimes import is_runtime, runtime_names
from airflow_training.documents.base import DnsLabel, Model, RuntimeName
from airflow_training.documents.loading import load_documents, read_file
from airflow_training.documents.problems import problems_of, with_lines
from airflow_training.errors import InputError

__all__ = ["CloudRuntime", "TargetSettings", "is_direct", "read_settings", "settings_at"]


class CloudRuntime(Model):
    """Where the instances of all submissions run."""

    name: RuntimeName
    connection: str = ""
    """As `spec.runtime.connection` of a job."""


class TargetSettings(Model):
    """How submissions run that are not laid out in a folder of the service's machine."""

    runtime: CloudRuntime
    namespace: DnsLabel = "default"
    storage: Annotated[
        str,
        Field(
            pattern=r"^([a-z][a-z0-9+.-]*://|/)",
            description="an address or a path from the root: s3://bucket/cloud, /mnt/cloud",
        ),
    ]
    """Address at which both the service and its instances find code and leave output."""
    image: str = ""
    """One image: what its Python has is asked once, by a run in it."""
    images: str = ""
    """File of an `EnvironmentCatalogue`: images with the records of their Pythons."""
    python: str = "python3"
    """Interpreter in `image`."""
    builds: bool = True
    """Whether packages that an image lacks are installed."""
    resources: dict[str, Any] = Field(default_factory=dict)
    """Of each replica, where a submission says nothing."""
    address: Annotated[
        str,
        Field(pattern=r"^(https?://[^/].*)?$", description="a URL: https://cloud.example.com"),
    ] = ""
    """URL of the service as its instances reach it, for data on demand; empty: they leave requests in the storage."""
    env: list[dict[str, Any]] = Field(default_factory=list)
    """As these of a job: of all instances, whatever their framework calls their container."""
    env_from: list[dict[str, Any]] = Field(default_factory=list)
    """As `env`, and so `volumes` and `volume_mounts`."""
    volumes: list[dict[str, Any]] = Field(default_factory=list)
    volume_mounts: list[dict[str, Any]] = Field(default_factory=list)
    template: dict[str, Any] = Field(default_factory=dict)
    """PodTemplateSpec: node selectors, tolerations, imagePullSecrets ..."""

    def add_to(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the `spec` of a job with what all instances of the target get; a variable of the job goes first."""
        own = list(spec.get("env") or ())
        taken = {each["name"] for each in own}
        added = {
            "env": [*(each for each in self.env if each.get("name") not in taken), *own],
            "envFrom": self.env_from,
            "volumes": self.volumes,
            "volumeMounts": self.volume_mounts,
        }
        found = {**spec, **{key: value for key, value in added.items() if value}}
        if self.template:
            found["roles"] = [{**role, "template": self.template} for role in spec["roles"]]
        return found

    def to_json(self) -> Mapping[str, Any]:
        """What `from_json` reads."""
        return self.model_dump(by_alias=True, exclude_unset=True)

    @classmethod
    def from_json(cls, document: Any, *, field: str = "spec") -> TargetSettings:
        """Raises InputError with every mistake."""
        try:
            found: TargetSettings = cls.__pydantic_validator__.validate_python(
                document, by_alias=True, by_name=False
            )
        except ValidationError as error:
            prefix = (field,) if field else ()
            raise InputError(problems=problems_of(error, model=cls, prefix=prefix)) from None
        if bool(found.image) == bool(found.images):
            raise InputError.of(
                code="missing" if not found.image else "conflict",
                field=f"{field}.image".lstrip("."),
                message="one of image and images says what instances run in",
                hint="image: registry.example.com/training/torch:2.9",
            )
        return found


class _Metadata(Model):
    name: DnsLabel = "cloud"


class _ServiceDocument(Model):
    api_version: Literal["airflow-training/v1"]
    kind: Literal["CloudService"]
    metadata: _Metadata = Field(default_factory=_Metadata)
    spec: dict[str, Any]


def read_settings(path: Path) -> TargetSettings:
    """Read a file with a document `kind: CloudService`; names of files count from its folder.

    Raises InputError with every mistake and its line.
    """
    documents = load_documents(read_file(path), str(path))
    if len(documents) != 1:
        raise InputError.of(
            code="wrong_type", field="", message="one document is wanted here", path=str(path)
        )
    problems = list(documents[0].problems)
    found = None
    try:
        document = _ServiceDocument.__pydantic_validator__.validate_python(
            documents[0].data, by_alias=True, by_name=False
        )
        found = TargetSettings.from_json(document.spec)
    except ValidationError as error:
        problems += problems_of(error, model=_ServiceDocument)
    except InputError as error:
        problems += error.problems
    if found is None or problems:
        raise InputError(problems=with_lines(problems, documents[0].lines), path=str(path))
    if found.images:
        found.images = str((path.parent / found.images).absolute())
    return found


def is_direct(address: str) -> bool:
    """Whether an address means a runtime that this machine reaches itself: `RUNTIME:CONNECTION/NAMESPACE`."""
    name, colon, rest = address.partition(":")
    return bool(colon) and not rest.startswith("//") and is_runtime(name)


def settings_at(address: str, given: Mapping[str, Any]) -> TargetSettings:
    """The settings of a target without a service; `given`: those of its file or of the command line.

    Raises InputError.
    """
    name, _, rest = address.partition(":")
    connection, slash, namespace = rest.rpartition("/")
    if not is_runtime(name) or not slash or not namespace:
        raise InputError.of(
            code="not_allowed",
            field="URL",
            value=address,
            message="names no runtime and namespace",
            allowed=["https://...", *(f"{each}:CONTEXT/NAMESPACE" for each in runtime_names())],
        )
    runtime = {"name": name, "connection": connection}
    if not given.get("storage"):
        raise InputError.of(
            code="missing",
            field="--storage",
            message="code and output lie in a storage that this machine and the instances reach",
            hint="--storage s3://bucket/training, or file:///PATH of a shared volume",
        )
    if given.get("address"):
        raise InputError.of(
            code="conflict",
            field="address",
            value=given["address"],
            message="is that of a service, and this target has none: it ends with each command",
            hint="leave it out: instances leave what they ask for in the storage",
        )
    return TargetSettings.from_json({**given, "runtime": runtime, "namespace": namespace}, field="")
