"""`plan`: checks the job once more, resolves its parameters, stores the run and begins it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_training.errors import InputError, RuntimeUnavailable, TrainingError
from airflow_training.operators.failing import failure

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_training.compiler.source import JobSource
    from airflow_training.operators.admit import AdmittedRun

__all__ = ["PlanFormOperator", "PlanOperator"]


AWAY_SECONDS = 120.0
"""How long cluster and store may be away until the task fails: an API server that is replaced, a database that restarts."""
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 20.0


class PlanOperator(BaseOperator):
    """Creates the run of a group, queues it and begins it; returns a small reference to it.

    A mistake in the job fails the task at once, with the text the command line would print.

    Args:
        source: Where the job's document is. It is no template: Airflow never renders it.
        arguments: Values of the job's parameters; may hold XCom arguments.
        group_id: The task group, empty at the top of a DAG.
        dag_params: The DAG's own parameters are the job's, as in a DAG made from a job file.

    Raises:
        AirflowFailException: the job was refused, or could not be checked; the text is the one of
            `airflow-training validate`.

    >>> from airflow_training.compiler.source import JobSource
    >>> PlanOperator(task_id="plan", source=JobSource(path="digits.yaml"), arguments={"lr": 0.1})
    <Task(PlanOperator): plan>
    """

    template_fields: Sequence[str] = ("arguments",)
    ui_color = "#e8f0fe"

    def __init__(
        self,
        *,
        source: JobSource | None = None,
        arguments: Any = None,
        group_id: str = "",
        dag_params: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.arguments = arguments
        self.group_id = group_id
        self.dag_params = dag_params

    def execute(self, context: Context) -> Any:
        """Return the reference of the run; raises AirflowFailException for a mistake in the job."""
        try:
            admitted = self._admit_once_answered(context)
        except InputError as error:
            self._tell(context, str(error))
            raise failure(f"the job was refused\n{error}", log=self.log) from None
        except RuntimeUnavailable as error:
            self._tell(context, str(error))
            told = (
                f"the job could not be checked: {error} (asked for {AWAY_SECONDS:g} s);"
                " nothing of it was begun: clear this task once it answers"
            )
            raise failure(told, log=self.log) from None
        for warning in admitted.warnings:
            self.log.warning("%s", warning)
        if admitted.plan is not None:
            from airflow_training.planning.answers.text import plan_lines

            for line in plan_lines(admitted.plan.document):
                self.log.info("%s", line)
        stands = "has begun; reconcile goes on with it" if admitted.begun else "is queued"
        self.log.info("run %s of job %s %s", admitted.uid, admitted.job, stands)
        return admitted.reference()

    def _admit_once_answered(self, context: Context) -> AdmittedRun:
        """Create the run; where cluster or store are away for a moment, ask again: this task has no retries.

        A run that was stored by then is left as it is. Raises InputError, RuntimeUnavailable.
        """
        until, pause = time.monotonic() + AWAY_SECONDS, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.admit(context)
            except RuntimeUnavailable as error:
                left = until - time.monotonic()
                if left < pause:
                    raise
                self.log.warning(
                    "the job cannot be checked yet: %s; asked again in %g s, for %.0f s at most",
                    error,
                    pause,
                    left,
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _tell(self, context: Context, why: str) -> None:
        """Keep why, where somebody waits for it elsewhere; that the store is away is no reason to hide it."""
        from airflow_training.operators.admit import keep_refusal

        with contextlib.suppress(TrainingError):
            keep_refusal(context, why)

    def admit(self, context: Context) -> AdmittedRun:
        """Create the run; raises InputError."""
        from airflow_training.operators.admit import admit

        if self.source is None:
            raise ValueError("a plan needs the source of its job")
        arguments = dict(self.arguments or {})
        if self.dag_params:
            arguments = {**context["params"], **arguments}
        return admit(
            self.source, params=arguments, context=context, dag=self.dag, group_id=self.group_id
        )


class PlanFormOperator(PlanOperator):
    """`plan` of the generic DAG: the job comes from the trigger form.

    Returns the names of the job's roles, over which the role tasks are mapped.

    >>> PlanFormOperator(task_id="plan", retries=0)
    <Task(PlanFormOperator): plan>
    """

    def execute(self, context: Context) -> Any:
        """Return the role names; the reference is the XCom `reference`."""
        reference = super().execute(context)
        context["ti"].xcom_push(key="reference", value=reference)
        return list(reference["roles"])

    def admit(self, context: Context) -> AdmittedRun:
        """Create the run of the job that the form names; raises InputError."""
        from airflow_training.compiler.form import job_of_form
        from airflow_training.operators.admit import admit

        form = context["params"]
        return admit(
            job_of_form(form),
            params=form.get("parameters") or {},
            context=context,
            dag=self.dag,
            group_id=self.group_id,
            # what an administrator put into a folder is trusted; only its text comes from a form
            origin="form" if form.get("job") else "file",
        )
