"""How the planner's documents are read: plain data to models, with every mistake named."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from airflow_training.documents.paths import Loc
from airflow_training.documents.problems import field_loc, kind_of, problems_of
from airflow_training.errors import InputError, Problem

__all__ = ["Document", "Mistakes", "Unknown", "read"]

Unknown = Literal["refuse", "ignore"]
"""What happens to keys that nobody knows."""


class Document(BaseModel):
    """Part of a planner's document: keys as in Python, no silent conversions."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        strict=True,
        use_attribute_docstrings=True,
    )


class Mistakes(list[Problem]):
    """Collects the problems of several readings: `with mistakes: ...` for each of them."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, InputError):
            return False
        self += error.problems
        return True

    def complain(self) -> None:
        """Raise them together, if there are any."""
        if self:
            raise InputError(problems=tuple(self))


_Read = TypeVar("_Read", bound=Document)


def read(model: type[_Read], data: Any, *, at: Loc = (), unknown: Unknown = "refuse") -> _Read:
    """Return the document; `at` is where it stands in a bigger one.

    Raises:
        InputError: with every mistake.
    """
    if not isinstance(data, Mapping):
        raise InputError.of(
            code="wrong_type",
            field=".".join(str(part) for part in at),
            message=f"must be a mapping, not {kind_of(data)}",
        )
    try:
        return model.model_validate(data)
    except ValidationError as error:
        strange = _strange_keys(error, model) if unknown == "ignore" else []
        if not strange:
            raise InputError(problems=problems_of(error, model=model, prefix=at)) from error
    return read(model, _without(data, strange), at=at, unknown=unknown)


def _strange_keys(error: ValidationError, model: type[BaseModel]) -> list[Loc]:
    return [
        field_loc(details["loc"], model)
        for details in error.errors(include_url=False, include_input=False)
        if details["type"] == "extra_forbidden"
    ]


def _without(data: Mapping[str, Any], locs: Sequence[Loc]) -> Mapping[str, Any]:
    kept = copy.deepcopy(dict(data))
    for loc in locs:
        owner: Any = kept
        for part in loc[:-1]:
            owner = owner[part]
        del owner[loc[-1]]
    return kept
