"""The rights that Airflow's auth manager gives, teams included."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from fastapi import Request

from airflow_training.airflow_compat import (
    DagAccessEntity,
    DagDetails,
    DagModel,
    GetUserDep,
    get_auth_manager,
)
from airflow_training.state.store import deployment_id
from airflow_training.web.rights import User, Verb, keep_user

__all__ = ["AirflowRights"]

_ENTITIES: Mapping[Verb, tuple[Literal["GET", "POST", "PUT"], DagAccessEntity]] = {
    "read": ("GET", DagAccessEntity.RUN),
    "read_logs": ("GET", DagAccessEntity.TASK_LOGS),
    "act": ("PUT", DagAccessEntity.RUN),
    "submit": ("POST", DagAccessEntity.RUN),
}


def _authenticate(request: Request, user: GetUserDep) -> None:
    keep_user(request, User(name=user.get_name(), account=user))


class AirflowRights:
    """What Airflow lets a user do with a DAG's runs; see `rights.Rights`."""

    standalone = False
    authenticate = staticmethod(_authenticate)

    def may(self, user: User, verb: Verb, dag_id: str | None) -> bool:
        """Ask the auth manager about the DAG in its team."""
        method, entity = _ENTITIES[verb]
        return bool(
            get_auth_manager().is_authorized_dag(
                method=method,
                access_entity=entity,
                details=DagDetails(id=dag_id, team_name=self.team_of(dag_id or "")),
                user=user.account,
            )
        )

    def may_read_of(self, user: User, dag_ids: Collection[str]) -> Collection[str]:
        """The DAGs of which `may` allows reading, with one query for the teams, and mostly one question to the auth manager."""
        named = sorted({*dag_ids} - {""})
        teams = DagModel.get_dag_id_to_team_name_mapping(named) if named else {}
        method, entity = _ENTITIES["read"]
        asked: dict[str, Any] = {
            each: {
                "method": method,
                "access_entity": entity,
                "details": DagDetails(id=each or None, team_name=teams.get(each)),
            }
            for each in dag_ids
        }
        manager, account = get_auth_manager(), user.account
        if manager.batch_is_authorized_dag([*asked.values()], user=account):
            return {*asked}
        return {
            each
            for each, one in asked.items()
            if manager.batch_is_authorized_dag([one], user=account)
        }

    def readable(self, user: User) -> Collection[str] | None:
        """Return DAGs that the user may see; of the command line only who may read all DAGs."""
        ids = get_auth_manager().get_authorized_dag_ids(user=user.account, method="GET")
        return {*ids, ""} if self.may(user, "read", None) else ids

    def team_of(self, dag_id: str) -> str | None:
        """Return the team that Airflow has the DAG in."""
        return DagModel.get_team_name(dag_id) if dag_id else None

    def sources(self) -> Collection[str] | None:
        """Return this deployment, and the command line."""
        return ("cli", deployment_id())
