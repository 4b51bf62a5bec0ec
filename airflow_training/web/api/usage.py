"""What was used in a span of time, of all that the user may read. Every handler runs in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response

from airflow_training.accounts.prices import PriceList
from airflow_training.accounts.run_bills import node_labels_of
from airflow_training.control.rollup import timestamp
from airflow_training.state.account_records import Price
from airflow_training.state.records import UsageSpan
from airflow_training.state.store import Store, open_store
from airflow_training.web.rights import known, rights_of
from airflow_training.web.usage import UsageAnswer, UsageGrouping, usage_csv, usage_days, usage_sums

__all__ = ["router"]

_DAY = 86_400.0
_USUAL_SECONDS = 30 * _DAY
_LONGEST_SECONDS = 366 * _DAY

router = APIRouter()


@router.get("/usage", dependencies=[Depends(known)])
def usage(
    request: Request,
    by: UsageGrouping = "user",
    start: Annotated[datetime | None, Query()] = None,
    end: Annotated[datetime | None, Query()] = None,
) -> UsageAnswer:
    """Return the sums by user, team or job; of the last 30 days where no time is given."""
    store, rights, user = open_store(), rights_of(request), known(request)
    until = _seconds(end) if end is not None else store.now()
    since = _seconds(start) if start is not None else until - _USUAL_SECONDS
    if not since < until <= since + _LONGEST_SECONDS:
        raise HTTPException(422, "start: at most 366 days before end, and not after it")
    spans = store.usage.between(
        since, until, sources=rights.sources(), dag_ids=rights.readable(user)
    )
    dags = {each.dag_id for each in spans}
    # to see a DAG is less than to see its runs, where the auth manager knows both
    readable = {each for each in dags if rights.may(user, "read", each or None)}
    teams = {each: rights.team_of(each) for each in readable} if by == "team" else {}
    counted = [each for each in spans if each.dag_id in readable]
    prices = store.accounts.prices()
    priced = PriceList(prices) if prices else None
    labels = _node_labels(store, counted) if any(map(_of_nodes, prices)) else {}
    sums, total = usage_sums(
        counted, by=by, teams=teams, start=since, end=until, prices=priced, node_labels=labels
    )
    return UsageAnswer(
        by=by,
        start=timestamp(since) or "",
        end=timestamp(until) or "",
        sums=sums,
        total=total,
        days=usage_days(counted, start=since, end=until, prices=priced, node_labels=labels),
        currency=store.accounts.currency() if prices else None,
    )


def _of_nodes(price: Price) -> bool:
    return bool(price.node_label)


def _node_labels(
    store: Store, spans: Sequence[UsageSpan]
) -> Mapping[tuple[str, str], Mapping[str, str]]:
    runs = store.read(sorted({each.run for each in spans}))
    return {
        (uid, role.name): node_labels_of(role)
        for uid, run in runs.items()
        for role in run.job.roles
    }


@router.get("/usage.csv", dependencies=[Depends(known)])
def usage_table(found: Annotated[UsageAnswer, Depends(usage)]) -> Response:
    """Return the same as a file."""
    headers = {"Content-Disposition": f'attachment; filename="usage-by-{found.by}.csv"'}
    return Response(usage_csv(found), media_type="text/csv", headers=headers)


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
