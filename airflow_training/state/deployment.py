"""What a store made for its deployment, once: its name and its secret."""

from __future__ import annotations

import contextlib
import secrets
import uuid
from collections.abc import Callable

from sqlalchemy import exc, insert, select

from airflow_training.state.database import Database, StorePart
from airflow_training.state.models import MetaRow

__all__ = ["DeploymentFacts"]


class DeploymentFacts(StorePart):
    """Made on first use and kept."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._facts: dict[str, str] = {}

    def id(self) -> str:
        """Return the name of this deployment, made on first use and kept."""
        return self._kept_fact("deployment_id", lambda: uuid.uuid4().hex[:12])

    def callback_secret(self) -> str:
        """The secret behind the tokens of runs; made on first use and kept."""
        return self._kept_fact("callback_secret", lambda: secrets.token_hex(32))

    def _kept_fact(self, name: str, make: Callable[[], str]) -> str:
        """Return a fact about this store; the first one that was written counts."""
        known = self._facts.get(name)
        if known is not None:
            return known
        question = select(MetaRow.value).where(MetaRow.name == name)
        with self._db.read() as connection:
            value: str | None = connection.execute(question).scalar()
        if not value:
            with contextlib.suppress(exc.IntegrityError), self._db.write() as connection:
                if connection.execute(question).scalar() is None:
                    connection.execute(insert(MetaRow), {"name": name, "value": make()})
            with self._db.read() as connection:
                value = connection.execute(question).scalar_one()
        self._facts[name] = value
        return value
