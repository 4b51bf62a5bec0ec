"""Networks as a page gets them: those that are saved, and what a document says."""

from __future__ import annotations

from pydantic import BaseModel, Field

from airflow_training.control.rollup import timestamp
from airflow_training.networks.document import Phase
from airflow_training.networks.reading import parse_network
from airflow_training.networks.resolving import ResolvedNetwork
from airflow_training.state.networks import MOST_NETWORK_CHARACTERS, SavedNetwork
from airflow_training.web.document_check import ProblemAnswer, problem_answer

__all__ = [
    "NetworkAnswer",
    "NetworkCheckAnswer",
    "NetworkRequest",
    "NetworkVersion",
    "NetworkVersionPage",
    "NetworkVersionText",
    "check_network",
    "version_answer",
    "version_text",
]


class NetworkRequest(BaseModel):
    document: str = Field(max_length=MOST_NETWORK_CHARACTERS)


class NetworkVersion(BaseModel):
    """One version of a saved network."""

    name: str
    version: int
    user: str
    """The only one who saves its next version."""
    description: str
    created: str
    digest: str


class NetworkVersionPage(BaseModel):
    networks: list[NetworkVersion]


class NetworkVersionText(NetworkVersion):
    document: str


class NetworkLayerAnswer(BaseModel):
    name: str
    field: str
    """Where the document says it; the turns of a repeated block say it in one place."""
    type: str
    kind: str
    """`input`, `layer`, `loss` or `metric`."""
    takes: list[str]
    """Layers, in one of the nets or the other."""
    inputs: dict[Phase, list[str]]
    """What it takes in each of its nets."""
    gives: list[int]
    """Shape of one sample."""
    parameters: int
    """Of its own."""
    flops: int
    nets: list[Phase]


class NetworkAnswer(BaseModel):
    name: str
    layers: list[NetworkLayerAnswer]
    """In the order of the document, blocks written out."""
    parameters: int
    flops: int
    """Of the training net's forward pass of one sample."""


class NetworkCheckAnswer(BaseModel):
    problems: list[ProblemAnswer]
    """Empty: the network is good."""
    network: NetworkAnswer | None


def version_answer(saved: SavedNetwork) -> NetworkVersion:
    """Return a version without its document."""
    return NetworkVersion(
        name=saved.name,
        version=saved.version,
        user=saved.user,
        description=saved.description,
        created=timestamp(saved.created) or "",
        digest=saved.digest,
    )


def version_text(saved: SavedNetwork) -> NetworkVersionText:
    """Return a version with its document."""
    return NetworkVersionText(**version_answer(saved).model_dump(), document=saved.document)


def check_network(text: str) -> NetworkCheckAnswer:
    """Return every mistake of a document, or all that follows from it."""
    network, problems = parse_network(text)
    return NetworkCheckAnswer(
        problems=[*map(problem_answer, problems)],
        network=None if network is None else _network_answer(network),
    )


def _network_answer(network: ResolvedNetwork) -> NetworkAnswer:
    inputs: dict[str, dict[Phase, list[str]]] = {}
    for phase, net in network.nets.items():
        for each in net.layers:
            inputs.setdefault(each.layer.name, {})[phase] = [*each.inputs]
    return NetworkAnswer(
        name=network.metadata.name,
        layers=[
            NetworkLayerAnswer(
                name=layer.name,
                field=layer.flat.field,
                type=layer.flat.type,
                kind=layer.flat.kind.kind,
                takes=network.takes(layer.name),
                inputs=inputs.get(layer.name, {}),
                gives=list(layer.inferred.output.shape),
                parameters=layer.parameters,
                flops=layer.inferred.flops,
                nets=list(layer.flat.phase),
            )
            for layer in network.layers.values()
        ],
        parameters=network.parameters,
        flops=network.flops("train"),
    )
