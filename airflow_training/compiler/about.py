"""What the button `Dag Docs` shows of a DAG of ours: which job it runs, and what its tasks do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_training.spec.words import counted

if TYPE_CHECKING:
    from airflow_training.compiler.source import JobSource
    from airflow_training.spec.models import TrainingJob

__all__ = ["FORM", "about"]

_HEAD = """\
| task | what it does |
|---|---|
| `plan` | checks the job with its parameters and queues it |
| `reconcile` | drives the run from start to end; its log tells the whole story |
"""
_END = """\
| `rollup` | says how the job ended, root cause first |
| `cleanup` | confirms that nothing is alive |

Mark the DAG run failed to stop the training.
"""
_ROLES = """\
| `<role>.await_<role>` | waits until what the role depends on is there |
| `<role>.run` | tells the story of a role; its link **Instance logs** leads to what the instances print |
"""
_MAPPED_ROLES = """\
| `role` | one per role: tells its story; the link **Instance logs** leads to what the instances print |
"""

FORM = f"""\
Runs the training job that its form names: a document, a template, or a file of the jobs folder.

{_HEAD}{_MAPPED_ROLES}{_END}"""
"""Of the DAG `training_job`."""


def about(job: TrainingJob, source: JobSource) -> str:
    """Return the text, as Markdown, of the DAG that a job becomes."""
    where = f", from `{source.path}`" if source.path else ""
    roles = "".join(
        f"- {role.name}: {counted(role.replicas, 'instance')}\n" for role in job.spec.roles
    )
    return (
        f"Training job **{job.metadata.name}**: framework `{job.spec.framework_name}`{where}.\n\n"
        f"{roles}\n{_HEAD}{_ROLES}{_END}"
    )
