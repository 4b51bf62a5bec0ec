"""What the button `Dag Docs` shows of a DAG of ours: which job it runs, and what its tasks do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_training.compiler.source import JobSource
    from airflow_training.documents.parsing import TrainingJob

__all__ = ["FORM", "GENERIC_DAG", "about"]

GENERIC_DAG = "training_job"
"""Id of the DAG that runs any job."""

_HEAD = """\
- **plan** checks the job with its parameters and queues it
- **reconcile** drives the run from start to end; its log tells the whole story
"""
_ROLES = """\
- **await_&lt;role&gt;** waits until what its role depends on is there
- **run** tells the story of its role; what the instances print: its tab Details, link Instance logs
"""
_MAPPED_ROLES = """\
- **role**, one per role, tells its story; what the instances print: its tab Details, link Instance logs
"""
_END = """\
- **rollup** says how the job ended, root cause first
- **cleanup** confirms that nothing is alive

Mark the DAG run failed to stop the training.
"""

FORM = f"""\
Runs the training job that its form names: a document, a template, or a file of the jobs folder.

[New training](plugin/training-new) puts a document together with you, and says what is wrong with it while you type.

{_HEAD}{_MAPPED_ROLES}{_END}"""
"""Of the DAG `training_job`."""


def about(job: TrainingJob, source: JobSource) -> str:
    """Return the text, as Markdown, of the DAG that a job becomes."""
    roles = ", ".join(f"{role.name} ({role.replicas})" for role in job.spec.roles)
    where = f"\n\nFile: {source.path}" if source.path else ""
    return (
        f"Training job **{job.metadata.name}**: {job.spec.framework_name}, roles {roles}.{where}"
        f"\n\n{_HEAD}{_ROLES}{_END}\n{_fenced(job.to_yaml())}"
    )


def _fenced(text: str) -> str:
    """Return a text as a block of code, behind a fence longer than any in it."""
    fence = "`" * max(3, *(len(each) + 1 for each in re.findall("`{3,}", text)), 3)
    return f"{fence}yaml\n{text}{fence}\n"
