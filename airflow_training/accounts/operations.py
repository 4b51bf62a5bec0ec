"""What services and commands do with accounts: each function is one step over the store. No rule lives here.

Every function raises RuntimeUnavailable where the store cannot be reached, and InputError for an
account, run or team that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal

from airflow_training.accounts.bills import bill_rows
from airflow_training.accounts.enforcement import LimitAction, limit_actions
from airflow_training.accounts.estimates import CostEstimate, estimate_cost
from airflow_training.accounts.keys import key_prefix, key_problem, make_key
from airflow_training.accounts.prices import PriceList
from airflow_training.accounts.refusals import AccountRefusal, AccountRefused
from airflow_training.accounts.reservation import ReservationRequest, decide_reservation
from airflow_training.accounts.run_bills import node_labels_of
from airflow_training.control.model import Event
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.state.account_records import (
    Account,
    AccountKey,
    Charge,
    KeyScope,
    LiveReservation,
    Price,
    Reservation,
    ReservedRole,
)
from airflow_training.state.store import Store

__all__ = [
    "add_key",
    "authenticate",
    "charges",
    "enforce",
    "estimate",
    "is_in_use",
    "reserve",
    "reserved_roles",
    "settle",
]

_EARLIER_RUNS = 5
_MOST_HOURS = 100_000
_BY = "accounts"


def is_in_use(store: Store) -> bool:
    """Return whether there are accounts at all: without any, nobody is limited."""
    return bool(store.accounts.all())


# keys ------------------------------------------------------------------------------------------------
def add_key(
    store: Store, account: str, *, scope: KeyScope = "submit", days: float | None = None
) -> tuple[str, AccountKey]:
    """Make a key of a user and return it, which is the only time that anybody sees it."""
    if store.accounts.find(account).kind != "user":
        raise InputError.of(
            code="not_allowed",
            field="ACCOUNT",
            message=f"{account} is a team; keys are of users",
            value=account,
            allowed=store.accounts.members().get(account, ()),
        )
    now = store.now()
    expires_at = None if days is None else now + days * 86_400.0
    text, kept = make_key(account, scope=scope, now=now, expires_at=expires_at)
    store.accounts.add_key(kept)
    return text, kept


def authenticate(store: Store, key: str, *, scope: KeyScope = "submit") -> Account:
    """Return whose key it is; raises AccountRefused (`login`) where it does not do for that scope."""
    prefix = key_prefix(key)
    kept = None if prefix is None else store.accounts.key(prefix)
    problem = key_problem(key, kept, scope=scope, now=store.now())
    if problem or kept is None:
        command = "airflow-training accounts key ACCOUNT"
        raise AccountRefused(AccountRefusal.of_login(problem, next_command=command))
    return store.accounts.find(kept.account)


# before a run ----------------------------------------------------------------------------------------
def reserved_roles(
    job: ResolvedJob, resources: Mapping[str, Mapping[str, str]], *, spares: bool = False
) -> tuple[ReservedRole, ...]:
    """Return the instances of a job, and its warm spares where `spares` says that its runtime holds places for them.

    `resources`: role -> what one of it requests.
    """
    return tuple(
        ReservedRole(
            role=each.name,
            replicas=each.replicas + (each.warm_spares if spares else 0),
            resources=dict(resources.get(each.name, {})),
            node_labels=node_labels_of(each),
        )
        for each in job.roles
    )


def reserve(
    store: Store,
    *,
    account: str,
    roles: Sequence[ReservedRole],
    hours: Decimal,
    key: str,
    team: str | None = None,
    wait_hours: Decimal = Decimal(24),
) -> Reservation:
    """Hold resources for a run that is to come; raises AccountRefused where a limit or the balance says no.

    `team`: who it is for; None: the only team of the user, if there is one. The same `key` of the
    same account again returns the same reservation, InputError where it asks for something else. Tell its run to `store.reservations.attach` before
    that is started, or give it up with `release`; a run that does not begin holds it for `wait_hours`.
    """
    if not (roles and hours.is_finite() and 0 < hours <= _MOST_HOURS):
        raise InputError.of(
            code="out_of_range",
            field="hours" if roles else "roles",
            message=f"reserves more than nothing, for at most {_MOST_HOURS} hours",
            value=str(hours) if roles else None,
        )
    if not 1 <= len(key) <= 128:
        raise InputError.of(
            code="out_of_range", field="key", message="has 1 to 128 characters", value=key
        )
    known = store.accounts.get(account)
    if known is not None and known.kind != "user":
        refusal = AccountRefusal.of_login(f"{account} is a team; users submit", account=account)
        raise AccountRefused(refusal)
    if known is None:
        command = f"airflow-training accounts add {account}"
        refusal = AccountRefusal.of_login(
            f"{account} has no account here", account=account, next_command=command
        )
        raise AccountRefused(refusal)
    settle(store, account=account)
    request = ReservationRequest(
        account=account,
        team=_team_of(store, account, team),
        key=key,
        roles=tuple(roles),
        hours=hours,
        wait_hours=wait_hours,
    )
    answer = store.reservations.reserve(
        account=account,
        team=request.team,
        key=key,
        decide=lambda facts: decide_reservation(request, facts),
    )
    if isinstance(answer, AccountRefusal):
        raise AccountRefused(answer)
    if (answer.roles, answer.hours, answer.team) != (request.roles, hours, request.team):
        raise InputError.of(
            code="conflict",
            field="key",
            message=f"{key!r} holds something else already",
            value=key,
            hint="another key for another submission; or release reservation " + answer.id,
        )
    return answer


def _team_of(store: Store, account: str, team: str | None) -> str:
    teams = store.accounts.teams_of(account)
    if team is None and len(teams) <= 1:
        return teams[0] if teams else ""
    if team in teams:
        return team or ""
    raise InputError.of(
        code="missing" if team is None else "not_allowed",
        field="team",
        message=f"{account} is in several teams: name the one that it is for"
        if team is None
        else f"{account} is not in team {team!r}",
        value=team,
        allowed=teams,
        hint="" if teams else "airflow-training accounts add TEAM --kind team, then --member-of",
    )


def estimate(
    store: Store,
    roles: Sequence[ReservedRole],
    *,
    hours: Decimal,
    job: str = "",
    planned_seconds: float | None = None,
) -> CostEstimate:
    """Estimate hours and cost of a run: by its plan, by earlier runs of the job, or as asked."""
    earlier = []
    if planned_seconds is None and job:
        for run in store.runs(job=job, states=["Succeeded"], limit=_EARLIER_RUNS):
            used = store.usage.of_run(run.uid)
            if used:
                ends = [each.started_at + each.seconds for each in used]
                earlier.append(max(ends) - min(each.started_at for each in used))
    return estimate_cost(
        roles,
        hours=hours,
        prices=PriceList(store.accounts.prices()),
        currency=store.accounts.currency(),
        now=store.now(),
        planned_seconds=planned_seconds,
        earlier_seconds=earlier,
    )


# while it runs ---------------------------------------------------------------------------------------
def enforce(store: Store, *, runs: Collection[str] | None = None) -> Sequence[LimitAction]:
    """Ask of every run whose account is at a limit what the account says; return what was asked.

    To be called every few seconds by whoever hosts; `runs`: of these only. What was asked already
    is not asked again, by however many callers.
    """
    if runs is None:
        held = [each.reservation for each in store.reservations.live() if not each.over]
    else:
        held = [found for each in runs if (found := store.reservations.of_run(each)) is not None]
    names = {name for each in held if each.run for name in (each.account, each.team) if name}
    names = {name for name in names if store.accounts.is_limited(name)}
    actions = limit_actions(store.reservations.facts(name) for name in sorted(names))
    wanted = [each for each in actions if runs is None or each.run in runs]
    for each in wanted:
        _ask(store, each)
    return wanted


def _ask(store: Store, action: LimitAction) -> None:
    event = Event(
        at=store.now(),
        reason="AccountAtLimit",
        message=action.message + ("; the run may finish" if action.request is None else ""),
        level="warning",
        data={"account": action.account, "limit": action.limit, "action": action.at_limit},
    )
    if action.request is None:
        store.add_event_once(action.run, event)
        return
    store.add_request(
        action.run,
        action.request,
        reason=action.message,
        by=_BY,
        key=f"{_BY}-{action.request}-{action.after_request}",
        event=event,
    )


# afterwards ------------------------------------------------------------------------------------------
def settle(store: Store, *, account: str = "") -> int:
    """Charge and end every reservation whose run is over, or those of one user or team; return how many.

    To be called now and then: what was not charged yet counts all the same, but takes longer to count. Charges are made of the ledger: to settle again, or after a run was started again, changes
    nothing twice.
    """
    now, done = store.now(), 0
    for each in store.reservations.live(account=account):
        reservation = each.reservation
        if each.over if each.run_state else now >= reservation.expires_at:
            done += store.reservations.settle(reservation.id, _charges_of)
    return done


def _charges_of(live: LiveReservation, prices: Sequence[Price]) -> Sequence[Charge]:
    reservation = live.reservation
    labels = {each.role: each.node_labels for each in reservation.roles}
    until = max((each.started_at + each.seconds for each in live.attempts), default=0.0)
    rows = bill_rows(live.attempts, PriceList(prices), node_labels=labels, until=until)
    return [
        Charge(
            run=reservation.run or "",
            month=month,
            account=reservation.account,
            team=reservation.team,
            instance_seconds=float(
                sum(each.instance_seconds for each in rows if each.month == month)
            ),
            gpu_seconds=float(sum(each.gpu_seconds for each in rows if each.month == month)),
            money=sum((each.amount for each in rows if each.month == month), Decimal(0)),
        )
        for month in sorted({each.month for each in rows})
    ]


def charges(store: Store, account: str, *, month: str = "") -> Sequence[Charge]:
    """Charges of settled runs, and those of living runs as of now, the newest month first."""
    store.accounts.find(account)
    prices = store.accounts.prices()
    going_on = [
        charge
        for each in store.reservations.live(account=account)
        for charge in _charges_of(each, prices)
        if not month or charge.month == month
    ]
    again = {each.run for each in going_on}
    settled = [
        each for each in store.reservations.charges(account, month=month) if each.run not in again
    ]
    return sorted([*settled, *going_on], key=lambda each: (each.month, each.run), reverse=True)
