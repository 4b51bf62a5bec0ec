"""Environment and files of one instance, as plain dictionaries: all templates rendered, once.

Knows addresses and sizes, no runtime. Two values only the runtime knows stay as `$(NAME)`, which
every runtime expands: `TRAINING_INSTANCE_DIR`, the instance's own folder
(where it has one), and `TRAINING_REMOTE_SHELL`, the command that runs something inside another instance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote

from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.templates import USER_NAMES
from airflow_training.documents.templates import render as render_user
from airflow_training.errors import InputError
from airflow_training.frameworks.naming import instance_name
from airflow_training.frameworks.pods import requested_amounts, training_container
from airflow_training.frameworks.ranks import Numbering, chief_role, data_files, number
from airflow_training.frameworks.runtime_facts import RuntimeFacts
from airflow_training.frameworks.templates import FrameworkTemplateError
from airflow_training.frameworks.templates import render as render_framework

__all__ = ["InstancePlace", "RenderedFiles", "Rendering", "SupportsAddress"]

INSTANCE_DIR = "$(TRAINING_INSTANCE_DIR)"


class SupportsAddress(Protocol):
    """What is needed of an address; `runtimes.port.Address` is one."""

    @property
    def host(self) -> str: ...
    @property
    def ports(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePlace:
    """Which attempt of which instance is rendered."""

    role: str
    index: int
    job_attempt: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedFiles:
    files: Mapping[str, str] = field(default_factory=dict)
    live: Mapping[str, str] = field(default_factory=dict)
    executables: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """Renders what belongs to one instance; the same answer every time."""

    job: ResolvedJob
    place: InstancePlace
    run_id: str
    prefix: str
    addresses: Mapping[str, Sequence[SupportsAddress]]
    replicas: Mapping[str, int]
    """Sizes of now, of every role."""
    runtime: RuntimeFacts
    live: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Role -> live addresses, `host:port`."""
    output_dir: str = ""
    """TRAINING_OUTPUT_DIR, as the instance sees it."""
    code_dir: str = ""
    """TRAINING_CODE_DIR, as the instance sees it."""

    @property
    def role(self) -> ResolvedRole:
        return self.job.role(self.place.role)

    @property
    def numbering(self) -> Numbering:
        return number(self.job, self.place.role, self.place.index, replicas=self.replicas)

    def environment(self) -> dict[str, str]:
        """Return our variables and the framework's."""
        context = self._context()
        env = self._own()
        for name, template in self.role.env.items():
            env[name] = self._framework(template, context, f"variable {name}")
        return env

    def files(self) -> RenderedFiles:
        """Return the framework's files by path, those written from live addresses apart."""
        context = self._context()
        files: dict[str, str] = {}
        live: dict[str, str] = {}
        executables = set()
        for template in self.role.files:
            path = self._framework(template.path, context, "path of a file")
            target = live if template.reads_addresses else files
            target[path] = (
                template.content
                if template.literal
                else self._framework(template.content, context, f"file {path}")
            )
            if template.executable:
                executables.add(path)
        return RenderedFiles(files=files, live=live, executables=frozenset(executables))

    def user(self, text: str, *, where: str) -> str:
        """Return a text of the user's document rendered; raises InputError."""
        return render_user(text, self._variables(), self._functions(), field=where)

    # --- ours -----------------------------------------------------------------------------------

    def _own(self) -> dict[str, str]:
        job, place, numbers = self.job, self.place, self.numbering
        env = {
            "TRAINING_JOB": job.name,
            "TRAINING_RUN_ID": self.run_id,
            job.role_variable: place.role,
            "TRAINING_INDEX": str(place.index),
            "TRAINING_RANK": str(numbers.number),
            "TRAINING_WORLD_SIZE": str(numbers.instances),
            "TRAINING_ATTEMPT": str(place.attempt),
            "TRAINING_JOB_ATTEMPT": str(place.job_attempt),
            "TRAINING_OUTPUT_DIR": self.output_dir,
            "TRAINING_ADDRESS": self._address(place.role, place.index),
        }
        if job.code:
            env["TRAINING_CODE_DIR"] = self.code_dir
        data = job.data
        if data.uri:
            env["TRAINING_DATA_URI"] = self.user(data.uri, where="spec.data.uri")
        if (
            data.files and job.trainer is None
        ):  # a trainer's are in its file, where 10,000 have room
            env["TRAINING_DATA_FILES"] = json.dumps(self.data_files())
        if data.initial_model:
            env["TRAINING_INITIAL_MODEL_URI"] = self.user(
                data.initial_model, where="spec.data.initialModel"
            )
        if job.checkpoint:
            env["TRAINING_CHECKPOINT_URI"] = self.checkpoint_uri()
        if job.output_uri:
            env["TRAINING_OUTPUT_URI"] = self.output_uri()
        return env

    def data_files(self) -> list[str]:
        """Return the instance's own part of `data.files`, or all of them."""
        place = self.place
        return [
            self.user(name, where="spec.data.files")
            for name in data_files(self.job, place.role, place.index, replicas=self.replicas)
        ]

    def output_uri(self) -> str:
        """Return where the job's output goes; "" where it keeps none."""
        return self._below(self.job.output_uri, where="spec.output.uri")

    def checkpoint_uri(self) -> str:
        """Return where the job keeps its checkpoints; "" where it keeps none."""
        uri = self.job.checkpoint.uri if self.job.checkpoint else ""
        return self._below(uri, where="spec.checkpoint.uri")

    def _below(self, template: str, *, where: str) -> str:
        """Return an address rendered, which no value may lead out of what the document names."""
        uri = self.user(template, where=where)
        if _ups(uri) > _ups(template):
            raise InputError.of(
                code="not_allowed",
                field=where,
                value=uri,
                message=f"a value that is filled into '{template}' leads out of it by '..'",
                hint="take another run id or parameter",
            )
        return uri

    # --- what templates see ---------------------------------------------------------------------

    def _variables(self) -> dict[str, Any]:
        known: dict[str, Any] = dict.fromkeys(USER_NAMES, "")
        known |= {"params": {}, "triggering_assets": [], "run_id": self.run_id}
        known |= self.job.variables
        return known

    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {"address": self._address, "addresses": self._addresses}

    def _context(self) -> dict[str, Any]:
        job, numbers = self.job, self.numbering
        roles = {role.name: role for role in job.roles}
        sizes = {name: self.replicas.get(name, role.replicas) for name, role in roles.items()}
        ranked = [role for role in job.roles if role.rank_offset is not None]
        return {
            "chief": chief_role(job, sizes),
            "elastic": job.elastic,
            "parameters": job.parameters,
            "replicas": _Zero(sizes),
            "roles": [name for name, size in sizes.items() if size],
            "role": self.place.role,
            "total_replicas": sum(sizes.values()),
            "attempt": self.place.attempt,
            "job_attempt": self.place.job_attempt,
            "index": self.place.index,
            "rank": numbers.number if numbers.rank is None else numbers.rank,
            "world_size": numbers.world_size,
            "instances": numbers.instances,
            "min_instances": sum(
                sizes[r.name] if r.min_replicas is None else r.min_replicas for r in ranked
            ),
            "max_instances": sum(
                sizes[r.name] if r.max_replicas is None else r.max_replicas for r in ranked
            ),
            "instance_dir": INSTANCE_DIR,
            **self._hardware(),
            "job": job.name,
            "namespace": job.namespace,
            "run": self.prefix,
            "address": self._address,
            "addresses": self._addresses,
            "host": lambda role, index: self._reach(role, index).host,
            "hosts": lambda role: [each.host for each in self._all(role)],
            "port": self._port,
            "indexes": lambda role: list(range(sizes.get(role, 0))),
            "name": lambda role, index: instance_name(self.prefix, role, index),
            "live": lambda role: list(self.live.get(role, ())),
            **self.runtime.template_names,
        }

    def _hardware(self) -> dict[str, int | None]:
        """Return whole CPUs and GPUs that the instance asks for; None: it does not say."""
        container = training_container(self.role.template, None, name=self.role.container)
        asked = requested_amounts(container)
        gpus = [parse_quantity(amount) for name, amount in asked.items() if name.endswith("/gpu")]
        return {
            "cpus": math.ceil(parse_quantity(asked["cpu"])) if "cpu" in asked else None,
            "gpus": int(sum(gpus)) if gpus else None,
        }

    def _reach(self, role: str, index: int) -> SupportsAddress:
        known = self.addresses.get(role, ())
        if not 0 <= index < len(known):
            raise IndexError(f"there is no {role} {index}")
        return known[index]

    def _all(self, role: str) -> Sequence[SupportsAddress]:
        size = self.replicas.get(role, 0)
        return [self._reach(role, index) for index in range(size)]

    def _port(self, role: str, index: int, name: str = "") -> int:
        ports = self._reach(role, index).ports
        if name:
            return ports[name]
        if not ports:
            raise ValueError(f"the role {role} has no port")
        return next(iter(ports.values()))

    def _address(self, role: str, index: int) -> str:
        return _text(self._reach(role, index))

    def _addresses(self, role: str) -> list[str]:
        if role not in {each.name for each in self.job.roles}:
            raise ValueError(f"there is no role '{role}'")
        return [_text(each) for each in self._all(role)]

    def _framework(self, template: str, context: Mapping[str, Any], what: str) -> str:
        try:
            return render_framework(template, context)
        except FrameworkTemplateError as error:
            raise InputError.of(
                code="bad_template",
                field="spec.framework",
                value=self.job.framework,
                message=f"{what} of role '{self.place.role}': {error}",
            ) from error


class _Zero(dict[str, int]):
    """Sizes by role; a role the job does not have has size 0."""

    def __missing__(self, key: str) -> int:
        return 0


def _text(address: SupportsAddress) -> str:
    port = next(iter(address.ports.values()), None)
    return address.host if port is None else f"{address.host}:{port}"


def _ups(uri: str) -> int:
    """Return how often an address goes up, also where it says so in percent signs."""
    return sum(part == ".." for part in unquote(uri).split("/"))
