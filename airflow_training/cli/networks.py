"""`networks check | show | generate`: networks described as layers. Starts nothing, imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.documents import OutputOption
from airflow_training.cli.network_packages import package
from airflow_training.cli.output import (
    OutputFormat,
    fail,
    next_step,
    note,
    print_json,
    print_table,
    problem_json,
)
from airflow_training.cli.program import command_group
from airflow_training.documents.text import counted
from airflow_training.errors import InputError

if TYPE_CHECKING:
    from airflow_training.networks.resolving import ResolvedLayer, ResolvedNetwork

__all__ = ["app"]

app = command_group("networks", "Networks described as layers.")
app.command()(package)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A document of kind Network.")]


@app.command()
def check(file: FileArgument, output: OutputOption = OutputFormat.table) -> None:
    """Report every mistake of a network, at the layer that makes it."""
    from airflow_training.documents.loading import read_file
    from airflow_training.networks.reading import parse_network

    network, problems = parse_network(read_file(file), str(file))
    if output is OutputFormat.json:
        errors = [problem_json(problem) for problem in problems]
        print_json({"path": str(file), "valid": network is not None, "errors": errors})
        if network is None:
            raise typer.Exit(2)
        return
    if network is None:
        raise InputError(problems=problems, path=str(file))
    layers = counted(len(network.layers), "layer")
    note(f"{file}: {network.metadata.name} is good: {layers}, {network.parameters:,} parameters")
    next_step("networks", "show", file)


@app.command()
def show(file: FileArgument, output: OutputOption = OutputFormat.table) -> None:
    """Show the shape, parameters and operations of each layer.

    Operations are those of the forward pass of one sample, two for each multiplication of matrix products and convolutions.
    """
    from airflow_training.networks.reading import read_network

    network = read_network(file)
    if output is OutputFormat.json:
        print_json(_network_json(network))
        return
    print_table(
        ["layer", "type", "takes", "gives", "parameters", "FLOPs", "nets"],
        [
            [
                layer.name,
                layer.flat.type,
                ", ".join(_inputs(network, layer)),
                f"{list(layer.inferred.output.shape)}",
                f"{layer.parameters:,}" if layer.parameters else "",
                f"{layer.inferred.flops:,}" if layer.inferred.flops else "",
                ", ".join(layer.flat.phase),
            ]
            for layer in network.layers.values()
        ],
    )
    note(
        f"{network.parameters:,} parameters; forward pass of one sample: {network.flops('train'):,} FLOPs in the"
        f" training net, {network.flops('test'):,} in the test net"
    )
    next_step("networks", "generate", file, "--to", f"{network.metadata.name}.py")


@app.command()
def generate(
    file: FileArgument,
    to: Annotated[
        Path,
        typer.Option(
            "--to", metavar="FILE", help="net.py: PyTorch; net.yaml: resolved; net.mmd: a picture."
        ),
    ],
) -> None:
    """Write a network as a PyTorch module with `TrainNet` and `TestNet`, as resolved YAML, or as a Mermaid flowchart.

    A file that was not generated is never replaced.
    """
    from airflow_training.networks.diagram import mermaid_text
    from airflow_training.networks.generator import GENERATED, module_text
    from airflow_training.networks.reading import read_network

    writers = {
        ".py": module_text,
        ".yaml": lambda network: f"# {GENERATED} from {file.name}\n{network.to_yaml()}",
        ".mmd": mermaid_text,
    }
    if to.suffix not in writers:
        raise fail("--to", "its ending says what is written", value=str(to), allowed=[*writers])
    text = writers[to.suffix](read_network(file))
    if to.exists() and GENERATED not in to.read_text(errors="replace").partition("\n")[0]:
        message = "is there, and was not generated"
        raise fail("--to", message, value=str(to), hint="another name, or remove it first")
    to.write_text(text, encoding="utf-8")
    note(f"wrote {to}")
    next_step("networks", "show", file)


def _inputs(network: ResolvedNetwork, layer: ResolvedLayer) -> list[str]:
    """Return what a layer takes, in one of the nets or the other."""
    names = [
        name
        for net in network.nets.values()
        for each in net.layers
        if each.layer is layer.flat
        for name in each.inputs
    ]
    return list(dict.fromkeys(names))


def _network_json(network: ResolvedNetwork) -> dict[str, Any]:
    return {
        "name": network.metadata.name,
        "parameters": network.parameters,
        "flops": {phase: network.flops(phase) for phase in network.nets},
        "nets": {
            phase: {
                "inputs": [each.layer.name for each in net.inputs],
                "outputs": [*net.outputs],
                "losses": [each.layer.name for each in net.of_kind("loss")],
                "metrics": [each.layer.name for each in net.of_kind("metric")],
            }
            for phase, net in network.nets.items()
        },
        "layers": [
            {
                "name": layer.name,
                "type": layer.flat.type,
                "inputs": _inputs(network, layer),
                "params": layer.inferred.params,
                "phase": list(layer.flat.phase),
                "shape": list(layer.inferred.output.shape),
                "dtype": layer.inferred.output.dtype,
                "parameters": layer.parameters,
                "flops": layer.inferred.flops,
                "tiedTo": layer.flat.tied_to,
            }
            for layer in network.layers.values()
        ],
    }
