"""`kind: Network` as models: what a user writes. What layers mean is in the catalogue."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from airflow_training.documents.base import DnsLabel, Many, Model

__all__ = ["Layer", "NetworkDocument", "NetworkMetadata", "NetworkSpec", "Phase"]

Phase = Literal["train", "test"]


class Layer(Model):
    """A layer, or a block of layers that is repeated."""

    name: str
    type: str | None = None
    """As the catalogue spells it."""
    inputs: Many[str] | None = None
    """Names of layers before it; None: the one before. Of a block: what its `input` stands for."""
    params: dict[str, Any] = Field(default_factory=dict)
    phase: Annotated[Many[Phase], Field(min_length=1)] | None = None
    """The nets that have it; None: as its type says."""
    tied_to: str | None = None
    """The layer whose weight it computes with."""
    layers: Many[Layer] | None = None
    """What makes it a block."""
    repeat: Annotated[int, Field(ge=1, le=1000)] = 1


class NetworkSpec(Model):
    layers: Annotated[Many[Layer], Field(min_length=1)]
    outputs: Many[str] | None = None
    """Layers whose values both nets return; None: those that nothing but losses and metrics takes."""


class NetworkMetadata(Model):
    name: DnsLabel
    description: Annotated[str, Field(max_length=4000)] = ""


class NetworkDocument(Model):
    api_version: Literal["airflow-training/v1"] = "airflow-training/v1"
    kind: Literal["Network"] = "Network"
    metadata: NetworkMetadata
    spec: NetworkSpec
