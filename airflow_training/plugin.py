"""The Airflow plugin: links on role tasks, and the authorised page that shows an instance's log."""

from __future__ import annotations

from urllib.parse import urlencode

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink

from airflow_training.operators.role import MappedRoleOperator, RoleOperator

