"""What all models of documents share: strict types, camelCase spelling, names and thresholds.

Checks of single values only; what needs two fields is in `checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from airflow_training.builtin_runtimes import (
    gang_kinds,
    is_gang_kind,
    is_runtime,
    runtime_names,
)

__all__ = [
    "LABEL_PATTERN",
    "DnsLabel",
    "GangName",
    "Many",
    "Model",
    "Number",
    "RuntimeName",
    "Threshold",
    "discriminate_by_kind",
    "drop_titles",
    "is_label",
]

LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_LABEL = re.compile(LABEL_PATTERN)
_PERCENTAGE = re.compile(r"^([1-9][0-9]?|100)%$")

T = TypeVar("T")
_Init = TypeVar("_Init", bound=Callable[..., None])


def _plain_init(init: _Init) -> _Init:
    """Tell pydantic that nested validation may bypass `init`, as it does BaseModel's own."""
    init.__dict__["__pydantic_base_init__"] = True
    return init


class Model(BaseModel):
    """A part of a document. Python constructors accept both spellings and raise `InputError`."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        allow_inf_nan=False,
        extra="forbid",
        protected_namespaces=(),
        ser_json_inf_nan="constants",
        strict=True,
        validate_assignment=True,
        validate_by_alias=True,
        validate_by_name=True,
    )

    @_plain_init
    def __init__(self, /, **data: Any) -> None:
        try:
            self.__pydantic_validator__.validate_python(data, self_instance=self)
        except ValidationError as error:
            # Only here, so that parsing a good document never pays for it.
            from airflow_training.documents.problems import problems_of
            from airflow_training.errors import InputError

            raise InputError(problems=problems_of(error, model=type(self))) from error


def _shorten(value: float) -> float | int:
    """Return 600 for 600.0: a whole number is written as the user wrote it."""
    return int(value) if value.is_integer() else value


Number = Annotated[float, PlainSerializer(_shorten, return_type=Any)]
"""A finite number; `600` stays `600` when written."""

Many = Annotated[list[T], Field(strict=False)]
"""A list; Python callers may give a tuple."""


def is_label(text: str) -> bool:
    """Return whether a text is an RFC 1123 label."""
    return len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _dns_label(value: str) -> str:
    if len(value) > 63:
        raise PydanticCustomError(
            "name_too_long", "has {length} characters, at most 63 fit", {"length": len(value)}
        )
    if not _LABEL.fullmatch(value):
        raise PydanticCustomError(
            "bad_name",
            "is no RFC 1123 label: lower-case letters, digits and '-', letter or digit at both ends",
            {"hint": _suggest_label(value)},
        )
    return value


def _suggest_label(value: str) -> str:
    close = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
    return f"'{close}' would do" if close else ""


DnsLabel = Annotated[
    str,
    AfterValidator(_dns_label),
    WithJsonSchema({"type": "string", "pattern": LABEL_PATTERN, "maxLength": 63}),
]


@dataclass(frozen=True, slots=True)
class _InstalledName:
    """Names that runtimes bring as a type: of those that are installed, asked when it matters."""

    names: Callable[[], Sequence[str]]
    is_one: Callable[[str], bool]

    def __get_pydantic_core_schema__(self, _: Any, __: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._check)

    def __get_pydantic_json_schema__(self, _: Any, __: Any) -> dict[str, Any]:
        return {"enum": [*self.names()], "type": "string"}

    def _check(self, value: Any) -> Any:
        if not isinstance(value, str) or not self.is_one(value):
            allowed = {"allowed": [*self.names()]}
            raise PydanticCustomError("literal_error", "is none that is installed", allowed)
        return value


RuntimeName = Annotated[str, _InstalledName(runtime_names, is_runtime)]
GangName = Annotated[str, _InstalledName(gang_kinds, is_gang_kind)]


def _threshold(value: Any) -> Any:
    expected = "a count of at least 1, 'All', 'Any', or a percentage such as '50%'"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("wrong_type", "must be {expected}", {"expected": expected})
    if isinstance(value, int):
        if value < 1:
            raise PydanticCustomError("out_of_range", "must be at least 1")
    elif value.endswith("%"):
        if not _PERCENTAGE.fullmatch(value):
            raise PydanticCustomError("out_of_range", "must be between 1% and 100%")
    elif value not in ("All", "Any"):
        raise PydanticCustomError(
            "not_allowed", "must be {expected}", {"expected": expected, "allowed": ["All", "Any"]}
        )
    return value


Threshold = Annotated[
    Any,
    BeforeValidator(_threshold),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["All", "Any"]},
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": _PERCENTAGE.pattern},
            ]
        }
    ),
]
"""How many instances: `All`, `Any`, a count, or a percentage such as `50%`."""


def discriminate_by_kind(expected: str, *, kinds: Sequence[str]) -> Discriminator:
    """Return a discriminator that picks a union's branch by the kind of value alone.

    So an error speaks about the branch the user meant. `kinds` are among `problems.UNION_TAGS`;
    `expected` ends the sentence "must be ...".
    """

    def kind(value: Any) -> str | None:
        if isinstance(value, str):
            found = "<text>"
        elif isinstance(value, Mapping | BaseModel):
            found = "<object>"
        elif isinstance(value, list | tuple):
            found = "<list>"
        elif isinstance(value, bool):
            found = "<flag>"
        elif isinstance(value, int | float):
            found = "<number>"
        else:
            return None
        return found if found in kinds else None

    return Discriminator(
        kind,
        custom_error_type="wrong_type",
        custom_error_message=f"must be {expected}",
    )


def drop_titles(value: Any) -> None:
    """Remove the titles that pydantic puts into a JSON Schema: they only repeat the keys."""
    if isinstance(value, dict):
        if isinstance(value.get("title"), str):
            del value["title"]
        for inner in value.values():
            drop_titles(inner)
    elif isinstance(value, list):
        for inner in value:
            drop_titles(inner)
