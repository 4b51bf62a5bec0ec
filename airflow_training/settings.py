"""The `[training]` configuration section: one table of options, read without importing Airflow.

Airflow shows the same table through the provider info. A value comes from
`AIRFLOW__TRAINING__<OPTION>`, else from `[training]` in `$AIRFLOW_HOME/airflow.cfg`, else from here.
"""

from __future__ import annotations

import configparser
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from airflow_training.builtin_runtimes import HERE, OURS

__all__ = [
    "OPTIONS",
    "Option",
    "Settings",
    "airflow_home",
    "frameworks_folder",
    "layer_types_folder",
    "load_settings",
    "option_text",
    "user_name",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    default: str
    description: str
    type: str = "string"
    sensitive: bool = False


OPTIONS: Mapping[str, Option] = {
    "sql_alchemy_conn": Option(
        default="",
        description="SQLAlchemy URL of the store. Empty: sqlite:///$AIRFLOW_HOME/airflow_training.db.",
        sensitive=True,
    ),
    "deployment_id": Option(
        default="",
        description="Names this deployment on everything it creates. Empty: made once, kept in the store.",
    ),
    "default_runtime": Option(
        default=HERE, description=f"Runtime of jobs that name none: {' or '.join(OURS)}."
    ),
    "allow_local": Option(
        default="False",
        description="Let DAGs start training processes on the machine of the triggerer.",
        type="boolean",
    ),
    "local_dir": Option(
        default="",
        description="Where the local runtime keeps runs. Empty: $AIRFLOW_HOME/training.",
    ),
    "local_env": Option(
        default="",
        description="Comma-separated names (with * at the end) that local instances inherit, besides"
        " PATH, HOME, LANG, LC_*, TZ, TMPDIR, VIRTUAL_ENV, LD_LIBRARY_PATH and CUDA_*, NVIDIA_*.",
    ),
    "jobs_folder": Option(
        default="", description="Folder whose job files become DAGs. Empty: $AIRFLOW_HOME/jobs."
    ),
    "templates_folder": Option(
        default="",
        description="Folder of named job templates. Empty: $AIRFLOW_HOME/job_templates.",
    ),
    "frameworks_folder": Option(
        default="",
        description="Folder of your own framework files. Empty: $AIRFLOW_HOME/frameworks.",
    ),
    "environments": Option(
        default="",
        description="Address of the storage of named environments (s3://..., file://..., a folder). Empty: none,"
        " jobs may name builtin only.",
    ),
    "causes_folder": Option(
        default="",
        description="Folder of your own causes of failure. Empty: $AIRFLOW_HOME/causes.",
    ),
    "layer_types_folder": Option(
        default="",
        description="Folder of your own types of layers. Empty: $AIRFLOW_HOME/layer_types.",
    ),
    "remote_framework_prefixes": Option(
        default="",
        description="Comma-separated address prefixes a framework may be fetched from. Empty: none.",
    ),
    "max_running_jobs": Option(
        default="0", description="Jobs that run at the same time; 0: no limit.", type="integer"
    ),
    "max_replicas": Option(
        default="100000",
        description="Instances that a job may have, all its roles together, also after `scale`.",
        type="integer",
    ),
    "max_run_seconds": Option(
        default="0",
        description="Ceiling of activeDeadlineSeconds, also for jobs without one; 0: none.",
        type="integer",
    ),
    "allowed_namespaces": Option(
        default="*", description="Comma-separated namespaces a job may name; * is any."
    ),
    "allowed_connections": Option(
        default="*", description="Comma-separated Airflow connections a job may name; * is any."
    ),
    "allowed_service_accounts": Option(
        default="*", description="Comma-separated service accounts a job may name; * is any."
    ),
    "kubernetes_connection": Option(
        default="",
        description="Airflow connection of Kubernetes jobs that name none. Empty: kubernetes_default;"
        " outside Airflow the current context of kubeconfig.",
    ),
    "slurm_rest_url": Option(
        default="",
        description="slurmrestd that Slurm jobs are asked of, in the place of Slurm's commands: http://host:6820, https://...,"
        " or unix:///path of its socket. Empty: the commands.",
    ),
    "slurm_rest_user": Option(
        default="",
        description="Whose jobs those are. Empty: the user of this process.",
    ),
    "slurm_rest_token_file": Option(
        default="",
        description="File with the token for slurmrestd, read at each request. Empty: the variable SLURM_JWT.",
    ),
    "agent_image": Option(
        default="python:3.12-alpine",
        description="Image of the init container that holds an instance: any with Python 3.8 or newer."
        " Empty: the image of the training container.",
    ),
    "agent_user": Option(
        default="65532",
        description="User id of that container. 0: the cluster says who (OpenShift, whose namespaces"
        " have user ids of their own).",
        type="integer",
    ),
    "callback_url": Option(
        default="",
        description="Where instances on Kubernetes report progress. Empty: beside the job's output.",
    ),
    "log_archive": Option(
        default="",
        description="Address where the logs of ended instances on Kubernetes are kept (s3://...,"
        " file://...). Empty: local_dir/logs of the machine that watches them.",
    ),
    "log_archive_tail_bytes": Option(
        default="1048576",
        description="How much of the end of each log is kept there; 0: the whole log.",
        type="integer",
    ),
    "read_logs": Option(
        default="True",
        description="Take metrics and progress of running jobs from their logs, in a process of its own,"
        " where the scripts report none.",
        type="boolean",
    ),
    "planner_constants": Option(
        default="",
        description="File of `airflow-training plan calibrate` that plans are made with."
        " Empty: the shipped constants.",
    ),
    "node_failures": Option(
        default="3",
        description="Failures that speak against a node, within node_failure_hours, after which nothing new is placed"
        " on it for node_exclusion_hours; 0: never.",
        type="integer",
    ),
    "node_failure_hours": Option(
        default="24", description="How long a failure speaks against its node.", type="integer"
    ),
    "node_exclusion_hours": Option(
        default="24",
        description="How long a node that failed too often is excluded.",
        type="integer",
    ),
    "act_on": Option(
        default="any",
        description="Whose runs a user may pause, resume, stop and scale on the pages, of those that Airflow"
        " lets them change: any, or own (those that they submitted).",
    ),
    "cloud_idle_seconds": Option(
        default="300",
        description="How long the service of this machine that `cloud run` starts stays for the next command"
        " after its last one; 0: it ends with the command.",
        type="integer",
    ),
    "cloud_most_gb": Option(
        default="0",
        description="What a service of `airflow-training cloud` may keep in its folder, in 10^9 bytes: beyond it chunks"
        " and contents that no run needs are removed, then folders of runs that are over, the oldest first; 0: any.",
        type="integer",
    ),
    "cloud_account_gb": Option(
        default="0",
        description="What a service of `airflow-training cloud` may keep of one account's contents and chunks, in 10^9"
        " bytes: a submission beyond it is refused before it is sent; 0: any.",
        type="integer",
    ),
    "cloud_folder": Option(
        default="",
        description="Folder for what `airflow-training cloud run` sends to this Airflow: one that API servers,"
        " workers and triggerers reach at the same path. Empty: $AIRFLOW_HOME/training-cloud/airflow, where"
        " all run on one machine; else nothing is taken.",
    ),
    "cloud_resources": Option(
        default="",
        description="Comma-separated resources of each replica that `airflow-training cloud run` sends to this Airflow and"
        " says nothing of: cpu=4, memory=8Gi. Empty: none.",
    ),
    "job_policy": Option(
        default="",
        description="module:function called with (job, user); raises or returns a message to refuse.",
    ),
}


def airflow_home() -> Path:
    """Return `$AIRFLOW_HOME`, `~/airflow` by default."""
    return Path(os.environ.get("AIRFLOW_HOME") or "~/airflow").expanduser()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All options with their types and default folders filled in."""

    sql_alchemy_conn: str
    deployment_id: str
    default_runtime: str
    allow_local: bool
    local_dir: Path
    local_env: tuple[str, ...]
    jobs_folder: Path
    templates_folder: Path
    frameworks_folder: Path
    environments: str
    causes_folder: Path
    layer_types_folder: Path
    remote_framework_prefixes: tuple[str, ...]
    max_running_jobs: int
    max_replicas: int
    max_run_seconds: int
    allowed_namespaces: tuple[str, ...]
    allowed_connections: tuple[str, ...]
    allowed_service_accounts: tuple[str, ...]
    kubernetes_connection: str
    slurm_rest_url: str
    slurm_rest_user: str
    slurm_rest_token_file: str
    agent_image: str
    agent_user: int
    callback_url: str
    log_archive: str
    log_archive_tail_bytes: int
    read_logs: bool
    planner_constants: str
    node_failures: int
    node_failure_hours: int
    node_exclusion_hours: int
    act_on: str
    cloud_idle_seconds: int
    cloud_most_gb: int
    cloud_account_gb: int
    cloud_folder: Path
    cloud_resources: tuple[tuple[str, str], ...]
    job_policy: str


_FOLDERS: Mapping[str, str] = {
    "local_dir": "training",
    "jobs_folder": "jobs",
    "templates_folder": "job_templates",
    "frameworks_folder": "frameworks",
    "causes_folder": "causes",
    "layer_types_folder": "layer_types",
    "cloud_folder": "training-cloud/airflow",
}
"""Where each folder is in `$AIRFLOW_HOME` by default."""


@lru_cache(maxsize=8)
def _section(path: Path, mtime: float) -> Mapping[str, str]:
    del mtime  # part of the cache key: an edited file is read again
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
    return dict(parser["training"]) if parser.has_section("training") else {}


def load_settings() -> Settings:
    """Return the settings of now; raises ValueError for what cannot be read."""
    home = airflow_home()
    section = _configured(home)
    raw = {name: _text(name, section) for name in OPTIONS}
    values: dict[str, Any] = {}
    for each in fields(Settings):
        text = raw[each.name].strip()
        if each.name in _FOLDERS:
            values[each.name] = _folder(each.name, text, home)
        elif each.type == "bool":
            values[each.name] = text.lower() in {"1", "true", "t", "yes", "on"}
        elif each.type == "int":
            try:
                values[each.name] = int(text)
            except ValueError:
                raise ValueError(f"[training] {each.name}: {text!r} is no whole number") from None
        elif each.type == "tuple[tuple[str, str], ...]":
            values[each.name] = _pairs(each.name, text)
        elif each.type == "tuple[str, ...]":
            values[each.name] = tuple(part.strip() for part in text.split(",") if part.strip())
        else:
            values[each.name] = text
    if values["act_on"] not in ("any", "own"):  # a slip must not give rights away
        raise ValueError(f"[training] act_on: {values['act_on']!r} is neither any nor own")
    rest = values["slurm_rest_url"]
    if rest and not re.fullmatch(r"https?://[^/?#]+/?|unix:///[^?#]+", rest):
        raise ValueError(
            f"[training] slurm_rest_url: {rest!r} is neither http://host:port, https://... nor unix:///path"
        )
    if not values["sql_alchemy_conn"]:
        values["sql_alchemy_conn"] = f"sqlite:///{home / 'airflow_training.db'}"
    return Settings(**values)


def _pairs(option: str, text: str) -> tuple[tuple[str, str], ...]:
    """Names and values; no mapping, as settings are hashed."""
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = (each.strip() for each in part.partition("="))
        if not name or not value:
            raise ValueError(f"[training] {option}: {part!r} is no NAME=VALUE")
        found[name] = value
    return tuple(found.items())


def option_text(name: str) -> str:
    """Return an option as somebody has written it; its default where nobody has."""
    return _text(name, _configured(airflow_home())).strip()


def user_name() -> str:
    """Return who runs this process: what the system says, not what the environment claims."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container whose user has no name
        return f"uid {os.getuid()}"


def frameworks_folder() -> Path:
    """Return that setting alone: parsing a DAG needs no other, and reading all takes longer."""
    home = airflow_home()
    return _folder("frameworks_folder", option_text("frameworks_folder"), home)


def layer_types_folder() -> Path:
    """Return that setting alone."""
    return _folder("layer_types_folder", option_text("layer_types_folder"), airflow_home())


def _configured(home: Path) -> Mapping[str, str]:
    cfg = home / "airflow.cfg"
    return _section(cfg, cfg.stat().st_mtime) if cfg.is_file() else {}


def _text(name: str, section: Mapping[str, str]) -> str:
    variable = f"AIRFLOW__TRAINING__{name.upper()}"
    return os.environ.get(variable, section.get(name, OPTIONS[name].default))


def _folder(name: str, text: str, home: Path) -> Path:
    return Path(text).expanduser() if text else home / _FOLDERS[name]
