"""Admission by Airflow: its tokens are the keys, its auth manager gives the rights; and the store's accounts, where it keeps any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio.from_thread
from jwt import ExpiredSignatureError, InvalidTokenError

from airflow_training.accounts.keys import key_prefix
from airflow_training.accounts.operations import is_in_use
from airflow_training.airflow_compat import get_auth_manager
from airflow_training.cloud.protocol import SubmissionRequest
from airflow_training.cloud.service.account_admission import AccountAdmission
from airflow_training.cloud.service.admission import (
    Caller,
    Grant,
    LoginRefused,
    RightRefused,
    RunRight,
    UserSource,
)
from airflow_training.compiler.about import GENERIC_DAG
from airflow_training.settings import load_settings
from airflow_training.state.store import open_store
from airflow_training.web.airflow_rights import AirflowRights
from airflow_training.web.rights import User

__all__ = ["AirflowAdmission"]

_LOGIN = "airflow-training cloud login NAME URL"
_RIGHTS: Mapping[RunRight, str] = {
    "read": "see runs of {dag} (GET, RUN)",
    "read_logs": "see what runs of {dag} print and write (GET, TASK_LOGS)",
    "act": "change runs of {dag} (PUT, RUN)",
    "submit": "start runs of {dag} (POST, RUN)",
}


class AirflowAdmission:
    """See `admission.Admission`. To be called in threads of the event loop that serves.

    A user's name is the name of their account. Keys of accounts ask nothing of the auth manager: who keeps
    the accounts has let them in.
    """

    users: UserSource = "airflow"

    def __init__(self) -> None:
        self._rights = AirflowRights()

    def login(self, key: str, *, right: RunRight) -> Caller:
        """See `Admission`: by an account's key, its own runs; by Airflow's token, as far as its rights reach."""
        if key_prefix(key) is not None:
            return AccountAdmission(open_store()).login(key, right=right)
        user = _user_of(key)
        if not self._rights.may(user, right, GENERIC_DAG):
            raise RightRefused.of(
                code="not_allowed",
                field="key",
                message=f"Airflow does not let {user.name} {_RIGHTS[right].format(dag=GENERIC_DAG)}",
                hint="ask whoever gives roles in that Airflow",
            )
        return Caller(
            account=user.name, reaches_others=right != "act" or load_settings().act_on == "any"
        )

    def reserve(self, account: str, submission: str, request: SubmissionRequest) -> Grant:
        """See `Admission`; who has no account is refused where there are any."""
        accounts = _accounts()
        return Grant() if accounts is None else accounts.reserve(account, submission, request)

    def release(self, account: str, submission: str) -> None:
        """See `Admission`."""
        accounts = _accounts()
        if accounts is not None:
            accounts.release(account, submission)

    def attach(self, account: str, submission: str, run_uid: str) -> None:
        """See `Admission`."""
        accounts = _accounts()
        if accounts is not None:
            accounts.attach(account, submission, run_uid)


def _accounts() -> AccountAdmission | None:
    """Asked anew each time: accounts may be kept from one request to the next."""
    store = open_store()
    return AccountAdmission(store) if is_in_use(store) else None


def _user_of(token: str) -> User:
    """Raises LoginRefused."""
    if not token:
        raise LoginRefused.of(
            code="missing", field="key", message="this service asks for a key", hint=_LOGIN
        )
    manager: Any = get_auth_manager()
    try:
        found = anyio.from_thread.run(manager.get_user_from_token, token)
    except ExpiredSignatureError:
        raise LoginRefused.of(
            code="expired",
            field="key",
            message="Airflow's token of this login has expired",
            hint=f"log in again: {_LOGIN}",
        ) from None
    except InvalidTokenError:
        raise LoginRefused.of(
            code="not_allowed",
            field="key",
            message="this is no token of this Airflow, and no key of an account",
            hint=_LOGIN,
        ) from None
    return User(name=found.get_name(), account=found)
