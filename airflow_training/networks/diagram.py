"""A network as a picture in text: a Mermaid flowchart of both nets."""

from __future__ import annotations

from airflow_training.networks.generator import GENERATED
from airflow_training.networks.nets import NET_NAMES
from airflow_training.networks.resolving import PHASES, ResolvedNetwork

__all__ = ["mermaid_text"]


def mermaid_text(network: ResolvedNetwork) -> str:
    """Return the flowchart; what only one of the nets has is dotted, with the name of the net."""
    lines = [f"%% {GENERATED} from the network {network.metadata.name}", "flowchart TD"]
    edges: dict[tuple[str, str], list[str]] = {}
    for phase in PHASES:
        for each in network.nets[phase].layers:
            for source in dict.fromkeys(each.inputs):
                edges.setdefault((source, each.layer.name), []).append(NET_NAMES[phase])
    for name, layer in network.layers.items():
        shape = list(layer.inferred.output.shape)
        lines.append(f'    l_{name}["{name}<br/>{layer.flat.type}<br/>{shape}"]')
    for (source, target), nets in edges.items():
        arrow = "-->" if len(nets) == len(PHASES) else f"-. {nets[0]} .->"
        lines.append(f"    l_{source} {arrow} l_{target}")
    return "\n".join(lines) + "\n"
