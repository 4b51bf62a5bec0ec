"""The trigger form of the generic DAG, and which job it names. Users name no other server files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import Param

from airflow_training.admission.job_templates import find_template, template_names
from airflow_training.compiler.source import JobSource
from airflow_training.errors import InputError
from airflow_training.settings import load_settings

__all__ = ["form_params", "job_files", "job_of_form"]

_SUFFIXES = (".yaml", ".yml", ".json")
_NONE = {"null": "none"}
"""How the form's lists show that nothing is chosen."""
_EXAMPLE = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: hello}
spec:
  framework: custom
  command: [python, -c, "print('hello')"]
  roles:
    - {name: worker, replicas: 2}
"""


def job_files(folder: Path) -> list[Path]:
    """Return the job files of a folder and its sub-folders, in order; hidden ones are left out."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and path.is_file()
    )


def form_params() -> dict[str, Param]:
    """Return the fields of the form: a job as text, a template or a job file, and parameters."""
    settings = load_settings()
    return {
        "job": Param(
            None,
            type=["null", "string"],
            format="multiline",
            title="Job",
            description_md=f"A TrainingJob document (YAML or JSON), unless one is chosen below:\n```yaml\n{_EXAMPLE}```\n"
            "[New training](plugin/training-new) puts one together with you.",
        ),
        "template": Param(
            None,
            type=["null", "string"],
            enum=[None, *template_names(settings.templates_folder)],
            values_display=_NONE,
            title="Template",
            description="A job template of this Airflow, instead of a text.",
        ),
        "path": Param(
            None,
            type=["null", "string"],
            enum=[None, *_names(settings.jobs_folder)],
            values_display=_NONE,
            title="Job file",
            description="A file of the jobs folder, instead of a text.",
        ),
        "parameters": Param(
            {},
            type="object",
            title="Parameters",
            description='Values of the job\'s own parameters, for example {"lr": 0.1}.',
        ),
    }


def job_of_form(form: Mapping[str, Any]) -> JobSource:
    """Return the job that the form names; raises InputError unless it is exactly one."""
    settings = load_settings()
    given = [name for name in ("job", "template", "path") if form.get(name)]
    if len(given) != 1:
        message = "give exactly one of job, template and path"
        if given:
            message += f", not {' and '.join(given)}"
        raise InputError.of(
            code="conflict" if given else "missing",
            field=given[0] if given else "job",
            message=message,
            allowed=["job", "template", "path"],
        )
    if given == ["job"]:
        # no base_dir: a relative workingDir or framework file would name files of the server
        return JobSource(text=form["job"])
    if given == ["template"]:
        path = find_template(form["template"], folder=settings.templates_folder)
        return JobSource(path=str(path), base_dir=str(path.parent))
    return _from_folder(form["path"], settings.jobs_folder)


def _names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in job_files(folder)]


def _from_folder(name: str, folder: Path) -> JobSource:
    """Return a listed file; a name that is not in the list is refused, wherever it leads."""
    if name not in (names := _names(folder)):
        raise InputError.of(
            code="not_allowed",
            field="path",
            value=name,
            message=f"'{name}' is not in {folder}",
            allowed=names,
        )
    path = folder / name
    return JobSource(path=str(path), base_dir=str(path.parent))
