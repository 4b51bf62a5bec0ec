"""Who may do what: tokens to users, and Role rules with the real server's words for a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kubernetes.emulator.errors import ApiError, forbidden
from tests.kubernetes.emulator.kinds import Kind


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One thing somebody wants to do."""

    verb: str
    group: str = ""
    resource: str = ""
    """With the subresource: `pods/log`."""
    name: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """The rules of one binding."""

    subject: str
    namespace: str
    """Empty: in the whole cluster."""
    rules: tuple[Mapping[str, Any], ...]
    origin: str = ""


MASTERS = "system:masters"


def _allows(rule: Mapping[str, Any], ask: Ask) -> bool:
    def listed(key: str, wanted: str) -> bool:
        return "*" in rule.get(key, ()) or wanted in rule.get(key, ())

    _, slash, subresource = ask.resource.partition("/")
    known = listed("resources", ask.resource) or (
        bool(slash) and f"*/{subresource}" in rule.get("resources", ())
    )
    names = rule.get("resourceNames") or ()
    return (
        known
        and listed("apiGroups", ask.group)
        and listed("verbs", ask.verb)
        and (not names or ask.name in names)
    )


@dataclass(slots=True)
class Access:
    """Users by token and what they were granted."""

    tokens: dict[str, User] = field(default_factory=dict)
    grants: list[Grant] = field(default_factory=list)

    def user_of(self, authorization: str) -> User | None:
        scheme, _, token = authorization.partition(" ")
        return self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None

    def allowed(self, user: User, ask: Ask) -> str | None:
        """Return the reason why it is allowed, or None."""
        if MASTERS in user.groups:
            return ""
        for grant in self.grants_of(user):
            here = not grant.namespace or grant.namespace == ask.namespace
            if here and any(_allows(rule, ask) for rule in grant.rules):
                return grant.origin
        if ask.group == "authorization.k8s.io" and ask.verb == "create":
            return 'RBAC: allowed by ClusterRoleBinding "system:basic-user"'
        return None

    def grants_of(self, user: User) -> list[Grant]:
        subjects = {f"User {user.name}", *(f"Group {group}" for group in user.groups)}
        return [grant for grant in self.grants if grant.subject in subjects]

    def bind(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Take Role, ClusterRole and their bindings, as `kubectl apply` would."""
        documents = [one for one in documents if one]
        roles = {
            (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one
            for one in documents
            if one["kind"] in ("Role", "ClusterRole")
        }
        for one in documents:
            if one["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
                continue
            space = one["metadata"].get("namespace", "") if one["kind"] == "RoleBinding" else ""
            if one["kind"] == "RoleBinding" and not space:
                space = "default"
            ref = one["roleRef"]
            where = space if ref["kind"] == "Role" else ""
            role = roles.get((ref["kind"], where, ref["name"]))
            if role is None and where == "default":
                role = roles.get((ref["kind"], "", ref["name"]))
            if role is None:
                raise ValueError(f"{one['metadata']['name']}: no {ref['kind']} {ref['name']} here")
            for subject in one.get("subjects") or ():
                who = _subject(subject)
                self.grants.append(
                    Grant(
                        subject=who,
                        namespace=space,
                        rules=tuple(role.get("rules") or ()),
                        origin=f'RBAC: allowed by {one["kind"]} "{one["metadata"]["name"]}'
                        + (f"/{space}" if space else "")
                        + f'" of {ref["kind"]} "{ref["name"]}" to {_shown(subject)}',
                    )
                )


def _subject(subject: Mapping[str, Any]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f"User system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return f"{subject['kind']} {subject['name']}"


def _shown(subject: Mapping[str, Any]) -> str:
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject["namespace"]}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def refusal(user: User, kind: Kind, ask: Ask) -> ApiError:
    """Return the 403 of the real server's RBAC."""
    where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
    return forbidden(
        kind, ask.name,
        f'User "{user.name}" cannot {ask.verb} resource "{ask.resource}" in API group '
        f'"{ask.group}" {where}',
    )  # fmt: skip
