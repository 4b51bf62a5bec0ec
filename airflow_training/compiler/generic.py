"""The DAG `training_job`: runs any job given in its trigger form. Runs nothing itself."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_training.compiler.about import FORM, GENERIC_DAG
from airflow_training.compiler.form import form_params
from airflow_training.compiler.group import RECONCILE_WEIGHT, add_end
from airflow_training.operators.plan import PlanFormOperator
from airflow_training.operators.reconcile import ReconcileOperator
from airflow_training.operators.role import MappedRoleOperator

__all__ = ["generic_dag"]


def generic_dag(dag_id: str = GENERIC_DAG) -> DAG:
    """Return the DAG; its form lists the templates and job files of this moment."""
    with DAG(
        dag_id=dag_id,
        schedule=None,
        params=form_params(),
        tags=["training"],
        catchup=False,
        doc_md=FORM,
    ) as dag:
        # the roles are known only when `plan` has read the job
        plan = PlanFormOperator(task_id="plan", retries=0)
        role = MappedRoleOperator.partial(
            task_id="role", map_index_template="{{ task.role }}", retries=0, weight_rule="absolute"
        ).expand(role=plan.output)
        reconcile = ReconcileOperator(
            task_id="reconcile",
            mapped_roles=role.task_id,
            weight_rule="absolute",
            priority_weight=RECONCILE_WEIGHT,
        )
        plan >> reconcile
        add_end([reconcile, role], group_id="")
    return dag
