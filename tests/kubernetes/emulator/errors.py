"""What the server refuses, as `kind: Status` documents in the real server's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.emulator.kinds import Kind


@dataclass(frozen=True, slots=True)
class Cause:
    """One field error; `reason` as in the API: FieldValueInvalid, FieldValueRequired, ..."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """A refusal; `status` is the document the client gets."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.headers = dict(headers or {})
        self.status: dict[str, Any] = {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        }  # fmt: skip
        if details:
            self.status["details"] = {k: v for k, v in details.items() if v not in (None, "")}


def _about(kind: Kind | None, name: str = "") -> dict[str, Any]:
    return {"name": name, "group": kind.group, "kind": kind.plural} if kind else {}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def strict_decoding(kind: Kind, unknown: Sequence[str]) -> ApiError:
    """Return what `fieldValidation=Strict` makes of fields that the server does not know."""
    listed = ", ".join(f'unknown field "{path}"' for path in unknown)
    return bad_request(
        f'{kind.kind} in version "{kind.versions[0]}" cannot be handled as a {kind.kind}: '
        f"strict decoding error: {listed}"
    )


def undeclared(kind: Kind, obj: Mapping[str, Any], path: str) -> ApiError:
    """Return what a server-side apply makes of them: an error of no class, so 500."""
    meta = obj.get("metadata") or {}
    return ApiError(
        500, "",
        f"failed to create typed patch object ({meta.get('namespace', '')}/{meta.get('name', '')}; "
        f"{kind.api_version()}, Kind={kind.kind}): .{path}: field not declared in schema",
    )  # fmt: skip


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{kind.qualified} "{name}" not found', details=_about(kind, name)
    )


def no_such_path() -> ApiError:
    """Return the answer of an unknown group, version or resource."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> ApiError:
    return ApiError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
    )


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(
        409, "AlreadyExists", f'{kind.qualified} "{name}" already exists',
        details=_about(kind, name),
    )  # fmt: skip


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def conflict(kind: Kind, name: str, why: str = MODIFIED) -> ApiError:
    return ApiError(
        409, "Conflict", f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}',
        details=_about(kind, name),
    )  # fmt: skip


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    target = f'{kind.qualified} "{name}"' if name else kind.qualified
    details = _about(kind, name)
    if causes:
        details["causes"] = [_cause(c) for c in causes]
    return ApiError(403, "Forbidden", f"{target} is forbidden: {why}", details=details)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """Return 422; the name in `details.kind` is the kind, not the plural, as in the real one."""
    target = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    text = str(causes[0]) if len(causes) == 1 else "[" + ", ".join(map(str, causes)) + "]"
    return ApiError(
        422, "Invalid", f'{target} "{name}" is invalid: {text}',
        details={
            "name": name, "group": kind.group, "kind": kind.kind,
            "causes": [_cause(c) for c in causes],
        },
    )  # fmt: skip


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    return ApiError(
        415, "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )  # fmt: skip


def not_acceptable() -> ApiError:
    return ApiError(
        406, "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml",
    )  # fmt: skip


def too_large_version(wanted: int, current: int) -> ApiError:
    return ApiError(
        504, "Timeout", f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )  # fmt: skip


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")


def _cause(cause: Cause) -> dict[str, str]:
    found = {"reason": cause.reason, "message": cause.message, "field": cause.field}
    return {key: value for key, value in found.items() if value}


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value{': ' + why if why else ''}")


def wrong(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f'Duplicate value: "{value}"')


def unsupported(field: str, value: Any, allowed: Sequence[str]) -> Cause:
    listed = ", ".join(f'"{one}"' for one in allowed)
    return Cause(
        field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {listed}'
    )


def unknown_reference(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueNotFound", f'Not found: "{value}"')


def not_allowed(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")
