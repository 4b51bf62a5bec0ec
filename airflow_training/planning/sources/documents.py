"""The planner's plain documents (a model, a cluster, a strategy, a row of them) to our data.

Keys nobody knows are mistakes, or ignored, as the caller says; values are always checked.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import Field, Tag, create_model

from airflow_training.documents.base import discriminate_by_kind
from airflow_training.documents.paths import Loc, format_path
from airflow_training.errors import InputError, Problem
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.planning.sources.reading import Document, Mistakes, Unknown, read
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.strategy import Strategy, TransformerModel

__all__ = [
    "EstimateRequest",
    "Unknown",
    "parse_cluster",
    "parse_model",
    "parse_row",
    "parse_strategy",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """One question of `plan estimate`: a model, a cluster, a strategy, and the framework."""

    id: str | int
    model: TransformerModel
    cluster: ClusterView
    strategy: Strategy
    runtime: str = "generic"


_Size = Annotated[int, Field(ge=1)]
_ZERO_MEANS_NONE = Annotated[int, Field(ge=0)]
_Sizes = Annotated[tuple[_Size, ...], Field(strict=False, min_length=1)]
_Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


def _document_of(kind: type[Any], **special: Any) -> type[Document]:
    """Return a model with the fields and defaults of a data class; its whole numbers are sizes."""
    hints = get_type_hints(kind)
    wanted: dict[str, Any] = {}
    for each in fields(kind):
        hint = special.get(each.name, hints[each.name])
        if hint is int:
            hint = _Size
        elif set(get_args(hint)) == {int, type(None)}:
            hint = _Size | None
        wanted[each.name] = (hint, ... if each.default is MISSING else each.default)
    return create_model(f"{kind.__name__}Document", __base__=Document, **wanted)


_ModelDocument = _document_of(
    TransformerModel, experts=_ZERO_MEANS_NONE, experts_per_token=_ZERO_MEANS_NONE
)
_StrategyDocument = _document_of(Strategy, stage_layers=_Sizes | None, stage_devices=_Names | None)


class _RowDocument(Document):
    id: Annotated[
        Annotated[str, Tag("<text>")] | Annotated[int, Tag("<number>")],
        discriminate_by_kind("text or a whole number", kinds=("<text>", "<number>")),
    ]
    model: dict[str, Any]
    cluster: dict[str, Any]
    strategy: dict[str, Any]
    runtime: str = "generic"


def parse_model(
    data: Any, *, at: Loc = ("model",), unknown: Unknown = "refuse"
) -> TransformerModel:
    """Return a transformer's sizes; raises `InputError` with every mistake."""
    document = read(_ModelDocument, data, at=at, unknown=unknown)
    model = TransformerModel(**{key: getattr(document, key) for key in document.model_fields_set})
    problems = _model_problems(model, at)
    if unknown == "refuse":  # what was measured exists, whatever its sizes
        problems += _uneven_heads(model, at)
    Mistakes(problems).complain()
    return model


def parse_strategy(data: Any, *, at: Loc = ("strategy",), unknown: Unknown = "refuse") -> Strategy:
    """Return a strategy; raises `InputError` with every mistake."""
    document = read(_StrategyDocument, data, at=at, unknown=unknown)
    strategy = Strategy(**{key: getattr(document, key) for key in document.model_fields_set})
    Mistakes(_strategy_problems(strategy, at)).complain()
    return strategy


def parse_row(data: Any, *, unknown: Unknown = "ignore") -> EstimateRequest:
    """Return one row; `measured` is never read.

    Raises:
        InputError: with every mistake of the row.
    """
    row = read(_RowDocument, data, unknown=unknown)
    mistakes = Mistakes()
    model, cluster, strategy = None, None, None
    with mistakes:
        model = parse_model(row.model, unknown=unknown)
    with mistakes:
        cluster = parse_cluster(row.cluster, unknown=unknown)
    with mistakes:
        strategy = parse_strategy(row.strategy, unknown=unknown)
    if model is None or cluster is None or strategy is None:
        raise InputError(problems=mistakes)
    return EstimateRequest(
        id=row.id, model=model, cluster=cluster, strategy=strategy, runtime=row.runtime
    )


def _model_problems(model: TransformerModel, at: Loc) -> list[Problem]:
    problems = []
    if model.kv_heads is not None and model.heads % model.kv_heads:
        problems.append(
            Problem(
                code="not_divisible",
                field=format_path((*at, "kv_heads")),
                value=model.kv_heads,
                message=f"must divide the {model.heads} heads",
                allowed=[size for size in range(1, model.heads + 1) if model.heads % size == 0],
            )
        )
    if model.experts and not 1 <= model.experts_per_token <= model.experts:
        problems.append(
            Problem(
                code="out_of_range",
                field=format_path((*at, "experts_per_token")),
                value=model.experts_per_token,
                message=f"must be from 1 to the {model.experts} experts",
            )
        )
    return problems


def _uneven_heads(model: TransformerModel, at: Loc) -> list[Problem]:
    if model.hidden % model.heads == 0:
        return []
    fitting = [size for size in range(1, model.hidden + 1) if model.hidden % size == 0]
    nearest = sorted(fitting, key=lambda size: abs(size - model.heads))[:6]
    problem = Problem(
        code="not_divisible",
        field=format_path((*at, "heads")),
        value=model.heads,
        message=f"must divide the hidden size {model.hidden}",
        allowed=sorted(nearest),
    )
    return [problem]


def _strategy_problems(strategy: Strategy, at: Loc) -> list[Problem]:
    problems = []
    if (strategy.dp * strategy.cp) % strategy.ep:
        problems.append(
            Problem(
                code="not_divisible",
                field=format_path((*at, "ep")),
                value=strategy.ep,
                message=f"must divide dp x cp, which is {strategy.dp * strategy.cp}",
            )
        )
    for key in ("stage_layers", "stage_devices"):
        stages = getattr(strategy, key)
        wanted = strategy.pp * strategy.virtual_stages if key == "stage_layers" else strategy.pp
        if stages is not None and len(stages) not in (strategy.pp, wanted):
            problems.append(
                Problem(
                    code="out_of_range",
                    field=format_path((*at, key)),
                    value=len(stages),
                    message=f"needs one entry for each of the {wanted} stages",
                )
            )
    return problems
