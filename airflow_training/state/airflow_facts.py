"""What Airflow's scheduler and triggerers tell of themselves: neither workers nor triggers may ask."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from sqlalchemy import Connection, select

from airflow_training.state.database import StorePart, clean, upsert
from airflow_training.state.models import MetaRow, table_of

__all__ = ["AirflowFacts"]

_Fact = Literal["pools", "triggerers", "places", "stopped", "refused"]
_STOP_SECONDS = 30 * 86400.0
"""How long it is known that a DAG run was stopped: nothing of it begins by itself after that."""

_MOST_REFUSALS = 100
_REFUSAL_CHARACTERS = 2000


class AirflowFacts(StorePart):
    """What is known of a deployment's Airflow."""

    def pools(self, controller: str) -> Mapping[str, int]:
        """Return pool -> slots of a deployment's Airflow: those that count deferred tasks."""
        with self._db.read() as connection:
            return _load(connection, controller, "pools")

    def places(self, controller: str) -> Sequence[str]:
        """Return the place of each living triggerer; empty for one that did not tell it."""
        with self._db.read() as connection:
            living = _load(connection, controller, "triggerers")
            places = _load(connection, controller, "places")
        return [places.get(host, "") for host in living]

    def triggerers(self, controller: str) -> Sequence[str]:
        """Return the host of each living triggerer, sorted; none where nobody has told."""
        with self._db.read() as connection:
            return sorted(_load(connection, controller, "triggerers"))

    def save_pools(self, controller: str, pools: Mapping[str, int]) -> None:
        """Keep what `pools` returns; writes only what has changed, as the next two do."""
        self._keep(controller, "pools", lambda _: pools)

    def save_triggerers(self, controller: str, hosts: Iterable[str]) -> None:
        """Keep the hosts of the triggerers that live."""
        self._keep(controller, "triggerers", lambda _: dict.fromkeys(hosts, True))

    def save_place(self, controller: str, *, host: str, place: str) -> None:
        """Keep the place of the triggerer on a host, instead of an earlier one's there."""
        self._keep(controller, "places", lambda known: {**known, host: place})

    def save_stop(self, controller: str, *, dag_id: str, run_id: str, reason: str, by: str) -> None:
        """Keep that a DAG run was stopped, for as long as something of it might begin."""
        now = self._db.now()
        stop = {"at": now, "reason": clean(reason), "by": clean(by)}

        def told(known: Mapping[str, Any]) -> Mapping[str, Any]:
            new = {k: v for k, v in known.items() if v["at"] > now - _STOP_SECONDS}
            return {**new, _dag_run_key(dag_id, run_id): stop}

        self._keep(controller, "stopped", told)

    def stop_of(self, controller: str, *, dag_id: str, run_id: str) -> Mapping[str, Any] | None:
        """Return when a DAG run was stopped, why and by whom (`at`, `reason`, `by`); None: it was not."""
        with self._db.read() as connection:
            known = _load(connection, controller, "stopped")
        found: Mapping[str, Any] | None = known.get(_dag_run_key(dag_id, run_id))
        return found

    def save_refusal(self, controller: str, *, dag_id: str, run_id: str, why: str) -> None:
        """Keep why a DAG run has no training; the newest hundred are known."""
        refusal = {"at": self._db.now(), "why": clean(why)[:_REFUSAL_CHARACTERS]}

        def told(known: Mapping[str, Any]) -> Mapping[str, Any]:
            newest = sorted(known.items(), key=lambda item: item[1]["at"])[1 - _MOST_REFUSALS :]
            return {**dict(newest), _dag_run_key(dag_id, run_id): refusal}

        self._keep(controller, "refused", told)

    def refusal_of(self, controller: str, *, dag_id: str, run_id: str) -> str:
        """Return why a DAG run has no training, as far as that is known."""
        with self._db.read() as connection:
            known = _load(connection, controller, "refused")
        return str(known.get(_dag_run_key(dag_id, run_id), {}).get("why", ""))

    def _keep(
        self, controller: str, fact: _Fact, told: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        with self._db.read() as connection:
            known = _load(connection, controller, fact)
        if told(known) != known:
            with self._db.write() as connection:
                known = _load(connection, controller, fact)
                _save(connection, controller, fact, told(known))


def _load(connection: Connection, controller: str, fact: _Fact) -> Mapping[str, Any]:
    """Return what was saved for a deployment; nothing where nothing was."""
    question = select(MetaRow.value).where(MetaRow.name == _name(controller, fact))
    value = connection.execute(question).scalar()
    return json.loads(value) if value else {}


def _save(connection: Connection, controller: str, fact: _Fact, told: Mapping[str, Any]) -> None:
    """Replace what is known about a deployment."""
    row = {"name": _name(controller, fact), "value": json.dumps(dict(told), sort_keys=True)}
    upsert(connection, table_of(MetaRow), [row])


def _dag_run_key(dag_id: str, run_id: str) -> str:
    """Return the name under which it is kept that a DAG run was stopped, or refused."""
    return hashlib.sha256(f"{dag_id}\x1f{run_id}".encode()).hexdigest()[:32]


def _name(controller: str, fact: _Fact) -> str:
    # a deployment id may be longer than the column
    return f"{fact}/{hashlib.sha256(controller.encode()).hexdigest()[:32]}"
